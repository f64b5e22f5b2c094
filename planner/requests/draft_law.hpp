// How many tokens a step yields of a request whose drafts it verifies: drawn, the same for whoever asks.
#pragma once

#include <cstdint>
#include <vector>

namespace shardline {

/// [R16] The law of accepted drafts [P28] and the streams that answers are drawn from. What the n-th step
/// yields of a request depends on the seed, the request's number (TraceRequest::number) and n alone: not on
/// the engine that has it, on who else is there or on the order of play.
class DraftLaw {
 public:
  /// No drafts: a step yields one token.
  DraftLaw() = default;
  /// `survival`: the probability that the first j drafts of a step are accepted, j from 1 on, never rising
  /// (checked).
  DraftLaw(std::vector<double> survival, std::uint64_t seed);

  /// Drafts of each request that a step verifies beside its new token.
  std::uint32_t drafts() const { return static_cast<std::uint32_t>(survival_.size()); }
  std::uint64_t seed() const { return seed_; }
  /// Tokens that the n-th step of a request yields where it verifies so many drafts, at most drafts(): 1 to
  /// 1 + verified. Fewer drafts are the first ones of all: what they yield is what all do, cut.
  std::uint32_t tokens(std::uint64_t request, std::uint32_t n, std::uint32_t verified) const;

 private:
  std::vector<double> survival_;
  std::uint64_t seed_ = 0, key_ = 0;
};

}  // namespace shardline
