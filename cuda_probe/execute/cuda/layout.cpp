#include "cuda_probe/execute/cuda/layout.hpp"

#include <algorithm>

namespace shardline {

Layout::Layout(const Dataflow& flow, int ranks)
    : ranks_(ranks),
      places_(flow.slots.size() * static_cast<std::size_t>(ranks)),
      numbers_(flow.slots.size(), Number::bf16) {
  for (const Extent& e : flow.extents) place(e.slot, e.rank) = {e.rows, e.columns, nullptr};
  for (const Action& a : flow.actions) {
    const auto regions = flow.regions_of(a);
    if (a.function == Function::attend && regions.size() >= 4) numbers_[regions[3].slot] = Number::fp32;
    if (a.function != Function::merge) continue;
    for (std::size_t i = 1; i < regions.size(); i += 2) numbers_[regions[i].slot] = Number::fp32;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const Move& m : flow.moves) {
      Number &a = numbers_[m.source.slot], &b = numbers_[m.target.slot];
      changed = changed || a != b;
      a = b = std::max(a, b);
    }
  }
}

std::size_t Layout::bytes(SlotId slot, int rank) const {
  return static_cast<std::size_t>(rows(slot, rank) * pitch(slot, rank)) * bytes_of(number(slot));
}

bool Layout::inside(int rank, const Region& r) const {
  return r.slot < numbers_.size() && rank >= 0 && rank < ranks_ && r.row >= 0 && r.rows >= 0 &&
         r.column >= 0 && r.columns >= 0 && r.row + r.rows <= rows(r.slot, rank) &&
         r.column + r.columns <= columns(r.slot, rank);
}

bool Layout::contiguous(int rank, const Region& r) const {
  return r.rows <= 1 || (r.column == 0 && r.columns == columns(r.slot, rank));
}

Block2d Layout::block(int rank, const Region& r) const {
  Block2d b{memory(r.slot, rank), r.rows, r.columns, pitch(r.slot, rank), number(r.slot)};
  if (b.at != nullptr) b.at += static_cast<std::size_t>(r.row * b.pitch + r.column) * bytes_of(b.number);
  return b;
}

bool overlap(const Region& a, const Region& b) {
  return a.slot == b.slot && a.row < b.row + b.rows && b.row < a.row + a.rows &&
         a.column < b.column + b.columns && b.column < a.column + a.columns;
}

}  // namespace shardline
