// Both variants of ring attention timed by events, on many requests at once.
#pragma once

#include "planner/scenario/scenario.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/thresholds.hpp"

namespace shardline {

/// Of `ranks` context-parallel ranks of `tpa` GPUs each.
Plan ring_plan(StrategyId id, int ranks, int tpa);

/// Prefills of one request each on `ranks` context-parallel ranks of `tpa` GPUs. `c` is a prefill case and
/// must outlive the timer; its requests are ignored. Results do not depend on the threads (0: all cores).
RingTimer ring_timer(const Case& c, int tpa, int threads);

/// What the time of both variants rests on, over up to `samples` of the requests, evenly picked.
Shares ring_shares(const Case& c, int ranks, int tpa, std::span<const RingPoint> requests, int samples,
                   int threads);

/// [P12] How far the times of both variants of one request may be off.
struct RingErrors {
  ErrorTerms pass_kv, pass_q;
};
RingErrors ring_errors(const Case& c, int ranks, int tpa, const TokenSplit& request);

/// The lookup table of one ring size, and requests that it was not derived from, timed.
struct DerivedTable {
  RefinedTable refined;
  std::vector<RingPoint> tests;  // off the grid and none of refined.points
};
DerivedTable derive_table(const ThresholdGrid& grid, int ranks, const RingTimer& time);

/// What the paper's formulas see of a case: one rank is `tpa` GPUs, messages cross the network unless rings
/// of up to `ranks` ranks fit a node. `achieved`: sustained attention and achieved message bandwidth instead
/// of peaks.
RingSetting ring_setting(const Case& c, int ranks, int tpa, bool achieved);

}  // namespace shardline
