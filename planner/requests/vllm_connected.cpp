// What NixlConnector adds to vLLM's scheduler [R12].
#include <utility>

#include "planner/requests/vllm_scheduler.hpp"
#include "sim/base/error.hpp"

namespace shardline {

void VllmScheduler::take_reads(std::vector<Read>& out) {
  out.insert(out.end(), reads_.begin(), reads_.end());
  reads_.clear();
}

void VllmScheduler::take_failed(std::vector<Failed>& out) {
  out.insert(out.end(), failed_.begin(), failed_.end());
  failed_.clear();
}

bool VllmScheduler::schedule() {
  SL_CHECK(count_ < depth(), "few enough steps are decided");
  if (decide()) return true;
  // An engine without a step to compute asks its connector at once.
  if (count_ > 0 || told_.empty()) return false;
  notice(told_, true);
  return decide();
}

// [R19] Whether there is something in the step or not, it carries what its worker says at its end.
void VllmScheduler::schedule_or_dummy() {
  SL_CHECK(count_ < depth(), "few enough steps are decided");
  decide(true);
}

// All blocks of the prompt before its first byte comes: nobody is read for who has no room.
bool VllmScheduler::read(Id id, const RunPool::Found& found) {
  Request& r = requests_[id];
  if (std::uint64_t{blocks_of(r.prompt)} - found.blocks + found.idle + watermark() > pool_.available())
    return false;
  pool_.hold_found(r.share);
  r.computed = r.found = found.blocks * knobs_.block_size;
  r.began = true;
  r.remote = false;
  const bool fits = grow(r, r.prompt);
  SL_CHECK(fits, "what fits is taken");
  r.state = Request::State::reading;
  ++reading_;
  reads_.push_back({id, r.number, r.prompt - r.computed});
  return true;
}

// [R15] Nothing was read: what was found here is valid, and the rest is computed in the blocks that are held.
bool VllmScheduler::go_on_alone(Step& step, Id id, std::uint32_t& budget) {
  Request& r = requests_[id];
  const std::uint32_t tokens = knobs_.part_of(r.prompt - r.computed);
  if (!knobs_.enable_chunked_prefill && tokens > budget) return false;
  if (watermark() > pool_.available()) return false;
  --reading_;
  run(step, id, std::min(tokens, budget), budget);
  return true;
}

// The last token of the prompt is computed here: its logits are asked for.
bool VllmScheduler::go_on_after_read(Step& step, Id id, std::uint32_t& budget) {
  Request& r = requests_[id];
  if (r.fails) return go_on_alone(step, id, budget);
  r.computed = r.prompt - 1;
  fill(r);
  if (watermark() > pool_.available()) return false;
  --reading_;
  run(step, id, 1, budget);
  return true;
}

// What a worker says: who has read, or was.
void VllmScheduler::notice(std::vector<std::uint64_t>& told, bool at_once) {
  for (const std::uint64_t it : told) {
    if (role_ == PairRole::decodes) {
      const Id id = static_cast<Id>(it);
      if (requests_[id].fails)
        fail(id, at_once);
      else
        requests_[id].read = true;
      continue;
    }
    const auto kept = kept_blocks_.find(it);
    SL_CHECK(kept != kept_blocks_.end(), "who was read is done, and was not read before");
    pool_.release(kept->second);
    if (knobs_.enable_prefix_caching) pool_.drop_text(kept->second.text);
    kept_blocks_.erase(kept);
  }
  told.clear();
}

// [R15] It ends with an error, or is computed here: anew where nothing was found.
void VllmScheduler::fail(Id id, bool at_once) {
  Request& r = requests_[id];
  if (knobs_.recompute_failed_loads && r.found > 0) {
    r.read = true;
    return;
  }
  pool_.release(r.share);
  --reading_;
  if (knobs_.recompute_failed_loads) {
    r.state = Request::State::waiting;
    r.fails = r.began = false;
    return;
  }
  failed_.push_back({r.number, at_once});
  if (knobs_.enable_prefix_caching) pool_.drop_text(r.share.text);
  std::erase(waiting_, id);
  requests_.forget(id);
}

void VllmScheduler::keep(Request& r) {
  // Then the engine of the other pool stops at an assertion (update_state_after_alloc).
  if (r.share.blocks == 0)
    throw PairStops(
        "a prompt lost its blocks while its token was under way, so that nothing is left to read and vLLM's "
        "connector fails: give the replicas that prefill more blocks, or long_prefill_token_threshold 0");
  kept_blocks_.emplace(r.number, std::exchange(r.share, {}));
}

}  // namespace shardline
