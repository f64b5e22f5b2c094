// Room for millions of tasks, made in pieces.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/base/cancel.hpp"

namespace shardline {

/// As resize(), of a vector whose elements are not kept where it has to grow. The pages of millions of
/// elements are there once they are written, which takes tens of milliseconds: between pieces it is asked
/// whether to stop.
template <class T>
void resize_asking(std::vector<T>& v, std::size_t count) {
  constexpr std::size_t kPiece = 1U << 16;
  if (v.capacity() < count) {
    v.clear();
    v.reserve(count);
  }
  while (v.size() + kPiece < count) {
    check_cancelled();
    v.resize(v.size() + kPiece);
  }
  v.resize(count);
}

}  // namespace shardline
