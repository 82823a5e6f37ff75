# frozen_string_literal: true

require_relative "lib/ruby_memprofiler_pprof/version"

Gem::Specification.new do |spec|
  spec.name = "ruby_memprofiler_pprof"
  spec.version = MemprofilerPprof::VERSION
  spec.authors = ["the ruby_memprofiler_pprof authors"]
  spec.summary = "A sampling memory-allocation profiler that writes pprof"
  spec.description = "Which code paths allocate, which of it is still alive, how big it is and of what class: sampled " \
                     "at a cost that production bears, in the format that go tool pprof and its kin read."
  spec.license = "MIT"
  spec.homepage = "https://ruby-memprofiler-pprof.example.invalid"
  spec.metadata = {
    "homepage_uri" => spec.homepage,
    "source_code_uri" => "#{spec.homepage}/source",
    "changelog_uri" => "#{spec.homepage}/changelog",
    "documentation_uri" => "#{spec.homepage}/documentation",
    "bug_tracker_uri" => "#{spec.homepage}/issues",
    "rubygems_mfa_required" => "true"
  }

  spec.required_ruby_version = [">= 3.1", "< 5"]
  spec.add_dependency "google-protobuf", ">= 4.28", "< 5" # upb's C source, and a reader of profiles

  spec.files = Dir.glob(
    ["lib/**/*.rb", "ext/ruby_memprofiler_pprof/*.{rb,map}", "ext/ruby_memprofiler_pprof/{core,vm,proto}/*.{c,h,proto}",
     "docs/**/*.md", "bench/*.md", "README.md", "CHANGELOG.md", "LICENSE"],
    base: __dir__
  ).sort
  spec.extensions = ["ext/ruby_memprofiler_pprof/extconf.rb"]
  spec.require_paths = ["lib"]
end
