// What the numbers of a system file may be, and so those of a calibration's machine, which says the same
// again.
#pragma once

namespace shardline {

/// Ends are inclusive, in SI units.
struct NumberRange {
  double least = 0, most = 0;
  bool whole = false;
  double shortest = 0;  // less than this is 0
};

namespace ranges {

// Per device or link, a factor of 100 and more beyond what there is: 1 PB, 1 PB/s, 1 EFLOP/s. And as far
// below what serves a model, 1 MB, 1 MB/s, 1 GFLOP/s: a slip of a unit is no machine.
inline constexpr NumberRange kBytes{1e6, 1e15};  // or bytes per second
inline constexpr NumberRange kPeak{1e9, 1e18};
// None (an ideal machine), or what light needs for 30 cm at least: less is a slip of a unit.
inline constexpr NumberRange kTime{0, 1, false, 1e-9};
inline constexpr NumberRange kFraction{0.01, 1};
inline constexpr NumberRange kTraffic{0, 1e9};  // bytes
inline constexpr NumberRange kPasses{1, 100};
inline constexpr NumberRange kOversubscription{1, 64};
inline constexpr NumberRange kMultiprocessors{1, 4096, true};
inline constexpr NumberRange kSwitches{1, 64, true};
inline constexpr NumberRange kGpusPerNic{1, 64, true};
inline constexpr NumberRange kNodesPerLeaf{1, 4096, true};
inline constexpr NumberRange kFlag{0, 1, true};

}  // namespace ranges

}  // namespace shardline
