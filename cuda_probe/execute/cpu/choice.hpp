// What an index chose, as an attention reads it.
#pragma once

#include <cstdint>

#include "cuda_probe/execute/core/tensors.hpp"

namespace shardline {

/// What an index chose for one KV head: these columns, in blocks of so many tokens. Null: everything.
template <class Scalar>
struct Choice {
  const View<Scalar>* all = nullptr;
  Eigen::Index first = 0, columns = 0;
  int block = 1;
  bool leaves_out(Eigen::Index row, std::int64_t key) const {
    if (all == nullptr) return false;
    return (all->row(row).segment(first, columns).array() == static_cast<Scalar>(key / block)).count() == 0;
  }
};

}  // namespace shardline
