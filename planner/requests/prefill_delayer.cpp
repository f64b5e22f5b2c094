#include "planner/requests/prefill_delayer.hpp"

#include <algorithm>

namespace shardline {

bool PrefillDelayer::allow() {
  delayed_ = 0;
  return true;
}

bool PrefillDelayer::delay(Seconds now) {
  if (delayed_++ == 0) since_ = now;
  return false;
}

// slot_condition and queue_condition.
bool PrefillDelayer::waits_for_more(std::span<const PromptBid> groups, Seconds now) const {
  std::uint32_t running = 0, most = 0, waiting = 0;
  for (const PromptBid& b : groups) {
    running = std::max(running, b.running);
    most = std::max(most, b.most);
    waiting = std::max(waiting, b.waiting);
  }
  const bool few_places = std::int64_t{knobs_.max_running_requests} - running < most;
  if (few_places || knobs_.queue_min_ratio <= 0 || running == 0) return few_places;
  const auto enough = std::min(static_cast<std::uint32_t>(running * knobs_.queue_min_ratio), most);
  return waiting < enough && (delayed_ == 0 || now - since_ < knobs_.max_delay);
}

bool PrefillDelayer::allows(std::span<const PromptBid> groups, Seconds now) {
  const auto could = [](const PromptBid& b) { return b.prompts; };
  const auto idles = [&](const PromptBid& b) {
    return b.prompts && b.held < knobs_.token_usage_low_watermark;
  };
  if (std::none_of(groups.begin(), groups.end(), could)) return allow();
  if (std::any_of(groups.begin(), groups.end(), idles)) return allow();
  if (!std::all_of(groups.begin(), groups.end(), could))
    return delayed_ + 1 < knobs_.max_delay_passes ? delay(now) : allow();
  if (!waits_for_more(groups, now)) return allow();
  // The first time that it would wait so it does not (skip_first_delayer).
  if (first_) {
    first_ = false;
    return allow();
  }
  return delay(now);
}

}  // namespace shardline
