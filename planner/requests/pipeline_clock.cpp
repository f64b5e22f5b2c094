#include "planner/requests/pipeline_clock.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

PipelineClock::PipelineClock(const StageTimes& times)
    : times_(times), stages_(times.count()), batch_(times.count()), tokens_(times.count()) {
  SL_CHECK(!stages_.empty(), "a pipeline has a stage");
}

Seconds PipelineClock::next_ends(const StepBatch& batch, bool answers) {
  SL_CHECK(!decided_.empty(), "a step that ends was decided");
  Seconds at = decided_.front();  // when the next stage has it
  decided_.pop_front();
  Seconds& tokens = tokens_[steps_++ % tokens_.size()];
  if (batch.empty()) {
    tokens = Seconds(0);
    return std::max(at, last_);
  }
  times_.of(batch, batch_);
  at = std::max(at, tokens);
  for (std::size_t k = 0; k < stages_.size(); ++k) {
    Stage& stage = stages_[k];
    const Seconds start = std::max(at, stage.free);
    stage.free = start + batch_[k].occupied;
    stage.link_free = std::max(start + batch_[k].busy, stage.link_free) + batch_[k].handed;
    at = stage.link_free;
  }
  tokens = answers ? at : Seconds(0);
  last_ = at;
  return at;
}

}  // namespace shardline
