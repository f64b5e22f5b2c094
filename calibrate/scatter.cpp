#include "calibrate/scatter.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace shardline {

namespace {

constexpr double kBlock = 16, kMostRows = 128;
constexpr std::size_t kFewestOthers = 3;  // of two the median is no more robust than their mean

double median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t half = v.size() / 2;
  return v.size() % 2 == 1 ? v[half] : (v[half - 1] + v[half]) / 2;
}

}  // namespace

Neighbours in_one_tile(const FitRows& products) {
  std::map<std::vector<double>, std::vector<std::size_t>> tiles;  // n, k, block of m -> rows
  for (std::size_t i = 0; i < products.size(); ++i) {
    const auto x = products.x(i);
    if (x[0] <= kMostRows) tiles[{x[1], x[2], std::ceil(x[0] / kBlock)}].push_back(i);
  }
  Neighbours out;
  for (const auto& [tile, rows] : tiles) {
    if (rows.size() <= kFewestOthers) continue;
    for (const std::size_t row : rows) {
      std::vector<double> others;
      for (const std::size_t other : rows) {
        if (other != row) others.push_back(products.seconds[other]);
      }
      out.rows.push_back(row);
      out.seconds.push_back(median_of(std::move(others)));
    }
  }
  return out;
}

Repeats repeats_of(const FitRows& first, const FitRows& second) {
  std::map<std::vector<double>, double> known;
  const auto shape = [](const FitRows& rows, std::size_t i) {
    const auto x = rows.x(i);
    return std::vector<double>(x.begin(), x.end());
  };
  for (std::size_t i = 0; i < second.size(); ++i) known.emplace(shape(second, i), second.seconds[i]);
  Repeats out;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto same = known.find(shape(first, i));
    if (same == known.end()) continue;
    out.first.push_back(first.seconds[i]);
    out.second.push_back(same->second);
  }
  return out;
}

}  // namespace shardline
