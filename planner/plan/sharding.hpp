// Which rank holds which tokens under context parallelism. planner/README.md [C1]-[C3].
#pragma once

#include <functional>
#include <vector>

#include "models/ir/batch.hpp"
#include "models/ir/tokens.hpp"

namespace shardline {

/// The KV cache of some requests, spread over ranks by a history of turns.
class Placement {
 public:
  explicit Placement(int ranks, int requests);

  /// [C1] Appends `fresh` tokens to a request in 2N chunks: rank i takes chunks i and 2N-1-i. Chunks differ
  /// by one token at most; the longer ones go to the ranks that hold least of the request.
  void prefill(int request, long long fresh);
  /// [C20] Deals `fresh` tokens out one by one to the ranks in turn, to those that hold least of the request
  /// first: where nothing but stripes went before, token p of the sequence comes to rank p mod N.
  void stripe(int request, long long fresh);
  /// Appends an interval of `counts[i]` tokens for each rank i, in order.
  void append(int request, const std::vector<long long>& counts);
  /// [C2] Appends `tokens` tokens one by one, each to the rank that holds least of the request (round robin
  /// from there on). Takes as long for a million tokens as for one: they are intervals with a stride.
  void decode(int request, long long tokens);
  /// The caches of some of the requests, in the order given.
  Placement of(const std::vector<std::int32_t>& requests) const;
  /// Lets the tokens of each rank be any as many before length(): an interval per rank, however many turns
  /// there were. New tokens come behind all of them, so what attention to the cache costs stays the same
  /// [C2]; only who computes it needs to know which tokens they are.
  void forget_positions();

  int ranks() const { return ranks_; }
  int requests() const { return static_cast<int>(lengths_.size()); }
  long long length(int request) const { return lengths_[static_cast<std::size_t>(request)]; }
  /// Positions of a request on a rank, ascending within each turn; after forget_positions() their number
  /// counts alone.
  const Tokens& held(int rank, int request) const {
    return held_[static_cast<std::size_t>(request * ranks_ + rank)];
  }
  long long count(int rank, int request) const {
    return counts_[static_cast<std::size_t>(request * ranks_ + rank)];
  }

 private:
  int ranks_;
  std::vector<long long> lengths_;
  std::vector<Tokens> held_;  // [request][rank]
  std::vector<long long> counts_;
};

/// A prefill or decode step spread over ranks, with what the messages of a ring carry.
struct ContextLayout {
  int ranks = 1, requests = 1;
  std::vector<Tokens> fresh;    // per rank: new tokens of all requests, in order; no padding
  std::vector<Tokens> queries;  // the same, each request padded to the longest share of a rank
  std::vector<Tokens> keys;     // cached and new tokens, each request padded to max_i(P_i) + max_i(T_i)
  std::vector<long long> fresh_count, cached_count;  // [rank * requests + request]
  std::vector<long long> query_rows, key_rows;       // per request, padded: the same on all ranks
  std::vector<long long> first_key;  // as fresh_count: row of the request's first new key; empty: [C3]
  long long query_message = 0, key_message = 0;  // their sums: rows of one message
  // Per rank, where results are of other tokens than `fresh` or not wanted; empty: of `fresh`.
  std::vector<Tokens> results;
  // Cached tokens that every rank has beside its keys, of all requests; none where the ranks share them.
  Tokens kept;
};

/// [C3] `before`: placement of the cached tokens, null if they were prefilled in one turn each. Their numbers
/// must be those of `requests`.
ContextLayout context_layout(const std::vector<Segment>& requests, int ranks, const Placement* before);

/// [C3] The same where `deal(placement, request, fresh)` appends the new tokens of a request, and those
/// cached ones of which `before` is null.
ContextLayout dealt_layout(const std::vector<Segment>& requests, int ranks, const Placement* before,
                           const std::function<void(Placement&, int, long long)>& deal);

/// Tokens of each rank where rank i takes the i-th interval of a request: `partition`, or equal parts, the
/// longer ones first.
std::vector<long long> interval_counts(long long fresh, int ranks, const std::vector<long long>& partition);

/// Each rank has one interval of each request's new tokens; cached tokens lie where `before` says.
ContextLayout interval_layout(const std::vector<Segment>& requests, int ranks, const Placement* before,
                              const std::vector<long long>& partition);

/// [C10] Intervals of requests without cached tokens; the keys of a rank are those of its own interval behind
/// room (padding) for those of all ranks before it.
ContextLayout chain_layout(const std::vector<Segment>& requests, int ranks,
                           const std::vector<long long>& partition);

/// Where the cached tokens of a request lie on a rank, as in the keys of the layout.
Tokens cached_tokens(const ContextLayout& layout, int rank, int request);

/// The layout without the cached tokens of request b at positions before `first[b]`: keys that no query of a
/// layer sees. Messages are padded to what is left [C3].
ContextLayout without_cached_before(const ContextLayout& layout, const std::vector<long long>& first);

/// Every rank has the tokens of its whole group of `size` consecutive ranks, in the order of the ranks; the
/// groups' messages are padded to one another as those of ranks are [C3]. `size` divides the ranks.
ContextLayout grouped_layout(const ContextLayout& layout, int size);

/// One new token of each request, the last of its own `contexts[b]` tokens; the i-th longest request is asked
/// on rank (i + offset) mod ranks (Algorithm 4). A rank with a query less repeats the shortest.
ContextLayout decode_layout(const std::vector<long long>& contexts, int ranks, int offset);

}  // namespace shardline
