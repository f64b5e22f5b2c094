// A conversation under context parallelism: every turn prefills its new tokens against the cache of all turns
// before, then decodes its answer.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planner/scenario/scenario.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/told_apart.hpp"

namespace shardline {

struct TurnTime {
  long long cached = 0, fresh = 0, output = 0;  // tokens
  Seconds pass_kv, pass_q;                      // TTFT of both variants
  bool kv_chosen = true;                        // the faster one; a tie goes to pass-KV
  Seconds first_ttl, last_ttl;  // of the first and the last token of the answer; 0 without one
  Seconds answer;               // TTFT and all tokens of the answer
  Shares shares;                // of the turn's whole time
  // How far times may be off, in parts of each [P12]: of both variants' TTFT, of the last TTL, of the turn.
  ErrorTerms kv_errors, q_errors, ttl_errors, errors;
  Bytes kv_per_gpu;                     // when the answer is complete
  long long fullest = 0, emptiest = 0;  // cached tokens per context-parallel rank then

  Seconds ttft() const { return kv_chosen ? pass_kv : pass_q; }
  const ErrorTerms& ttft_errors() const { return kv_chosen ? kv_errors : q_errors; }
  /// Whether the variant that was chosen is ahead by more than prices may be off [P13].
  bool variants_told_apart() const { return told_apart(pass_kv / pass_q, ratio_band(kv_errors, q_errors)); }
  /// Part of the turn's tokens that the cache already held.
  double hit_rate() const { return static_cast<double>(cached) / static_cast<double>(cached + fresh); }
};

/// Prefill by the faster ring variant, decode by batched ring pass-Q, one request, with the cache where the
/// turns before left it. Time of an answer: its tokens' TTL, which is linear in the context between first
/// and last. Throws UserError if a turn does not fit the GPUs' memory.
/// `progress` in turns, may throw to stop.
std::vector<TurnTime> converse(
    const Study& study, const std::function<void(std::uint64_t done, std::uint64_t total)>& progress = {});

/// Sums of TTFTs over a conversation: with the faster variant at every turn, and with one variant throughout.
struct TtftTotals {
  Seconds chosen, pass_kv, pass_q;
};
TtftTotals ttft_totals(const std::vector<TurnTime>& turns);

}  // namespace shardline
