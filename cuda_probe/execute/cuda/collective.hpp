// Does a set of messages do exactly what a library's collective does?
#pragma once

#include <optional>
#include <vector>

#include "cuda_probe/execute/cuda/layout.hpp"
#include "models/ir/schedule.hpp"

namespace shardline {

/// One collective of one group. Regions are of members in ascending order of ranks.
struct Collective {
  OpKind kind = OpKind::all_reduce;
  std::vector<int> members;
  std::size_t count = 0;  // as in Transport; row padding counts
  Number number = Number::bf16;
  // all_reduce: in place. reduce_scatter: whole buffer (the members' pieces in order). all_gather: own piece.
  std::vector<Region> send;
  // reduce_scatter: own piece, part of `send`. all_gather: whole buffer; `send` may be a part of it.
  std::vector<Region> receive;
};

/// The collectives that op `op` consists of, one per group that has messages; nothing if its kind is none of
/// the three, or if any group's messages are not exactly those of the collective: every member once to every
/// other, equal and contiguous pieces in order of ranks, each adding where the kind adds.
std::optional<std::vector<Collective>> as_collectives(const Schedule& schedule, const Layout& layout,
                                                      OpIndex op);

}  // namespace shardline
