// Steps of TensorRT-LLM in which drafts are verified [R20].
#include <algorithm>
#include <string>
#include <utility>

#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

void TrtllmScheduler::require_room_for_drafts() const {
  if (knobs_.max_num_tokens >= rows()) return;
  throw UserError("max_num_tokens " + std::to_string(knobs_.max_num_tokens) + " is less than the " +
                  std::to_string(rows()) + " tokens of a request that a step with " +
                  std::to_string(law_.drafts()) + " drafts verifies");
}

// llmRequest.h, willCompleteNextIteration: who has a step under way, which yields a token at least, and lacks
// no more is in no further one. Without overlap nobody has a step under way here.
void TrtllmScheduler::leave_out_who_ends() {
  for (const Id id : decoding_) {
    Request& r = requests_[id];
    if (r.state == Request::State::generation && r.in_flight > 0 && r.generated + 1 >= r.answer) complete(r);
  }
}

// getNeededBlocksOneStep: of the step's tokens those up to the end of the answer; none, or fewer than none,
// where its sequence is longer already, by tokens that are not verified yet.
std::int64_t TrtllmScheduler::blocks_to_verify(const Request& r) const {
  const std::uint64_t end = std::uint64_t{r.prompt} + r.answer;
  return std::int64_t{blocks_of(std::min<std::uint64_t>(r.kv + rows(), end))} - blocks_of(r.kv);
}

// add_token, so many times.
void TrtllmScheduler::add_tokens(Request& r, std::uint32_t tokens) {
  r.kv += tokens;
  take_blocks(r, r.kv);
}

// A row for each token, whatever is left of the answers.
void TrtllmScheduler::verify_all(DecidedStep& step) {
  for (const Id id : generating_) {
    Request& r = requests_[id];
    if (r.state == Request::State::arrived) take_first(id);
    add_tokens(r, rows());
    step.add_decode(r.cached);
    ++r.in_flight;
    step.parts.push_back({id, true});
  }
}

// rewind_kv_cache: a block that rejected drafts alone had is free, and the next that is taken.
void TrtllmScheduler::rewind(Request& r, std::uint32_t rejected) {
  r.kv -= rejected;
  const std::uint32_t had = r.share.blocks;
  pool_.give_back(r.share, blocks_of(r.kv));
  owed_ += had - r.share.blocks;
}

// A part of a step that has ended, with a token. Of what is accepted beyond the end of the answer the text is
// cut, and the next step's rows begin behind it all.
void TrtllmScheduler::end_verified(Id id, bool verified) {
  Request& r = requests_[id];
  const std::uint32_t yields = verified ? law_.tokens(r.stream, r.verified++, law_.drafts()) : 1;
  --r.in_flight;
  r.generated = std::min(r.answer, r.generated + yields);
  r.done = r.generated == r.answer;
  ended_.push_back(id);
  if (r.share.blocks == 0) {  // paused meanwhile, so that its tokens are a prompt
    r.context = r.prompt + r.generated;
    return;
  }
  if (!r.stored) {
    store(r, r.context);
    r.stored = true;
  }
  if (!verified) return;
  r.cached += yields;
  if (!r.done) rewind(r, rows() - yields);
}

TrtllmScheduler::Ended TrtllmScheduler::finish_verified() {
  const DecidedStep& ended = steps_.front();
  steps_.pop_front();
  ended_.clear();
  for (std::size_t i = 0; i < ended.parts.size(); ++i) {
    if (ended.parts[i].token) end_verified(ended.parts[i].id, i >= ended.batch.prompts.size());
  }
  if (!steps_.empty()) recount(steps_.front());
  leave_done();
  return {ended_};
}

// Of the step that begins: whoever is done has rows in vain, all others' begin where they were accepted.
void TrtllmScheduler::recount(DecidedStep& step) {
  step.batch.decodes = step.batch.longest = 0;
  step.batch.cached = 0;
  for (std::size_t i = step.batch.prompts.size(); i < step.parts.size(); ++i) {
    DecidedStep::Part& p = step.parts[i];
    step.add_decode(requests_[p.id].cached);
    p.token = !requests_[p.id].done;
  }
}

}  // namespace shardline
