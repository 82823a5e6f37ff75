# frozen_string_literal: true

require "tmpdir"

# A program may set its default encodings to anything; a profile is bytes.
RSpec.describe "default encodings" do
  it "do not touch the bytes of a profile that is written, nor collecting" do
    Dir.mktmpdir do |folder|
      output = Child.run("Dir.chdir(#{folder.dump}); kinds = [#{Collecting::KINDS.map(&:code).join(", ")}]\n#{<<~'RUBY'}")
        $VERBOSE = nil # Ruby warns of a change of these encodings
        collector = kinds.each(&:start!).last
        data = collector.flush
        pairs = [%w[UTF-8 UTF-8], %w[UTF-8 UTF-16LE], ["UTF-16LE", nil], %w[ISO-8859-1 UTF-8], ["ISO-2022-JP", nil]]
        wrong = pairs.reject do |external, internal|
          reader, writer = IO.pipe(binmode: true)
          Encoding.default_external, Encoding.default_internal = external, internal
          data = collector.flush
          kinds.each(&:flush)
          burn(0.02)
          data.write("profile.pb.gz")
          data.write("/dev/fd/#{writer.fileno}")
          writer.close
          Encoding.default_external, Encoding.default_internal = Encoding::UTF_8, nil
          [File.binread("profile.pb.gz"), reader.read].all?(data.pprof_data)
        end
        kinds.each(&:stop!)
        print wrong
      RUBY
      expect(output).to eq "[]"
    end
  end
end
