// Which steps of SGLang's attention groups may begin prompts, where its prefill delayer holds them back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sim/base/units.hpp"

namespace shardline {

/// Options of `sglang.launch_server`, without "prefill_delayer_".
struct DelayerKnobs {
  bool enabled = false;  // enable_prefill_delayer
  std::uint32_t max_delay_passes = 30;
  double token_usage_low_watermark = 0;    // parts of the KV cache; 0: none
  double queue_min_ratio = 0;              // of those that run; 0: none
  Seconds max_delay = Seconds(5);          // max_delay_ms
  std::uint32_t max_running_requests = 0;  // of a group
};

/// [R40] What a group says of the next step, before it is decided.
struct PromptBid {
  bool prompts = false;       // somebody waits in it for whom a place is free
  double held = 0;            // the part of its KV cache that is in use
  std::uint32_t running = 0;  // requests that decode
  std::uint32_t most = 0;     // prompts that a step of it has had together so far
  std::uint32_t waiting = 0;  // requests
};

/// [R40] The rule of all groups of one replica, which tell each other before every step whether they could
/// compute prompts: while some could and others not, prompts wait, for max_delay_passes - 1 steps at most.
/// Where all could they wait, too, while fewer places are free than a step has ever had prompts (places of
/// the group with most that runs, prompts of the one that has had most), or [with queue_min_ratio] while
/// fewer requests wait than that part of those that run. Where any group that could has less of its cache in
/// use than the low watermark, nothing waits.
///
/// Rule: sgl-project/sglang, python/sglang/srt/managers/prefill_delayer.py,
/// `_negotiate_should_allow_prefill_pure`, a stored version of unknown commit with what pull request 23189
/// (April 2026) added, whose five options 0.5.14 has, too; that its file is the same was not read. A later
/// version bounds the second wait as the first (pull request 32880, July 2026).
class PrefillDelayer {
 public:
  explicit PrefillDelayer(const DelayerKnobs& knobs) : knobs_(knobs) {}

  /// Whether groups may begin prompts in the step that is decided at `now`; asked once for each.
  bool allows(std::span<const PromptBid> groups, Seconds now);
  /// Steps in a row in which prompts waited, up to the one asked for last.
  std::uint32_t delayed() const { return delayed_; }

 private:
  bool waits_for_more(std::span<const PromptBid> groups, Seconds now) const;
  bool allow();
  bool delay(Seconds now);

  DelayerKnobs knobs_;
  std::uint32_t delayed_ = 0;
  Seconds since_;  // the first of those steps
  bool first_ = true;
};

}  // namespace shardline
