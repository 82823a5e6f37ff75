# frozen_string_literal: true

# Strings as text processing makes them: short and embedded, long and on the heap, many out of one call.

Bench::Workloads.define("strings") do
  line = "2026-01-31T12:00:00Z GET /articles/42?page=3 200 OK 1234 \"a referrer that is too long to be embedded\""
  lambda do
    200.times do |i|
      fields = line.split
      path, query = fields[2].split("?")
      "#{fields[1]} #{path.upcase} #{query}, the #{i}th line of them all, and a text long enough to need memory"
      line.sub("42", i.to_s)
    end
  end
end
