// What TensorRT-LLM's servers of a pair do beside their scheduler [R21].
#include <algorithm>
#include <utility>

#include "planner/requests/trtllm_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

// Ends of hand-offs are looked for once in each iteration of the loop, also where it has nothing to compute
// (py_executor.py, _check_disagg_ctx_cache_transfer_status and _check_disagg_gen_transfer_status).
void TrtllmScheduler::has_read(Id id) { told_.push_back(id); }

void TrtllmScheduler::was_read(std::uint64_t number, bool at_once) {
  SL_CHECK(kept_.contains(number), "who was read was computed");
  told_.push_back(number);
  if (at_once) notice();
}

void TrtllmScheduler::notice() {
  for (const std::uint64_t it : told_) {
    if (role_ == PairRole::prefills) {
      const auto kept = kept_.find(it);
      pool_.release(kept->second);
      kept_.erase(kept);
      continue;
    }
    const auto id = static_cast<Id>(it);
    Request& r = requests_[id];
    SL_CHECK(r.state == Request::State::comes, "who has read began to");
    r.state = Request::State::arrived;
    std::erase(coming_, id);
    put(decoding_, id);
    coming_blocks_ -= blocks_of(r.prompt);
    ++started_;
    if (r.answer > 1) continue;
    // All of its answer came with its cache.
    take_first(id);
    r.done = true;
    left_early_ = true;
    leave(id);
  }
  told_.clear();
}

// The server that prefills: blocks of what is done are held until they were read, beside what finds them.
void TrtllmScheduler::keep(Request& r) {
  if (r.share.blocks == 0)
    throw PairStops(
        "a prompt lost its blocks while its token was under way, so that nothing is left to read: give the "
        "replicas that prefill more blocks, or capacity_scheduler_policy GUARANTEED_NO_EVICT");
  kept_.emplace(r.number, std::move(r.share));
}

// The server that decodes. Of those that fit the cache as many begin to read as the window has room for, in
// order (disaggregation/orchestration/admission.py, select).
void TrtllmScheduler::begin_reads() {
  const std::uint64_t window = blocks_of(knobs_.max_tokens_in_buffer);
  for (const Id id : reading_) {
    const std::uint64_t with = coming_blocks_ + blocks_of(requests_[id].prompt);
    if (window > 0 && with > window && !coming_.empty()) return;
    begin_read(id);
  }
}

// All blocks of the prompt (resource_manager.py, prepare_resources), those of text that is found here among
// them: they are not read, but where the other server has nothing to find the same by (cacheFormatter.cpp,
// getBlockRangeForReceiving).
void TrtllmScheduler::begin_read(Id id) {
  Request& r = requests_[id];
  wait_no_more(id);
  take_text(id, r.prompt);
  r.drafts = law_.drafts();  // which come with its cache
  r.cached = r.prompt;
  r.stored = true;  // it is found when it leaves
  r.state = Request::State::comes;
  coming_.push_back(id);
  owed_ += owes(r);
  coming_blocks_ += blocks_of(r.prompt);
  reads_.push_back({id, r.number, knobs_.reads_found ? r.prompt : r.prompt - r.found});
}

// The token that came with its cache is the client's before the step with its first row begins
// (py_executor.py, _prepare_disagg_gen_transmission_complete and _handle_first_token_response).
void TrtllmScheduler::take_first(Id id) {
  Request& r = requests_[id];
  r.state = Request::State::generation;
  r.generated = 1;
  firsts_.push_back(id);
}

void TrtllmScheduler::take_reads(std::vector<Read>& out) {
  out.insert(out.end(), reads_.begin(), reads_.end());
  reads_.clear();
}

void TrtllmScheduler::take_firsts(std::vector<Id>& out) {
  out.insert(out.end(), firsts_.begin(), firsts_.end());
  firsts_.clear();
}

}  // namespace shardline
