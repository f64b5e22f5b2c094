#include "planner/requests/vllm_pipeline.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

VllmPipelineScheduler::VllmPipelineScheduler(const VllmKnobs& knobs)
    : VllmListed(knobs, PairRole::none),
      steps_(std::vector<DecidedStep>(knobs.pipeline_parallel_size + (knobs.async_scheduling ? 1 : 0))) {
  SL_CHECK(knobs.pipeline_parallel_size > 1, "a pipeline has several stages");
}

// Tokens that the step which is being decided may compute of one that runs. Without async scheduling nobody
// knows of a token before it is there.
std::uint32_t VllmPipelineScheduler::lacks(const Request& r) const {
  if (!knobs_.async_scheduling) return r.known() - r.computed;
  const bool surely_ends = r.under_way > 0 && r.computed + 2 - r.under_way >= r.prompt + r.answer;
  if (surely_ends || schedule_ < r.eligible) return 0;
  return r.known() + r.under_way - r.computed;
}

// Counts tokens of a request to the step that is being decided.
void VllmPipelineScheduler::count(DecidedStep& step, Id id, std::uint32_t tokens) {
  Request& r = requests_[id];
  const std::uint32_t whole = r.known() + (knobs_.async_scheduling ? r.under_way : 0);
  // A step of single tokens is one of decoding, whoever computed the rest of a prompt.
  if (tokens == 1 && whole > r.prompt && r.computed + 1 == whole) {
    step.add_decode(r.computed);
  } else {
    step.batch.prompts.push_back({tokens, r.computed});
  }
  r.computed += tokens;
  fill(r, std::min(r.computed, r.known()));
  const bool token = r.computed == whole;
  if (token) {
    ++r.under_way;
    r.eligible = schedule_ + knobs_.pipeline_parallel_size;
  }
  step.parts.push_back({id, token});
}

void VllmPipelineScheduler::schedule_running(DecidedStep& step, std::uint32_t& budget) {
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const Id id = running_[i];
    Request& r = requests_[id];
    const std::uint32_t tokens =
        std::min({knobs_.part_of(lacks(r)), budget, knobs_.max_model_len - 1 - r.computed});
    if (tokens == 0) continue;
    if (!make_room(id, r.computed + tokens)) break;
    budget -= tokens;
    count(step, id, tokens);
  }
}

bool VllmPipelineScheduler::admit(DecidedStep& step, Id id, std::uint32_t& budget) {
  Request& r = requests_[id];
  // One that lost its blocks: what it computes anew ends with a token that is still under way.
  if (r.under_way > 0) return false;
  // The last token is computed in any case: its logits are asked for.
  const RunPool::Found found = pool_.find(r.share, (r.known() - 1) / knobs_.block_size);
  const std::uint32_t tokens = begin_computing(r, found, r.known(), budget);
  if (tokens == 0) return false;
  run(id);
  budget -= tokens;
  count(step, id, tokens);
  return true;
}

bool VllmPipelineScheduler::decide(bool dummy) {
  SL_CHECK(!dummy, "engines that pass batches on run no dummy batches");
  if (running_.empty() && waiting_.empty()) return false;
  ++schedule_;
  DecidedStep& now = steps_.add();
  std::uint32_t budget = knobs_.max_num_batched_tokens;
  kept_ = true;
  schedule_running(now, budget);
  admit_waiting(
      budget, 0, [&](Id id) { return admit(now, id, budget); },
      [](Id, std::uint32_t) { SL_CHECK(false, "only engines of a pair read"); });
  if (now.parts.empty() && busy_ == 0) {
    steps_.drop_back();
    return false;
  }
  if (!now.parts.empty()) ++busy_;
  return true;
}

const DecidedStep& VllmPipelineScheduler::front_step() const {
  SL_CHECK(!steps_.empty(), "a step is decided");
  return steps_.front();
}

const StepBatch& VllmPipelineScheduler::front() const { return front_step().batch; }

bool VllmPipelineScheduler::back_answers() const {
  const std::vector<Part>& parts = steps_.back().parts;
  return std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.token; });
}

Scheduler::Ended VllmPipelineScheduler::finish_steps(std::uint64_t steps) {
  SL_CHECK(steps == 1, "no step is known to be like the one before");
  const DecidedStep& ended = front_step();
  steps_.pop_front();
  if (!ended.parts.empty()) --busy_;
  ended_.clear();
  for (const Part& p : ended.parts) {
    if (!p.token) continue;
    Request& r = requests_[p.id];
    ++r.generated;
    --r.under_way;
    if (r.running && knobs_.async_scheduling) fill(r, r.computed - r.under_way);
    ended_.push_back(p.id);
    if (r.generated == r.answer) leave(p.id);
  }
  return {ended_};
}

}  // namespace shardline
