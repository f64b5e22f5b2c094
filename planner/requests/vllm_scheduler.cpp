#include "planner/requests/vllm_scheduler.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

VllmScheduler::VllmScheduler(const VllmKnobs& knobs, PairRole role)
    : VllmConnected(knobs, role), steady_(knobs.block_size) {}

std::optional<VllmScheduler::Id> VllmScheduler::add(const TraceRequest& request, std::uint32_t text_block) {
  Request r;
  if (!come(request, text_block, r)) return std::nullopt;
  const Id id = requests_.add(std::move(r));
  waiting_.push_back(id);
  return id;
}

void VllmScheduler::forget(Id id) {
  SL_CHECK(requests_[id].done, "only requests that are done are forgotten");
  requests_.forget(id);
}

// Blocks of tokens that are computed and known: not those that steps in flight will say.
void VllmScheduler::fill(Request& r) {
  if (!knobs_.enable_prefix_caching) return;
  pool_.fill(r.share, std::min(r.computed, r.tokens() - in_flight(r)) / knobs_.block_size);
}

// Room for so many tokens in all, `computed` of which have some.
bool VllmScheduler::grow(Request& r, std::uint32_t tokens) { return pool_.grow(r.share, blocks_of(tokens)); }

// Counts tokens of a request to the step that is being decided.
void VllmScheduler::count(Step& step, Id id, std::uint32_t tokens) {
  Request& r = requests_[id];
  // A step of single tokens is one of decoding, whoever computed the rest of a prompt.
  if (tokens == 1 && (r.generated > 0 || r.read) && r.computed + 1 == r.tokens()) {
    ++step.batch.decodes;
    step.batch.cached += r.computed;
    step.batch.longest = std::max(step.batch.longest, r.computed);
  } else {
    step.batch.prompts.push_back({tokens, r.computed});
  }
  r.computed += tokens;
  fill(r);
  const bool token = r.computed == r.tokens();
  if (token) {
    ++r.generated;
    r.last = decided_ + 1;
  }
  step.parts.push_back({id, token, r.generated == r.answer});
}

void VllmScheduler::preempt(Id id) {
  Request& r = requests_[id];
  fill(r);
  pool_.release(r.share);
  r.computed = 0;
  r.state = Request::State::waiting;
  ++r.preempted;
  ++preemptions_;
  --running_;
  waiting_.push_front(id);
}

// What one that was steady is after so many steps.
void VllmScheduler::settle(Request& r, std::uint64_t decided) const {
  const auto steps = static_cast<std::uint32_t>(decided - r.since);
  if (steps == 0) return;
  r.computed += steps;
  r.generated += steps;
  r.last = decided;
  r.share.blocks = blocks_of(r.computed);
}

// Those whose last token is that of the step are named in it; `decided` with this step.
void VllmScheduler::end_steady(Step& step, std::uint64_t decided) {
  if (steady_.count() == 0 || steady_.next_end() >= decided) return;
  const auto first = static_cast<std::ptrdiff_t>(ending_.size());
  const auto named = static_cast<std::ptrdiff_t>(step.parts.size());
  steady_.end(ending_);
  std::sort(ending_.begin() + first, ending_.end(),
            [&](Id a, Id b) { return requests_[a].place < requests_[b].place; });
  for (auto i = ending_.begin() + first; i != ending_.end(); ++i) {
    Request& r = requests_[*i];
    settle(r, decided);
    r.state = Request::State::ending;
    // One that was looked at alone when the step was decided first is named already.
    const auto end = step.parts.begin() + named;
    const auto known = std::find_if(step.parts.begin(), end, [&](const Part& p) { return p.id == *i; });
    if (known != end) {
      known->last = true;
      continue;
    }
    --step.others;
    step.before.push_back(*i);
    step.parts.push_back({*i, true, true});
  }
}

void VllmScheduler::decode_steady(Step& step) {
  if (steady_.count() == 0) return;
  pool_.take(steady_.begin_blocks(decided_));
  step.batch.decodes = step.others = steady_.count();
  step.batch.cached = steady_.cached(decided_);
  step.batch.longest = steady_.longest(decided_);
  end_steady(step, decided_ + 1);
}

// Each is looked at from now on.
void VllmScheduler::part_steady(Step& step) {
  some_.clear();
  steady_.clear(some_);
  for (const Id id : some_) {
    settle(requests_[id], decided_);
    step.before.push_back(id);
  }
  some_.insert(some_.end(), ending_.begin(), ending_.end());
  ending_.clear();
  std::sort(some_.begin(), some_.end(), [&](Id a, Id b) { return requests_[a].place < requests_[b].place; });
  for (const Id id : some_) requests_[id].state = Request::State::alone;
  alone_.insert(alone_.begin(), some_.begin(), some_.end());
}

// Of those that are looked at, the first ones that had a token in the step decided last and only decode.
void VllmScheduler::join_steady() {
  auto i = alone_.begin();
  for (; i != alone_.end(); ++i) {
    Request& r = requests_[*i];
    if (r.generated == r.answer) {
      r.state = Request::State::ending;
      ending_.push_back(*i);
      continue;
    }
    if (r.generated == 0 || r.computed + 1 != r.tokens() || r.last != decided_) break;
    r.state = Request::State::steady;
    r.since = decided_;
    steady_.add(*i, decided_, r.computed, decided_ + (r.answer - r.generated) - 1);
  }
  alone_.erase(alone_.begin(), i);
}

// Whether nobody lost its blocks.
bool VllmScheduler::schedule_alone(Step& step, std::uint32_t& budget) {
  bool kept = true;
  for (std::size_t i = 0; i < alone_.size() && budget > 0; ++i) {
    const Id id = alone_[i];
    Request& r = requests_[id];
    if (r.generated == r.answer) continue;  // its last token is in a step that has not ended
    const std::uint32_t tokens =
        std::min({knobs_.part_of(r.tokens() - r.computed), budget, knobs_.max_model_len - 1 - r.computed});
    if (tokens == 0) continue;
    bool fits = grow(r, r.computed + tokens);
    while (!fits) {
      const Id last = alone_.back();
      alone_.pop_back();
      preempt(last);
      kept = false;
      if (last == id) break;
      fits = grow(r, r.computed + tokens);
    }
    if (!fits && running_ == 0) lost_alone(r);
    if (!fits) break;
    budget -= tokens;
    count(step, id, tokens);
  }
  return kept;
}

bool VllmScheduler::admit(Step& step, Id id, std::uint32_t& budget) {
  Request& r = requests_[id];
  // The last token is computed in any case: its logits are asked for.
  const std::uint32_t whole = (r.tokens() - 1) / knobs_.block_size;
  const RunPool::Found found = pool_.find(r.share, whole);
  if (r.remote) return begin_read(id, found);
  const std::uint32_t tokens = begin_computing(r, found, r.tokens(), budget);
  if (tokens > 0) run(step, id, tokens, budget);
  return tokens > 0;
}

void VllmScheduler::run(Step& step, Id id, std::uint32_t tokens, std::uint32_t& budget) {
  Request& r = requests_[id];
  r.state = Request::State::alone;
  r.place = ++places_;
  alone_.push_back(id);
  ++running_;
  budget -= tokens;
  count(step, id, tokens);
}

VllmScheduler::Step& VllmScheduler::add_step() {
  Step& s = step_at(count_++);
  s.batch.decodes = s.batch.longest = s.others = 0;
  s.batch.cached = 0;
  s.batch.prompts.clear();
  s.parts.clear();
  s.told.clear();
  s.before = unsettled_;
  unsettled_.clear();
  return s;
}

bool VllmScheduler::decide(bool dummy) {
  Step& now = add_step();
  now.told.swap(told_);
  std::uint32_t budget = knobs_.max_num_batched_tokens;
  if (steady_.count() > budget ||
      (steady_.count() > 0 && steady_.begin_blocks(decided_) > pool_.available())) {
    part_steady(now);
  }
  budget -= steady_.count();
  decode_steady(now);
  kept_ = schedule_alone(now, budget);
  admit_waiting(
      budget, 0, [&](Id id) { return admit(now, id, budget); },
      [&](Id id, std::uint32_t tokens) { run(now, id, tokens, budget); });
  if (now.batch.empty() && !dummy) {
    unsettled_ = now.before;
    told_.swap(now.told);
    --count_;
    return false;
  }
  ++decided_;
  join_steady();
  return true;
}

const StepBatch& VllmScheduler::front() const {
  SL_CHECK(count_ > 0, "a step is decided");
  return step_at(0).batch;
}

std::uint64_t VllmScheduler::steps_alike() const {
  if (count_ < depth()) return 1;
  const Step &first = step_at(0), &last = step_at(count_ - 1);
  // What hand-offs change: one that begins is no more than waited for, and ends what is open when it ends.
  if (!told_.empty() || !first.told.empty() || !last.told.empty()) return 1;
  // After a preemption others may begin in the next step, and who runs but is not in this one had no budget.
  // Else whoever waits goes on to: as long as nobody is done there are ever fewer blocks, and no more places.
  // Both steps have as many requests as are steady now, none of them for the last time: the same.
  const auto goes_on = [](const Part& p) { return p.token && !p.last; };
  const auto all_in = [&](const Step& s) {
    return s.batch.prompts.empty() && s.others + s.parts.size() == steady_.count() &&
           std::all_of(s.parts.begin(), s.parts.end(), goes_on);
  };
  if (!kept_ || running_ != steady_.count() || !all_in(first) || !all_in(last)) return 1;
  // Dummy batches: who waits has not begun, and nothing changes for it until something is told.
  if (steady_.count() == 0) return kEndless;
  std::uint64_t most = steady_.next_end() + 1 - decided_;  // more that can be decided
  if (steady_.begin_blocks(decided_, most) <= pool_.available()) return most + 1;
  std::uint64_t fits = 0;
  while (most - fits > 1) {
    const std::uint64_t middle = fits + (most - fits) / 2;
    (steady_.begin_blocks(decided_, middle) <= pool_.available() ? fits : most) = middle;
  }
  return fits + 1;
}

// Decides so many steps like the last one, whose place they take.
void VllmScheduler::more_alike(std::uint64_t steps_more) {
  if (steady_.count() == 0) {  // dummy batches
    decided_ += steps_more;
    return;
  }
  const auto steps = static_cast<std::uint32_t>(steps_more);
  Step& last = step_at(count_ - 1);
  pool_.take(static_cast<std::uint32_t>(steady_.begin_blocks(decided_, steps)));
  last.batch.cached += std::uint64_t{steps} * last.batch.decodes;
  last.batch.longest += steps;
  decided_ += steps;
  end_steady(last, decided_);
  // Who was named when it was looked at alone is steady now, and in its place among those whose last token
  // this is.
  std::sort(last.parts.begin(), last.parts.end(),
            [&](const Part& a, const Part& b) { return requests_[a.id].place < requests_[b.id].place; });
}

Scheduler::Ended VllmScheduler::finish_steps(std::uint64_t steps) {
  SL_CHECK(steps > 0 && count_ > 0, "a step that ends was decided");
  if (steps > 1) more_alike(steps - 1);
  Step& ended = step_at(0);
  finished_ += steps;
  first_ = (first_ + 1) % steps_.size();
  --count_;
  ended_.clear();
  for (const Part& p : ended.parts) {
    if (!p.token) continue;
    ended_.push_back(p.id);
    // Blocks of those that are done are given back in the order in which they ran.
    if (p.last) leave(p.id);
  }
  if (ended.others > 0 || !ended_.empty()) changed();
  // Blocks that were read are free behind those of who is done (`update_from_output`).
  notice(ended.told, false);
  return {ended_, ended.others, ended.before};
}

void VllmScheduler::leave(Id id) {
  Request& r = requests_[id];
  // Its blocks may be lost already: then it waited while its last token was in flight.
  if (r.state == Request::State::waiting) {
    std::erase(waiting_, id);
  } else {
    std::erase(r.state == Request::State::ending ? ending_ : alone_, id);
    --running_;
    fill(r);
  }
  r.done = true;
  let_go(r);
}

void VllmScheduler::drop(Id id) {
  std::erase(waiting_, id);
  requests_.forget(id);
}

}  // namespace shardline
