// Where the numbers of each rank's slots lie in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda_probe/transport/transport.hpp"
#include "models/ir/dataflow.hpp"

namespace shardline {

/// Rows of slots begin at multiples of so many elements (16 bytes in bfloat16).
inline constexpr std::int64_t kRowUnit = 8;
constexpr std::int64_t padded(std::int64_t columns) { return (columns + kRowUnit - 1) / kRowUnit * kRowUnit; }

/// A region in memory. `at` is null on ranks of other processes.
struct Block2d {
  std::byte* at = nullptr;
  std::int64_t rows = 0, columns = 0, pitch = 0;  // pitch: elements between rows
  Number number = Number::bf16;
  Bf16* bf16() const { return reinterpret_cast<Bf16*>(at); }
  float* fp32() const { return reinterpret_cast<float*>(at); }
};

/// Slots hold bfloat16, or float32 where they are log-sum-exps: an lse region of an attend or merge, and all
/// that messages connect with one.
class Layout {
 public:
  Layout(const Dataflow& flow, int ranks);

  int ranks() const { return ranks_; }
  Number number(SlotId slot) const { return numbers_[slot]; }
  std::int64_t rows(SlotId slot, int rank) const { return place(slot, rank).rows; }
  std::int64_t columns(SlotId slot, int rank) const { return place(slot, rank).columns; }
  std::int64_t pitch(SlotId slot, int rank) const { return padded(columns(slot, rank)); }
  std::size_t bytes(SlotId slot, int rank) const;

  /// Whether the region lies inside its slot.
  bool inside(int rank, const Region& region) const;
  /// Whether its rows follow each other in a message of padded rows: whole rows of the slot, or one row.
  bool contiguous(int rank, const Region& region) const;
  /// Where the slot begins; null before, and on ranks of other processes.
  void set_memory(SlotId slot, int rank, std::byte* memory) { place(slot, rank).memory = memory; }
  std::byte* memory(SlotId slot, int rank) const { return place(slot, rank).memory; }
  Block2d block(int rank, const Region& region) const;

 private:
  struct Place {
    std::int64_t rows = 0, columns = 0;
    std::byte* memory = nullptr;
  };
  Place& place(SlotId slot, int rank) { return places_[index(slot, rank)]; }
  const Place& place(SlotId slot, int rank) const { return places_[index(slot, rank)]; }
  std::size_t index(SlotId slot, int rank) const {
    return static_cast<std::size_t>(slot) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(rank);
  }

  int ranks_;
  std::vector<Place> places_;    // [slot][rank]
  std::vector<Number> numbers_;  // of each slot
};

/// Whether two regions of one rank share an element.
bool overlap(const Region& a, const Region& b);

}  // namespace shardline
