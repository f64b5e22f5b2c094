// What a group of SGLang says of its prompts before a step is decided [R40].
#include "planner/requests/sglang_scheduler.hpp"

namespace shardline {

DelayerKnobs delayer_of(const SglangKnobs& knobs) {
  return {knobs.enable_prefill_delayer,      knobs.max_delay_passes,
          knobs.token_usage_low_watermark,   knobs.queue_min_ratio,
          Seconds(knobs.max_delay_ms / 1e3), knobs.max_running_requests};
}

// Of a step with prompts, before anybody is in it.
SglangScheduler::Budget SglangScheduler::budget() const {
  Budget b;
  const auto beside = static_cast<std::int64_t>(knobs_.enable_mixed_chunk ? running_.size() + finished_ : 0);
  b.input = std::int64_t{knobs_.max_prefill_tokens} - beside;
  b.chunk = std::int64_t{knobs_.chunked_prefill_size} - beside;
  b.total_offset = static_cast<double>(beside);
  b.current_offset = beside;
  const double ratio = new_token_ratio();
  for (const Id id : running_) {
    const Request& r = requests_[id];
    b.total_offset += clipped(r.answer - r.known()) * ratio;
  }
  return b;
}

// A group has prompts where it comes to ask add_one_req of somebody, which the delayer is asked first in.
PromptBid SglangScheduler::prompt_bid() {
  merge_last();
  PromptBid bid;
  if (waiting_.empty() || (full_ && !windows_)) return bid;
  Budget b = budget();
  if (cut_) add_cut(b);
  bid.prompts = b.begun.size() < places_to_begin();
  bid.held = kv_held();
  bid.running = static_cast<std::uint32_t>(running_.size() + finished_);
  bid.most = most_begun_;
  bid.waiting = static_cast<std::uint32_t>(waiting_.size());
  return bid;
}

}  // namespace shardline
