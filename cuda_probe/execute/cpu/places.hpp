// Where the rows of a list of tokens lie.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/ir/tokens.hpp"

namespace shardline {

struct Place {
  Eigen::Index row = 0;
  std::int64_t position = 0;
};

/// Rows of a request, in the order of the list.
inline std::vector<Place> places(TokenView tokens, std::int32_t request) {
  std::vector<Place> out;
  Eigen::Index row = 0;
  for (const Interval& i : tokens) {
    for (std::int64_t p = i.begin; p < i.end; p += i.stride, ++row) {
      if (i.request == request) out.push_back({row, p});
    }
  }
  return out;
}

/// Requests that have rows in a list, ascending.
inline std::vector<std::int32_t> requests_of(TokenView tokens) {
  std::vector<std::int32_t> out;
  for (const Interval& i : tokens) {
    if (i.request != kPadding && i.size() > 0) out.push_back(i.request);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace shardline
