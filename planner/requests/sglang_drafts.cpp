// Steps of SGLang in which drafts are verified [R17].
#include <algorithm>
#include <string>

#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// Tokens that its pages are for.
std::uint32_t SglangScheduler::held_tokens(const Request& r) const {
  return std::max(r.computed, r.allocated);
}

// eagle_info_v2.py, prepare_for_decode: room for what two steps may accept behind what is known, as the one
// under way is not. max(topk x steps, draft tokens) of a chain of k is 1 + k.
std::uint32_t SglangScheduler::asked_tokens(const Request& r) const {
  return std::max(held_tokens(r), r.computed + 2 * (1 + law_.drafts()));
}

std::uint64_t SglangScheduler::pages_to_verify(std::span<const Id> ids) const {
  std::uint64_t pages = 0;
  for (const Id id : ids)
    pages += pages_of(asked_tokens(requests_[id])) - pages_of(held_tokens(requests_[id]));
  return pages;
}

void SglangScheduler::verify_all(DecidedStep& step) {
  // alloc_token_slots, or a page more of each by alloc_paged_token_slots_extend.
  std::uint64_t tokens = 0;
  for (const Id id : running_) tokens += asked_tokens(requests_[id]) - held_tokens(requests_[id]);
  if (knobs_.page_size > 1) tokens += running_.size() * knobs_.page_size;
  evict_for(tokens);
  const std::uint64_t pages = pages_to_verify(running_);
  if (pages > free_ && role_ == PairRole::decodes) {
    throw PairStops(
        "SGLang aborts a request: the last one that decodes has no room for its drafts, as all else is kept "
        "for prompts that come (raise num_reserved_decode_tokens or max_total_tokens)");
  }
  if (pages > free_) {
    throw UserError("SGLang ends with an error: no room for the drafts of " +
                    std::to_string(running_.size()) + " requests that decode");
  }
  free_ -= pages;
  for (const Id id : running_) {
    Request& r = requests_[id];
    r.allocated = asked_tokens(r);
    step.add_decode(r.computed);
    // Of who has its only token in the step under way this is a row in vain.
    step.parts.push_back({id, r.generated < r.answer});
  }
}

// What is accepted beyond the end of the answer is cut from it, not from the cache.
void SglangScheduler::end_verified(Request& r) const {
  const std::uint32_t yields = law_.tokens(r.stream, r.verified++, law_.drafts());
  r.computed += yields;
  r.generated = std::min(r.answer, r.generated + yields);
}

// Decided without knowledge of its end, the next step has a row of it in vain.
void SglangScheduler::leave_next_step(Id id) {
  if (steps_.empty()) return;
  for (DecidedStep::Part& p : steps_.front().parts) {
    if (p.id == id) p.token = false;
  }
}

// Its rows begin where those of the step that has just ended were accepted.
void SglangScheduler::recount_next_step() {
  if (steps_.empty() || !steps_.front().batch.prompts.empty()) return;
  DecidedStep& step = steps_.front();
  step.batch.decodes = step.batch.longest = 0;
  step.batch.cached = 0;
  for (const DecidedStep::Part& p : step.parts) step.add_decode(requests_[p.id].computed);
}

}  // namespace shardline
