// How long an engine's step takes, by what is in it: the one thing that players ask of a plan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// A part of a prompt: `tokens` new ones behind `past` that are cached.
struct PromptPart {
  std::uint32_t tokens = 0, past = 0;
};

/// What one step computes: a token for each of so many requests, and parts of prompts.
struct StepBatch {
  std::uint32_t decodes = 0;
  std::uint64_t cached = 0;   // tokens that the decoding requests have cached, together
  std::uint32_t longest = 0;  // of one of them
  std::vector<PromptPart> prompts;

  bool empty() const { return decodes == 0 && prompts.empty(); }
  std::uint64_t prompt_tokens() const;
  /// (query, key) pairs of the prompts under full attention.
  double prompt_pairs() const;
};

/// [R39] What kernels draw, of the board of one GPU, the mean of a replica's: joules by which kernels' watts
/// are off together, and the seconds in which they run. In the rest of any time the board idles. All 0 where
/// nothing is known of boards.
struct StepEnergy {
  static constexpr std::size_t kKinds = 3;
  std::array<double, kKinds> joules{};
  double seconds = 0;

  StepEnergy& operator+=(const StepEnergy& other) {
    for (std::size_t k = 0; k < kKinds; ++k) joules[k] += other.joules[k];
    seconds += other.seconds;
    return *this;
  }
  friend StepEnergy operator*(StepEnergy e, double part) {
    for (double& j : e.joules) j *= part;
    e.seconds *= part;
    return e;
  }
  friend StepEnergy operator+(StepEnergy a, const StepEnergy& b) { return a += b; }
  friend StepEnergy operator-(const StepEnergy& a, const StepEnergy& b) { return a + b * -1; }
};

/// The times of steps in which the same requests decode, one after another: step i of `steps` takes
/// start + slope * i, and draws energy + rise * i.
struct DecodeStretch {
  Seconds start, slope;
  std::uint64_t steps = 1;
  StepEnergy energy = {}, rise = {};
};

/// A step with what it draws. `shared`: the part of that for tokens of all attention groups alike, whatever
/// the group's own batch is; known of steps of several groups.
struct PricedStep {
  Seconds time;
  StepEnergy energy = {}, shared = {};
};

/// Of a batch in one stage of a pipeline: how long the stage computes it; how long it is before the stage can
/// begin with the next, no less; and how much later the next stage has it, or, behind the last one, the
/// engine and the first stage have its tokens.
struct StageTime {
  Seconds busy, occupied, handed;
};

/// [R36] What steps take of each stage of a pipeline. A stage takes its next batch while it hands one over.
class StageTimes {
 public:
  virtual ~StageTimes() = default;
  virtual std::size_t count() const = 0;
  /// Of a batch that is not empty, in the order of stages, of which `out` has as many.
  virtual void of(const StepBatch& batch, std::span<StageTime> out) const = 0;
  /// [R39] The same, and what the batch draws on its way through all of them.
  virtual StepEnergy pass(const StepBatch& batch, std::span<StageTime> out) const {
    of(batch, out);
    return {};
  }
};

/// [R36] How an engine's steps follow each other through its stages.
struct StageOrder {
  std::size_t follows =
      1;  // steps: the first stage has one no sooner than tokens of that many before are back
  /// [R37] Tokens of a step are not sent back before the step that is so many later has reached the last
  /// stage, and not looked at before the first stage has computed the one that is so many later.
  std::size_t sent = 0, looked = 0;
  /// [R38] Of an engine that decides a step whenever the first stage has taken the one before, whoever is
  /// under way, and looks then for tokens that are back: for those of a step from so many decisions later on.
  /// 0: one that decides as steps end.
  std::size_t looks_behind = 0;
};

/// [R3] Times of steps. A table made of a plan's blocks is one; there is one model of a step, so that
/// decode(b).start is of(b) to the bit, and a stretch ends where its line does.
class StepTimes {
 public:
  virtual ~StepTimes() = default;
  /// Of a batch that is not empty; positive and finite.
  virtual Seconds of(const StepBatch& batch) const = 0;
  /// From a step without prompts on, as long as every request gets a token a step and nothing else changes.
  virtual DecodeStretch decode(const StepBatch& batch) const = 0;
  /// [R10] Of a step in which several attention groups, each with a batch of its own, share experts and some
  /// have prompts: what it would take if all waited for group `which` alone, whose batch is not empty. Other
  /// groups' may be. Of groups that all have one batch, of(it) to the bit.
  virtual Seconds of_group(std::span<const StepBatch* const> groups, std::size_t which) const = 0;
  /// [R39] of() and of_group() with what boards draw meanwhile.
  virtual PricedStep priced(const StepBatch& batch) const { return {of(batch)}; }
  virtual PricedStep priced_group(std::span<const StepBatch* const> groups, std::size_t which) const {
    return {of_group(groups, which)};
  }
  /// [R36] Of a pipeline, whose steps are on their way together: players ask for these alone. Else nullptr.
  virtual const StageTimes* stages() const { return nullptr; }
};

/// A few numbers, as a fit to a measured engine gives them. A step that computes n tokens reads the part
/// 1 - missed^n of all experts, `missed` being what a token leaves out: 1 - 8/128 of eight of 128.
class LinearStepTimes : public StepTimes {
 public:
  struct Rates {
    Seconds step, request, cached, prompt_token, prompt_pair;  // of each; none negative, step positive
    Seconds experts = Seconds(0);                              // to read all of them; not negative
    double missed = 1;                                         // in (0, 1]
  };
  explicit LinearStepTimes(const Rates& rates);
  Seconds of(const StepBatch& batch) const override;
  DecodeStretch decode(const StepBatch& batch) const override;
  /// Experts are read for the mean of the groups' tokens.
  Seconds of_group(std::span<const StepBatch* const> groups, std::size_t which) const override;

 private:
  Seconds step(const StepBatch& batch, double tokens) const;
  Seconds experts(double tokens) const;
  Rates rates_;
  double log_missed_;
};

}  // namespace shardline
