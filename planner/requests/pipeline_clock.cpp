#include "planner/requests/pipeline_clock.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

PipelineClock::PipelineClock(const StageTimes& times, const StageOrder& order)
    : times_(times), order_(order), stages_(times.count()), batch_(times.count()) {
  SL_CHECK(!stages_.empty() && order.follows > 0, "a pipeline has a stage, and a step follows another");
}

// The last one that is decided, of those that are still to be.
const PipelineClock::Step& PipelineClock::step(std::uint64_t number) const {
  return steps_[std::min<std::uint64_t>(number - first_, steps_.size() - 1)];
}

Seconds PipelineClock::known(std::uint64_t number) const {
  return std::max(
      {step(number).had, step(number + order_.looked).computed, step(number + order_.sent).reached});
}

void PipelineClock::pass(Step& step, const StepBatch& batch) {
  step.drawn = times_.pass(batch, batch_);
  Seconds at = step.decided;  // when the next stage has it
  const std::uint64_t number = first_ + steps_.size();
  if (order_.looks_behind == 0 && number >= order_.follows) {
    const std::uint64_t before = number - order_.follows;
    if (this->step(before).answers) at = std::max(at, known(before));
  }
  for (std::size_t k = 0; k < stages_.size(); ++k) {
    Stage& stage = stages_[k];
    step.reached = at;
    const Seconds start = std::max(at, stage.free);
    if (k == 0) step.computed = start + batch_[k].busy;
    stage.free = start + batch_[k].occupied;
    stage.link_free = std::max(start + batch_[k].busy, stage.link_free) + batch_[k].handed;
    at = stage.link_free;
  }
  step.had = at;
}

void PipelineClock::decided(Seconds now, const StepBatch& batch, bool answers) {
  Step next = steps_.empty() ? Step{} : steps_.back();
  next.decided = now;
  next.empty = batch.empty();
  next.answers = answers && !next.empty;
  next.drawn = {};
  if (!next.empty) pass(next, batch);
  next.decision = ++decisions_;
  steps_.push_back(next);
  if (order_.looks_behind == 0) return;
  looks_ = std::max(now, passed_);
  passed_ = stages_.front().link_free;
}

// Whether tokens are back, where it looks next, of the first step that is under way.
bool PipelineClock::sees() const {
  if (ended_ == first_ + steps_.size()) return false;
  const Step& next = step(ended_);
  return next.decision + order_.looks_behind <= decisions_ && next.had <= looks_;
}

// Decisions for nobody take no time until it may wait for the first of the steps.
void PipelineClock::waits(Seconds now) {
  if (order_.looks_behind == 0) return;
  ++decisions_;
  if (ended_ == first_ + steps_.size()) return;
  const Step& next = step(ended_);
  decisions_ = std::max(decisions_, next.decision + order_.looks_behind);
  looks_ = std::max(now, next.had);
}

PipelineClock::Event PipelineClock::next() {
  if (order_.looks_behind > 0 && !sees()) return {looks_, false};
  return {next_ends(), true};
}

Seconds PipelineClock::next_ends() {
  SL_CHECK(ended_ < first_ + steps_.size(), "a step that ends was decided");
  const Step& next = step(ended_);
  last_ = std::max(last_, order_.looks_behind > 0 ? looks_ : next.empty ? next.decided : known(ended_));
  drawn_ = next.drawn;
  ++ended_;
  // Those that a step still to be decided may follow.
  while (first_ < ended_ && first_ + order_.follows < first_ + steps_.size()) {
    steps_.pop_front();
    ++first_;
  }
  return last_;
}

}  // namespace shardline
