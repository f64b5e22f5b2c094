// When steps end that are on their way through the stages of a pipeline together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "planner/requests/step_times.hpp"

namespace shardline {

/// [R36] Steps pass the stages in the order in which they were decided, one in a stage at a time. A stage
/// begins with one when it is free of the one before and the stage before has handed it over, over a link
/// that carries one at a time. The first stage begins besides not before the engine has decided the step,
/// and not before the tokens of an earlier step are known, which StageOrder names: who goes on from those may
/// be in it. [R37] When these are known depends on later steps where StageOrder says so.
///
/// [R38] An engine that looks behind decides the next step when the first stage has passed on the one before
/// the last, looks then at tokens that are back, and waits for tokens only where it has nobody to decide for.
class PipelineClock {
 public:
  struct Event {
    Seconds at;
    bool ends;  // a step; else the engine only decides the next one
  };
  /// Refers to `times`.
  PipelineClock(const StageTimes& times, const StageOrder& order);
  /// The engine decides one more step. `answers`: its tokens are waited for.
  void decided(Seconds now, const StepBatch& batch, bool answers);
  /// When the first of the decided steps ends that nobody asked for yet: its tokens are known. One without a
  /// batch is nowhere on its way, and ends with the one before.
  Seconds next_ends();
  /// [R39] What that step drew on its way.
  const StepEnergy& drawn() const { return drawn_; }

  /// [R38] Whether the engine decides a step now, before anything that is under way ends: always, but of one
  /// that looks behind.
  bool decides(Seconds now) const { return order_.looks_behind == 0 || (looks_ <= now && !sees()); }
  /// There is nobody to decide a step for: it waits for the first that is under way, if there is one.
  void waits(Seconds now);
  /// What comes next, a step that is decided being under way: next_ends(), or a decision.
  Event next();

 private:
  struct Stage {
    Seconds free, link_free;
  };
  // Of one without a batch, computed and reached are of the last one with one.
  struct Step {
    Seconds decided;
    Seconds had;       // by the engine, if all stages pass it on at once
    Seconds computed;  // by the first stage
    Seconds reached;   // the last stage
    bool empty = true, answers = false;
    std::uint64_t decision = 0;  // its number, those for nobody counted
    StepEnergy drawn;
  };
  const Step& step(std::uint64_t number) const;
  Seconds known(std::uint64_t number) const;
  bool sees() const;
  void pass(Step& step, const StepBatch& batch);

  const StageTimes& times_;
  const StageOrder order_;
  std::vector<Stage> stages_;
  std::vector<StageTime> batch_;  // of the step that is looked at
  std::deque<Step> steps_;        // from number first_ on
  std::uint64_t first_ = 0, ended_ = 0;
  Seconds last_;      // the end of the last step
  StepEnergy drawn_;  // by it
  // Of an engine that looks behind: when it looks next, decisions ever, and when the first stage has passed
  // on the step that was decided last.
  Seconds looks_, passed_;
  std::uint64_t decisions_ = 0;
};

}  // namespace shardline
