// Steps of TensorRT-LLM that decode without drafts.
#include <algorithm>
#include <limits>

#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// The step that is being decided has one more of its answer.
void TrtllmScheduler::add_token(Id id) {
  Request& r = requests_[id];
  r.last = decided_ + 1;
  if (++r.generated == r.answer)
    complete(r);
  else if (together_)
    joining_.push_back(id);
}

void TrtllmScheduler::decode_all(DecidedStep& step) {
  for (const Id id : generating_) {
    Request& r = requests_[id];
    if (r.state == Request::State::arrived) take_first(id);
    take_blocks(r, std::uint64_t{r.cached} + 1);
    step.add_decode(r.cached);
    ++r.cached;
    add_token(id);
    step.parts.push_back({id, true});
  }
  if (!together_) return;
  decoding_.clear();  // they are steady from now on, or will end
  decode_steady(step);
}

// Those of its parts that decode.
void TrtllmScheduler::in_order_of_coming(DecidedStep& step) {
  std::sort(step.parts.begin() + static_cast<std::ptrdiff_t>(step.batch.prompts.size()), step.parts.end(),
            [&](const DecidedStep::Part& a, const DecidedStep::Part& b) {
              return requests_[a.id].number < requests_[b.id].number;
            });
}

// Blocks for so many steps from the one on that is decided next.
void TrtllmScheduler::take_steady(std::uint64_t steps) {
  const std::uint64_t blocks = steady_.begin_blocks(decided_, steps);
  if (blocks > pool_.available()) lack_blocks();
  pool_.take(static_cast<std::uint32_t>(blocks));
  owed_ -= static_cast<std::int64_t>(blocks);
}

void TrtllmScheduler::decode_steady(DecidedStep& step) {
  if (steady_.count() == 0) return;
  take_steady(1);
  step.others = steady_.count();
  step.batch.decodes += steady_.count();
  step.batch.cached += steady_.cached(decided_);
  step.batch.longest = std::max(step.batch.longest, steady_.longest(decided_));
  end_steady(step, decided_ + 1);
}

// Those whose last token is that of the step are named in it; `decided` with this step.
void TrtllmScheduler::end_steady(DecidedStep& step, std::uint64_t decided) {
  if (steady_.count() == 0 || steady_.next_end() >= decided) return;
  some_.clear();
  steady_.end(some_);
  const std::size_t named = step.parts.size();
  for (const Id id : some_) {
    Request& r = requests_[id];
    const auto steps = static_cast<std::uint32_t>(decided - r.since);
    r.cached += steps;
    r.generated += steps;
    r.last = decided;
    r.share.blocks = blocks_of(r.cached);
    complete(r);
    // One that had its first row in the step is named already.
    const auto end = step.parts.begin() + static_cast<std::ptrdiff_t>(named);
    if (std::any_of(step.parts.begin(), end, [&](const DecidedStep::Part& p) { return p.id == id; }))
      continue;
    --step.others;
    step.before.push_back(id);
    step.parts.push_back({id, true});
  }
  in_order_of_coming(step);
}

// Who had a token in the step that was decided last, and goes on, has one in each from now on.
void TrtllmScheduler::join_steady() {
  for (const Id id : joining_) {
    Request& r = requests_[id];
    r.since = decided_;
    steady_.add(id, decided_, r.cached, decided_ + (r.answer - r.generated) - 1);
  }
  joining_.clear();
}

// Whether the same requests have a token in both steps, all that have begun, and none its last in the first.
bool TrtllmScheduler::all_alike(const DecidedStep& first, const DecidedStep& last) const {
  if (!first.batch.prompts.empty() || !last.batch.prompts.empty()) return false;
  if (!together_) return first.parts == last.parts && last.parts.size() == started_;
  return completing_ == 0 && steady_.count() == started_ && first.others + first.parts.size() == started_;
}

// How many more steps can be decided until somebody has its last token.
std::uint64_t TrtllmScheduler::most_alike() const {
  if (together_) return steady_.next_end() + 1 - decided_;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (const DecidedStep::Part& p : steps_.back().parts)
    most = std::min<std::uint64_t>(most, requests_[p.id].answer - requests_[p.id].generated);
  return most;
}

std::uint64_t TrtllmScheduler::blocks_for(std::uint64_t steps) const {
  if (together_) return steady_.begin_blocks(decided_, steps);
  std::uint64_t sum = 0;
  for (const DecidedStep::Part& p : steps_.back().parts)
    sum += blocks_of(requests_[p.id].cached + steps) - requests_[p.id].share.blocks;
  return sum;
}

std::uint64_t TrtllmScheduler::steps_alike() const {
  if (drafts() || steps_.size() < depth()) return 1;
  // Who waits goes on to: what those that run lack for the rest of their answers becomes fewer as the free
  // blocks do, and of the text in the cache there is never more.
  if (!undisturbed_ || !all_alike(steps_.front(), steps_.back())) return 1;
  std::uint64_t most = most_alike();
  // Prompts that fit the cache but no step go before those that came later and decode.
  if (owed_ >= 0 && static_cast<std::uint64_t>(owed_) + reserved_ <= pool_.available()) return most + 1;
  const auto enough = [&](std::uint64_t more) { return blocks_for(more) + reserved_ <= pool_.available(); };
  if (enough(most)) return most + 1;
  std::uint64_t fits = 0;
  while (most - fits > 1) {
    const std::uint64_t middle = fits + (most - fits) / 2;
    (enough(middle) ? fits : most) = middle;
  }
  return fits + 1;
}

// Decides so many steps like the last one, whose place they take.
void TrtllmScheduler::more_alike(std::uint64_t steps) {
  DecidedStep& last = steps_.back();
  if (together_) take_steady(steps);
  decided_ += steps;
  last.advance(static_cast<std::uint32_t>(steps));
  if (together_) {
    end_steady(last, decided_);
    return;
  }
  const auto tokens = static_cast<std::uint32_t>(steps);
  for (const DecidedStep::Part& p : last.parts) {
    Request& r = requests_[p.id];
    take_blocks(r, std::uint64_t{r.cached} + tokens);
    r.cached += tokens;
    r.generated += tokens;
    r.last = decided_;
    if (r.generated == r.answer) complete(r);
  }
}

}  // namespace shardline
