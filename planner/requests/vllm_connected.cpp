#include "planner/requests/vllm_connected.hpp"

#include <string>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

void require_start(const VllmKnobs& knobs) {
  SL_CHECK(knobs.block_size > 0 && knobs.max_num_batched_tokens > 0 && knobs.max_num_seqs > 0,
           "a step has room for a token of a request");
  SL_CHECK(knobs.watermark >= 0 && knobs.watermark < 1, "a watermark is a part");
  const std::uint32_t needed = knobs.blocks_of(knobs.max_model_len);
  if (needed > knobs.num_gpu_blocks) {
    throw UserError("max_model_len " + std::to_string(knobs.max_model_len) + " needs " +
                    std::to_string(needed) + " blocks of " + std::to_string(knobs.block_size) +
                    " tokens, the KV cache has " + std::to_string(knobs.num_gpu_blocks));
  }
  if (!knobs.enable_chunked_prefill && knobs.max_num_batched_tokens < knobs.max_model_len) {
    throw UserError("without chunked prefill max_num_batched_tokens " +
                    std::to_string(knobs.max_num_batched_tokens) + " must be at least max_model_len " +
                    std::to_string(knobs.max_model_len));
  }
}

bool VllmKnobs::accept(const TraceRequest& request, std::uint32_t text_block, RunPool& pool,
                       Scheduler::Request& of, RunPool::Share& share) const {
  SL_CHECK(request.input > 0 && request.output > 0, "a request asks and is answered");
  SL_CHECK(text_block > 0 && text_block % block_size == 0, "blocks of text are whole blocks");
  if (request.input >= max_model_len) return false;
  of.prompt = static_cast<std::uint32_t>(request.input);
  of.answer =
      static_cast<std::uint32_t>(std::min<std::int64_t>(request.output, max_model_len - request.input));
  if (enable_prefix_caching)
    share.text = pool.add_text({request.blocks, text_block, block_size, of.prompt, of.number});
  return true;
}

VllmConnected::VllmConnected(const VllmKnobs& knobs, PairRole role)
    : knobs_(knobs), role_(role), pool_(knobs.num_gpu_blocks, knobs.enable_prefix_caching) {
  require_start(knobs);
}

bool VllmConnected::come(const TraceRequest& request, std::uint32_t text_block, VllmRequest& r) {
  r.number = added_;
  if (!knobs_.accept(request, text_block, pool_, r, r.share)) return false;
  ++added_;
  changed();
  r.remote = role_ == PairRole::decodes && !request.local_prefill;
  return true;
}

void VllmConnected::take_reads(std::vector<Read>& out) {
  out.insert(out.end(), reads_.begin(), reads_.end());
  reads_.clear();
}

void VllmConnected::take_failed(std::vector<Failed>& out) {
  out.insert(out.end(), failed_.begin(), failed_.end());
  failed_.clear();
}

bool VllmConnected::read_fails(Id id) {
  held(id).fails = true;
  told_.push_back(id);
  return knobs_.recompute_failed_loads;
}

bool VllmConnected::schedule() {
  SL_CHECK(decided() < depth(), "few enough steps are decided");
  if (decide(false)) return true;
  // An engine of a pair without a step to compute asks its connector at once, and looks again: who lost all
  // of its blocks, those for drafts among them, may begin anew without these.
  if (role_ == PairRole::none || decided() > 0 || (told_.empty() && kept_)) return false;
  notice(told_, true);
  return decide(false);
}

// [R19] Whether there is something in the step or not, it carries what its worker says at its end.
void VllmConnected::schedule_or_dummy() {
  SL_CHECK(decided() < depth(), "few enough steps are decided");
  decide(true);
}

// All blocks of the prompt before its first byte comes: nobody is read for who has no room. With drafts, too:
// there is no room for those before a request has computed something (`effective_lookahead_tokens`).
bool VllmConnected::begin_read(Id id, const RunPool::Found& found) {
  VllmRequest& r = held(id);
  const std::uint32_t needed = knobs_.blocks_of(r.prompt);
  if (std::uint64_t{needed} - found.blocks + found.idle + watermark() > pool_.available()) return false;
  pool_.hold_found(r.share);
  r.computed = r.found = found.blocks * knobs_.block_size;
  r.began = r.reading = true;
  r.remote = false;
  const bool fits = pool_.grow(r.share, needed);
  SL_CHECK(fits, "what fits is taken");
  ++reading_;
  reads_.push_back({id, r.number, r.prompt - r.computed});
  return true;
}

std::uint32_t VllmConnected::begin_computing(VllmRequest& r, const RunPool::Found& found, std::uint32_t known,
                                             std::uint32_t budget) {
  const std::uint32_t cached = found.blocks * knobs_.block_size;
  const std::uint32_t part = knobs_.part_of(known - cached);
  if (!knobs_.enable_chunked_prefill && part > budget) return 0;
  const std::uint32_t tokens = std::min(part, budget);
  const std::uint32_t asked = knobs_.scheduler_reserve_full_isl ? known : cached + tokens;
  // Blocks that are found and idle are in the free queue, too.
  if (std::uint64_t{knobs_.blocks_of(asked)} - found.blocks + found.idle + watermark() > pool_.available())
    return 0;
  pool_.hold_found(r.share);
  r.computed = cached;
  if (!r.began) r.found = cached;
  r.began = true;
  const bool fits = pool_.grow(r.share, knobs_.blocks_of(cached + tokens));
  SL_CHECK(fits, "what fits as a whole fits in parts");
  return tokens;
}

std::uint32_t VllmConnected::go_on(VllmRequest& r, std::uint32_t lookahead, std::uint32_t budget) {
  std::uint32_t tokens = 1;
  if (r.fails) {  // [R15] what was found here is valid, and the rest is computed in the blocks that are held
    tokens = knobs_.part_of(r.prompt - r.computed);
    if (!knobs_.enable_chunked_prefill && tokens > budget) return 0;
    tokens = std::min(tokens, budget);
  } else {  // the last token of the prompt is computed here: its logits are asked for
    r.computed = r.prompt - 1;
    if (knobs_.enable_prefix_caching) pool_.fill(r.share, r.computed / knobs_.block_size);
  }
  const std::uint64_t room = std::uint64_t{r.computed} + tokens + (r.computed > 0 ? lookahead : 0);
  const std::uint32_t needed = knobs_.blocks_of(std::min<std::uint64_t>(room, knobs_.max_model_len));
  const std::uint32_t more = needed > r.share.blocks ? needed - r.share.blocks : 0;
  if (std::uint64_t{more} + watermark() > pool_.available()) return 0;
  if (more > 0) pool_.grow(r.share, needed);
  r.reading = false;
  --reading_;
  return tokens;
}

void VllmConnected::lost_alone(const VllmRequest& r) {
  if (lost_ == r.number && lost_at_ == changes_) circles_at_ = changes_;
  lost_ = r.number;
  lost_at_ = changes_;
}

void VllmConnected::notice(Told& told, bool at_once) {
  changes_ += told.size();
  for (const std::uint64_t it : told) {
    if (role_ == PairRole::decodes) {
      const Id id = static_cast<Id>(it);
      if (held(id).fails)
        fail(id, at_once);
      else
        held(id).read = true;
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
void VllmConnected::fail(Id id, bool at_once) {
  VllmRequest& r = held(id);
  if (knobs_.recompute_failed_loads && r.found > 0) {
    r.read = true;
    return;
  }
  pool_.release(r.share);
  --reading_;
  if (knobs_.recompute_failed_loads) {
    r.reading = r.fails = r.began = false;
    return;
  }
  failed_.push_back({r.number, at_once});
  if (knobs_.enable_prefix_caching) pool_.drop_text(r.share.text);
  drop(id);
}

void VllmConnected::let_go(VllmRequest& r) {
  if (role_ == PairRole::prefills) {
    keep(r);
    return;
  }
  pool_.release(r.share);
  if (knobs_.enable_prefix_caching) pool_.drop_text(r.share.text);
}

void VllmConnected::keep(VllmRequest& r) {
  // Then the engine of the other pool stops at an assertion (update_state_after_alloc).
  if (r.share.blocks == 0)
    throw PairStops(
        "a prompt lost its blocks while its token was under way, so that nothing is left to read and vLLM's "
        "connector fails: give the replicas that prefill more blocks, or long_prefill_token_threshold 0");
  kept_blocks_.emplace(r.number, std::exchange(r.share, {}));
}

}  // namespace shardline
