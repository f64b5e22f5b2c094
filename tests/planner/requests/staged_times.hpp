// Times of steps in the stages of a pipeline that a test chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planner/requests/step_times.hpp"
#include "sim/base/random.hpp"

namespace shardline {

// Every batch takes of each stage what is said, and per token of a prompt and request that decodes some more.
class StagedTimes : public StepTimes, public StageTimes {
 public:
  explicit StagedTimes(std::vector<StageTime> stages, double each = 0)
      : stages_(std::move(stages)), each_(each) {}
  Seconds of(const StepBatch& b) const override {
    std::vector<StageTime> all(stages_.size());
    of(b, all);
    Seconds out;
    for (const StageTime& s : all) out += s.busy + s.handed;
    return out;
  }
  DecodeStretch decode(const StepBatch& b) const override { return {of(b), Seconds(0), 1}; }
  Seconds of_group(std::span<const StepBatch* const> groups, std::size_t which) const override {
    return of(*groups[which]);
  }
  const StageTimes* stages() const override { return this; }
  std::size_t count() const override { return stages_.size(); }
  void of(const StepBatch& b, std::span<StageTime> out) const override {
    const double tokens = b.decodes + static_cast<double>(b.prompt_tokens());
    for (std::size_t k = 0; k < out.size(); ++k) {
      // The later a stage the more a token takes there, so that each is the longest of some batch.
      out[k] = stages_[k];
      const Seconds more(each_ * tokens * static_cast<double>(k + 1));
      out[k].busy += more;
      out[k].occupied += more;
      out[k].handed += Seconds(each_ * tokens / 4);
    }
  }

 private:
  std::vector<StageTime> stages_;
  double each_;
};

inline StagedTimes random_stages(RandomStream& random, std::uint32_t stages) {
  std::vector<StageTime> out(stages);
  for (StageTime& s : out) {
    s.busy = Seconds(0.002 * (1 + random.exponential()));
    s.occupied = s.busy + Seconds(random.below(2) == 0 ? 0 : 0.002 * random.exponential());
    s.handed = Seconds(0.0002 * random.exponential());
  }
  return StagedTimes(out, random.below(2) == 0 ? 0 : 1e-5 * random.exponential());
}

}  // namespace shardline
