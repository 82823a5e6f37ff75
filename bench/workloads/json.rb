# frozen_string_literal: true

require "json"

# A document of an API, parsed and generated.

Bench::Workloads.define("JSON") do
  articles = Array.new(50) do |i|
    { "id" => i, "title" => "Article #{i}", "tags" => %w[ruby memory profile], "score" => i / 7.0,
      "author" => { "name" => "Author #{i % 7}", "active" => i.even?, "address" => { "city" => "Rome" } } }
  end
  text = JSON.generate("articles" => articles)
  -> { JSON.generate(JSON.parse(text)) }
end
