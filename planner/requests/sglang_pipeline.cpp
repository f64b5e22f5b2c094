// Micro-batches of SGLang that take turns in the stages of a pipeline [R37].
#include <algorithm>
#include <string>
#include <utility>

#include "planner/requests/sglang_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// managers/scheduler.py: pp_max_micro_batch_size = max(max_running_requests // pp_size, 1).
std::uint32_t running_of_batch(const SglangKnobs& knobs) {
  if (knobs.pp_size == 1) return knobs.max_running_requests;
  if (knobs.pp_max_micro_batch_size > 0) return knobs.pp_max_micro_batch_size;
  return std::max(1U, knobs.max_running_requests / knobs.pp_size);
}

void SglangScheduler::begin_stages() {
  // server_args.py, check_server_args: "Pipeline parallelism is not compatible with overlap schedule,
  // speculative decoding, mixed chunked prefill"; the first of these it turns off itself.
  if (knobs_.enable_mixed_chunk)
    throw UserError("enable_mixed_chunk: SGLang does not start with it where there are stages");
  if (drafts()) throw UserError("SGLang does not start with drafts where there are stages");
  if (role_ != PairRole::none) throw UserError("stages in pairs of pools are not played yet");
  if (windows_) throw UserError("windows in stages are not played yet");
  knobs_.disable_overlap_schedule = true;
  batches_.resize(knobs_.pp_size + knobs_.pp_async_batch_depth);
  steps_ = DecidedRing<std::vector<DecidedStep>>(std::vector<DecidedStep>(batches_.size()));
}

// scheduler_pp_mixin.py, event_loop_pp: in iteration i the loop decides batch i and then waits for the tokens
// of batch i + 1 - n, n micro-batches going round. That comes before what it launches where the last stage
// buffers tokens (pp_async_batch_depth), so that the first stage does not compute without them, and behind
// what the stream has to compute and pass on in iteration i - 1 in any case.
StageOrder SglangScheduler::stage_order() const {
  SL_CHECK(staged(), "only engines with stages pass steps on");
  const std::size_t around = batches_.size(), buffered = knobs_.pp_async_batch_depth;
  return {around - (buffered > 0 ? 1 : 0), buffered, around - 2};
}

// Of who prefills those that are not read yet hold places, too (managers/scheduler.py,
// _get_new_batch_prefill_raw: "prealloc queue and transfer queue can also take memory"). In stages those of
// other micro-batches do (get_num_allocatable_reqs).
std::size_t SglangScheduler::places_to_begin() const {
  const auto left = [](std::size_t of, std::size_t taken) { return of > taken ? of - taken : 0; };
  if (role_ == PairRole::prefills) return left(knobs_.max_running_requests, slots_);
  const std::size_t places = left(running_of_batch(knobs_), running_.size() + finished_);
  return staged() ? std::min(places, left(knobs_.max_running_requests, slots_)) : places;
}

void SglangScheduler::exchange(MicroBatch& with) {
  std::swap(running_, with.running);
  std::swap(last_, with.last);
  std::swap(finished_, with.finished);
  std::swap(last_cut_, with.last_cut);
  std::swap(full_, with.full);
  std::swap(last_prompts_, with.last_prompts);
  std::swap(last_fewer_, with.last_fewer);
}

// Whether the micro-batch whose turn it is computes something. A round in which none does is idle (on_idle).
bool SglangScheduler::take_turn() {
  MicroBatch& batch = batches_[turn_];
  if (turn_ == 0) round_idles_ = true;
  exchange(batch);
  merge_last();
  const bool any = schedule_prompts() || schedule_decodes();
  exchange(batch);
  if (any) round_idles_ = false;
  turn_ = (turn_ + 1) % batches_.size();
  if (turn_ == 0 && round_idles_) {
    ratio_from_ = first_ratio();
    ratio_steps_ = 0;
  }
  return any;
}

// A turn that nobody takes has its place among those under way, as long as there are any: the loop waits for
// the first of these. Else it goes round until somebody has something to do, if anybody has. A micro-batch
// looks for prompts one turn after it has found that somebody of its own is done: behind the last batch there
// is a turn of nobody's, at whose end it is asked again.
bool SglangScheduler::schedule_turn() {
  for (std::size_t tries = 0; tries < batches_.size(); ++tries) {
    const bool any = take_turn();
    if (!any && busy_ == 0) continue;
    if (any)
      ++busy_;
    else
      steps_.add();
    return true;
  }
  return false;
}

// Behind a batch all turns are taken, by nobody too: it is of the micro-batch whose turn is next.
SglangScheduler::Ended SglangScheduler::end_turn() {
  if (!steps_.front().batch.empty()) {
    SL_CHECK(steps_.size() == steps_.most(), "the engine decides as far ahead as it can");
    --busy_;
  }
  MicroBatch& batch = batches_[turn_];
  exchange(batch);
  const Ended out = end_front(1);
  exchange(batch);
  return out;
}

}  // namespace shardline
