// Where the tokens of a step's prefills lie: on the context-parallel ranks of a plan, whole or chunk by
// chunk. planner/README.md [C1], [C17].
#pragma once

#include <optional>
#include <vector>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// Prefills of a plan's whole batch, one segment of count 1 each.
std::vector<Segment> batch_requests(const Case& c, const Plan& p);
/// Where the cached tokens of a plan's whole batch lie; null: each was prefilled in one turn.
const Placement* cached_placement(const Case& c, const Plan& p);

/// How a strategy deals the tokens of some prefills out.
struct PrefillLayout {
  ContextLayout dealt;  // requests by their places in `requests`
  std::vector<Segment> requests;
  std::vector<std::int32_t> names;  // what requests are called in a step; empty: by their places

  /// What a layer of this reach has of it: cached tokens that no new one sees are no keys there. `whole`:
  /// every rank keeps all cached tokens, so that none of them has them as keys of its own.
  ContextLayout within(const Reach& reach, bool whole = false) const&;
  ContextLayout within(const Reach& reach, bool whole = false) &&;  // the same, without a copy
};

/// Of all prefills of the step at once, as the plan's strategy deals their tokens out. Requests are numbered
/// behind the decoding ones of all attention groups.
PrefillLayout step_layout(const Case& c, const Plan& p);

/// Of each round of prefills in chunks (the plan's prefill_chunk), of the requests that are left. Under
/// context parallelism the tokens of every chunk are dealt out as those of a turn, and cached ones lie where
/// the chunks before left them. One at a time: a prompt may have a million chunks, whose layouts together
/// take more memory than their schedule, and which the allocator sorts for a tenth of a second once they are
/// given back.
class ChunkLayouts {
 public:
  ChunkLayouts(const Case& c, const Plan& p);  // the plan outlives it

  /// How many there are in all.
  std::size_t count() const { return count_; }
  /// Nothing behind the last.
  std::optional<PrefillLayout> next();

 private:
  const Plan* plan_;
  std::vector<Segment> left_;  // of each request
  Placement held_;             // what the chunks before left; under context parallelism alone
  std::size_t count_;
};

}  // namespace shardline
