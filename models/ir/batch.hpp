// What one step of an engine computes: groups of requests alike. planner/README.md [P1], [C1].
#pragma once

#include <utility>
#include <vector>

namespace shardline {

/// `count` requests alike: of each, `cached` tokens are in the KV cache and `fresh` ones are computed now.
struct Segment {
  long long cached = 0, fresh = 0;
  int count = 1;
  long long length() const { return cached + fresh; }
  bool operator==(const Segment&) const = default;
};

/// In the order in which a scenario names them.
enum class StepKind : unsigned char { decode, prefill, mixed };

/// The requests of one step, in their order. Kernels tell both kinds apart, so a prefill of one token is not
/// a decoding request: that has one new token, and others of its own are known to follow.
struct Batch {
  std::vector<Segment> decode;   // fresh is 1
  std::vector<Segment> prefill;  // whole prompts, or the next chunks of some

  bool decodes() const { return any(decode); }
  bool prefills() const { return any(prefill); }
  StepKind kind() const {
    return !prefills() ? StepKind::decode : decodes() ? StepKind::mixed : StepKind::prefill;
  }
  bool operator==(const Batch&) const = default;

 private:
  static bool any(const std::vector<Segment>& segments) {
    for (const Segment& s : segments) {
      if (s.count > 0) return true;
    }
    return false;
  }
};

inline long long requests_in(const std::vector<Segment>& segments) {
  long long sum = 0;
  for (const Segment& s : segments) sum += s.count;
  return sum;
}

/// One request that decodes the last of its `context` tokens.
inline Batch decode_batch(long long context) { return {{{context - 1, 1}}, {}}; }
/// Prefills alone.
inline Batch prefill_batch(std::vector<Segment> requests) { return {{}, std::move(requests)}; }

}  // namespace shardline
