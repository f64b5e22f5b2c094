// Times of steps that decode, between lowerings. planner/requests/README.md [R6].
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "planner/requests/step_times.hpp"

namespace shardline {

/// [R6] What a step that decodes takes of something that a lowering prices: it follows from how many requests
/// do, what they have cached together and in the longest. Between lowerings at knots of the mean and of what
/// the longest has beyond it, it is interpolated; knots are set closer until lowerings between them agree to
/// kMostError. [R39] What a step draws is interpolated between the same knots.
class StepTable {
 public:
  /// Largest relative difference between a line and a lowering at the five points of a cell that are looked
  /// at (its middle and those of its edges), unless the cell is no wider than kLeast tokens.
  static constexpr double kMostError = 0.002;
  static constexpr std::uint32_t kLeast = 16;
  /// The same unless the cell is one token wide: a time jumps where keys begin to be chosen, say.
  static constexpr double kMostAtJumps = 0.005;

  using Lower = std::function<PricedStep(const StepBatch&)>;
  explicit StepTable(Lower lower);

  /// From a step without prompts on (checked), as StepTimes::decode().
  DecodeStretch decode(const StepBatch& batch);

  std::uint64_t cells() const { return cells_; }
  /// Of the cells that were asked since begin_play(), as looked at when they were made.
  double largest_error() const { return largest_error_; }
  void begin_play() { largest_error_ = 0; }

 private:
  // Means [low, low + size) of what is cached, and [skew, skew + skew_size) tokens that the longest has
  // beyond the mean; the times at its corners, by [mean][skew].
  enum class Cut : std::uint8_t { none, mean, skew };
  struct Cell {
    std::uint64_t low = 0, size = 0, skew = 0, skew_size = 0;
    double times[2][2] = {};
    double error = 0;
    std::uint32_t children = 0;  // the first of two; 0: none
    Cut cut = Cut::none;         // across what it is cut
  };
  using Corners = std::array<StepEnergy, 4>;  // by 2 * [mean] + [skew]
  // Of one number of requests.
  struct Table {
    std::vector<Cell> cells;
    std::vector<Corners> drawn;                           // by cell; empty where nothing is known of boards
    std::map<std::uint64_t, std::uint32_t> roots;         // by both powers of two
    std::unordered_map<std::uint64_t, PricedStep> knots;  // lowered
  };
  struct Found {
    const Table& table;
    std::uint32_t cell = 0;
  };

  struct Misses;

  const PricedStep& knot(Table& table, std::uint32_t requests, std::uint64_t mean, std::uint64_t skew);
  Misses misses_of(Table& table, std::uint32_t requests, const Cell& cell);
  void look(Table& table, std::uint32_t requests, std::uint32_t cell);
  void set_corners(Table& table, std::uint32_t requests, std::uint32_t cell);
  Found cell_of(std::uint32_t requests, std::uint64_t mean, std::uint64_t skew);

  Lower lower_;
  std::vector<std::unique_ptr<Table>> tables_;  // by the number of requests
  std::uint64_t cells_ = 0;
  double largest_error_ = 0;
};

}  // namespace shardline
