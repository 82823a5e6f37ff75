# frozen_string_literal: true

# Rows of a table in memory to objects with an association, as an object-relational mapper loads them.

Bench::Workloads.define("ORM", gems: %w[sequel sqlite3]) do
  require "sequel"

  # SQLite's connections do not survive a fork: opened where the work is first done.
  connect = lambda do
    database = Sequel.sqlite
    database.create_table(:authors) do
      primary_key :id
      String :name
    end
    database.create_table(:articles) do
      primary_key :id
      foreign_key :author_id, :authors
      String :title
      String :body
      Float :score
      DateTime :published_at
    end
    database[:authors].import([:name], Array.new(100) { |i| ["Author #{i}"] })
    rows = Array.new(5_000) do |i|
      [i % 100 + 1, "Title #{i}", "Body of #{i}, " * 10, i / 3.0, Time.at(1_700_000_000 + i * 3_600)]
    end
    database[:articles].import(%i[author_id title body score published_at], rows)
    author = Class.new(Sequel::Model(database[:authors]))
    Class.new(Sequel::Model(database[:articles])) { many_to_one :author, class: author, key: :author_id }
  end

  model = nil
  page = 0
  lambda do
    model ||= connect.call
    page = (page + 1) % 10
    model.order(:id).limit(500, page * 500).eager(:author).all.sum { |article| article.author.name.size }
  end
end
