#include "hardware/cost/measured_cells.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

int cell_of(double coordinate) { return static_cast<int>(std::floor(coordinate + 0.5)); }

// Of `count` cells from `first` on, the one of a coordinate or beside it; none: it is further off. A
// coordinate between cells may round to one beyond the last.
std::optional<std::size_t> place(double coordinate, int first, int count) {
  const int cell = cell_of(coordinate) - first;
  if (cell < -1 || cell > count) return std::nullopt;
  return static_cast<std::size_t>(std::clamp(cell, 0, count - 1));
}

// Spreads each occupied cell to the ones before and after it along an axis of `count` cells, `stride` apart.
void spread(std::vector<std::uint8_t>& cells, std::size_t count, std::size_t stride) {
  const std::vector<std::uint8_t> old = cells;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t at = i / stride % count;
    if (at > 0 && old[i - stride] != 0) cells[i] = 1;
    if (at + 1 < count && old[i + stride] != 0) cells[i] = 1;
  }
}

}  // namespace

MeasuredCells::MeasuredCells(std::vector<int> first, std::vector<int> count, std::vector<int> runs)
    : first_(std::move(first)), count_(std::move(count)), runs_(std::move(runs)) {
  bool occupied = false;
  for (const int run : runs_) {
    near_.insert(near_.end(), static_cast<std::size_t>(run), occupied ? 1 : 0);
    occupied = !occupied;
  }
  std::size_t stride = 1;
  for (std::size_t a = count_.size(); a-- > 0;) {
    spread(near_, static_cast<std::size_t>(count_[a]), stride);
    stride *= static_cast<std::size_t>(count_[a]);
  }
  SL_CHECK(near_.size() == stride, "runs of cells fill the grid");
}

MeasuredCells MeasuredCells::of(std::size_t axes, std::span<const double> coordinates) {
  SL_CHECK(axes > 0 && axes <= kMostAxes && !coordinates.empty(), "cells are of rows with coordinates");
  std::vector<int> first(axes), count(axes);
  for (std::size_t a = 0; a < axes; ++a) {
    int low = cell_of(coordinates[a]), high = low;
    for (std::size_t i = a; i < coordinates.size(); i += axes) {
      low = std::min(low, cell_of(coordinates[i]));
      high = std::max(high, cell_of(coordinates[i]));
    }
    first[a] = low;
    count[a] = high - low + 1;
  }
  std::size_t all = 1;
  for (const int n : count) all *= static_cast<std::size_t>(n);
  if (all > kMostCells)
    throw UserError(
        fmt::format("its rows span {} doublings of shapes: {} places, of which a fit keeps {} at "
                    "most; fit parts of the table",
                    fmt::join(count, " x "), all, kMostCells));
  std::vector<std::uint8_t> occupied(all);
  for (std::size_t row = 0; row < coordinates.size(); row += axes) {
    std::size_t index = 0;
    for (std::size_t a = 0; a < axes; ++a)
      index = index * static_cast<std::size_t>(count[a]) +
              static_cast<std::size_t>(cell_of(coordinates[row + a]) - first[a]);
    occupied[index] = 1;
  }
  std::vector<int> runs{0};
  std::uint8_t now = 0;
  for (const std::uint8_t cell : occupied) {
    if (cell != now) runs.push_back(0);
    now = cell;
    ++runs.back();
  }
  return {std::move(first), std::move(count), std::move(runs)};
}

MeasuredCells::Line MeasuredCells::line(std::size_t axis, std::span<const double> coordinates) const {
  Line out;
  std::size_t index = 0, stride = 1;
  for (std::size_t a = count_.size(); a-- > 0; stride *= static_cast<std::size_t>(count_[a])) {
    if (a == axis) {
      out.stride_ = stride;
      continue;
    }
    const std::optional<std::size_t> cell = place(coordinates[a], first_[a], count_[a]);
    if (!cell) return {};
    index += *cell * stride;
  }
  out.cells_ = near_.data() + index;
  out.first_ = first_[axis];
  out.count_ = count_[axis];
  return out;
}

bool MeasuredCells::Line::near(double coordinate) const {
  if (!cells_) return false;
  const std::optional<std::size_t> cell = place(coordinate, first_, count_);
  return cell && cells_[*cell * stride_] != 0;
}

bool MeasuredCells::near(std::span<const double> coordinates) const {
  return line(0, coordinates).near(coordinates[0]);
}

}  // namespace shardline
