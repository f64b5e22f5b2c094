#include "planner/requests/vllm_pipeline.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

VllmPipelineScheduler::VllmPipelineScheduler(const VllmKnobs& knobs)
    : VllmConnected(knobs, PairRole::none),
      steps_(knobs.pipeline_parallel_size + (knobs.async_scheduling ? 1 : 0)) {
  SL_CHECK(knobs.pipeline_parallel_size > 1, "a pipeline has several stages");
}

std::optional<Scheduler::Id> VllmPipelineScheduler::add(const TraceRequest& request,
                                                        std::uint32_t text_block) {
  Request r;
  if (!come(request, text_block, r)) return std::nullopt;
  const Id id = requests_.add(std::move(r));
  waiting_.push_back(id);
  return id;
}

void VllmPipelineScheduler::forget(Id id) {
  SL_CHECK(requests_[id].done, "only requests that are done are forgotten");
  requests_.forget(id);
}

// Blocks of tokens that are computed and known.
void VllmPipelineScheduler::fill(Request& r, std::uint32_t tokens) {
  const std::uint32_t full = tokens / knobs_.block_size;
  if (knobs_.enable_prefix_caching && full > r.share.filled) pool_.fill(r.share, full);
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
void VllmPipelineScheduler::count(Step& step, Id id, std::uint32_t tokens) {
  Request& r = requests_[id];
  const std::uint32_t whole = r.known() + (knobs_.async_scheduling ? r.under_way : 0);
  // A step of single tokens is one of decoding, whoever computed the rest of a prompt.
  if (tokens == 1 && whole > r.prompt && r.computed + 1 == whole) {
    ++step.batch.decodes;
    step.batch.cached += r.computed;
    step.batch.longest = std::max(step.batch.longest, r.computed);
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

void VllmPipelineScheduler::preempt(Id id) {
  Request& r = requests_[id];
  pool_.release(r.share);
  r.computed = 0;
  r.running = false;
  ++r.preempted;
  ++preemptions_;
  waiting_.push_front(id);
}

// Whether nobody lost its blocks.
bool VllmPipelineScheduler::schedule_running(Step& step, std::uint32_t& budget) {
  bool kept = true;
  for (std::size_t i = 0; i < running_.size() && budget > 0; ++i) {
    const Id id = running_[i];
    Request& r = requests_[id];
    const std::uint32_t tokens =
        std::min({knobs_.part_of(lacks(r)), budget, knobs_.max_model_len - 1 - r.computed});
    if (tokens == 0) continue;
    const std::uint32_t blocks = knobs_.blocks_of(r.computed + tokens);
    bool fits = pool_.grow(r.share, blocks);
    while (!fits) {
      const Id last = running_.back();
      running_.pop_back();
      preempt(last);
      kept = false;
      if (last == id) break;
      fits = pool_.grow(r.share, blocks);
    }
    if (!fits) break;
    budget -= tokens;
    count(step, id, tokens);
  }
  return kept;
}

bool VllmPipelineScheduler::admit(Step& step, Id id, std::uint32_t& budget) {
  Request& r = requests_[id];
  // One that lost its blocks: what it computes anew ends with a token that is still under way.
  if (r.under_way > 0) return false;
  // The last token is computed in any case: its logits are asked for.
  const RunPool::Found found = pool_.find(r.share, (r.known() - 1) / knobs_.block_size);
  const std::uint32_t cached = found.blocks * knobs_.block_size;
  const std::uint32_t part = knobs_.part_of(r.known() - cached);
  if (!knobs_.enable_chunked_prefill && part > budget) return false;
  const std::uint32_t tokens = std::min(part, budget);
  const std::uint32_t asked = knobs_.scheduler_reserve_full_isl ? r.known() : cached + tokens;
  // Blocks that are found and idle are in the free queue, too.
  if (std::uint64_t{knobs_.blocks_of(asked)} - found.blocks + found.idle + watermark() > pool_.available())
    return false;
  pool_.hold_found(r.share);
  r.computed = cached;
  if (!r.began) r.found = cached;
  r.began = true;
  const bool fits = pool_.grow(r.share, knobs_.blocks_of(cached + tokens));
  SL_CHECK(fits, "what fits as a whole fits in parts");
  r.running = true;
  running_.push_back(id);
  budget -= tokens;
  count(step, id, tokens);
  return true;
}

bool VllmPipelineScheduler::decide(bool dummy) {
  SL_CHECK(!dummy, "engines that pass batches on run no dummy batches");
  if (running_.empty() && waiting_.empty()) return false;
  ++schedule_;
  Step& now = step_at(count_);
  now.batch.decodes = now.batch.longest = 0;
  now.batch.cached = 0;
  now.batch.prompts.clear();
  now.parts.clear();
  std::uint32_t budget = knobs_.max_num_batched_tokens;
  kept_ = schedule_running(now, budget);
  admit_waiting(
      budget, 0, [&](Id id) { return admit(now, id, budget); },
      [](Id, std::uint32_t) { SL_CHECK(false, "only engines of a pair read"); });
  if (now.parts.empty() && busy_ == 0) return false;
  ++count_;
  if (!now.parts.empty()) ++busy_;
  return true;
}

const VllmPipelineScheduler::Step& VllmPipelineScheduler::front_step() const {
  SL_CHECK(count_ > 0, "a step is decided");
  return steps_[first_];
}

const StepBatch& VllmPipelineScheduler::front() const { return front_step().batch; }

bool VllmPipelineScheduler::front_answers() const {
  const std::vector<Part>& parts = front_step().parts;
  return std::any_of(parts.begin(), parts.end(), [](const Part& p) { return p.token; });
}

Scheduler::Ended VllmPipelineScheduler::finish_steps(std::uint64_t steps) {
  SL_CHECK(steps == 1 && count_ > 0, "a step that ends was decided");
  const Step& ended = step_at(0);
  first_ = (first_ + 1) % steps_.size();
  --count_;
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

void VllmPipelineScheduler::leave(Id id) {
  Request& r = requests_[id];
  // Its blocks may be lost already: then it waited while its last token was under way.
  if (r.running)
    std::erase(running_, id);
  else
    std::erase(waiting_, id);
  r.done = true;
  let_go(r);
}

void VllmPipelineScheduler::drop(Id id) {
  std::erase(waiting_, id);
  requests_.forget(id);
}

}  // namespace shardline
