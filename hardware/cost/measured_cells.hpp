// Which shapes of a kernel were measured: not a range per axis, whose corners no row may be near, but the
// occupied cells of a grid. hardware/README.md, "What a price rests on".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hardware/cost/forms/form.hpp"

namespace shardline {

/// Cells of one doubling per axis of a form, each around a whole log2; a cell is occupied where some measured
/// row lies in it.
class MeasuredCells {
 public:
  MeasuredCells() = default;  // nothing is known
  /// `first`: the lowest cell of each axis; `count`: cells per axis; `runs`: lengths of empty and occupied
  /// runs in turn, empty first, over all cells with the last axis fastest. Their sum is the product of
  /// `count`.
  MeasuredCells(std::vector<int> first, std::vector<int> count, std::vector<int> runs);
  /// Of rows: `axes` coordinates (log2) for each.
  static MeasuredCells of(std::size_t axes, std::span<const double> coordinates);

  bool empty() const { return near_.empty(); }
  /// Whether some measured row lies in the cell of these coordinates or in one that touches it: less than two
  /// doublings away on every axis, and surely where one is within half a doubling.
  bool near(std::span<const double> coordinates) const;

  /// Cells along one axis that other coordinates lie on: near() for many coordinates on that axis.
  class Line {
   public:
    bool near(double coordinate) const;

   private:
    friend class MeasuredCells;
    const std::uint8_t* cells_ = nullptr;  // null: none is near
    std::size_t stride_ = 0;
    int first_ = 0, count_ = 0;
  };
  /// coordinates[axis] is not looked at. Of no object that is empty(), and while this one lives.
  Line line(std::size_t axis, std::span<const double> coordinates) const;

  const std::vector<int>& first() const { return first_; }
  const std::vector<int>& count() const { return count_; }
  const std::vector<int>& runs() const { return runs_; }

 private:
  std::vector<int> first_, count_, runs_;
  std::vector<std::uint8_t> near_;  // occupied, or beside one that is
};

/// More than any table of measurements has.
inline constexpr std::size_t kMostCells = 200'000;

}  // namespace shardline
