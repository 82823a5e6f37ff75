# frozen_string_literal: true

# Random programs of calls of the API, of allocations and of what else happens in a VM, against a model of what each call
# must do and say. A failure names the seed, is shrunk to few steps and says how to run these again.
RSpec.describe "random programs" do
  # Each of these once showed something.
  regressions = [20_059, 29_026_261]

  def check(seeds)
    campaign = Model::Campaign.new(seeds, most_failures: 1)
    failures = campaign.run
    expect(failures.join("\n")).to eq ""
    expect(campaign.count).to eq seeds.size
  end

  it "do what the model says" do
    first = Random.new_seed % 1_000_000_000
    check((first...first + (Child.sanitized? ? 10 : 40)).to_a)
  end

  it "do so with the seeds that once showed something" do
    check(regressions)
  end
end
