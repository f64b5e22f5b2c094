// Numbers for kernel tests: bfloat16 matrices, and attention in double on what they hold.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cuda_probe/emulator/warp.hpp"
#include "cuda_probe/kernels/bf16.hpp"

namespace shardline {

inline constexpr double kNothingSeen = -std::numeric_limits<double>::infinity();

/// Every order of threads and of asynchronous work but the default, which results are compared with.
inline constexpr emulator::Options kOtherOrders[] = {{emulator::ThreadOrder::ascending, 7, false},
                                                     {emulator::ThreadOrder::descending, 7, true},
                                                     {emulator::ThreadOrder::descending, 7, false},
                                                     {emulator::ThreadOrder::random, 7, true},
                                                     {emulator::ThreadOrder::random, 7, false}};

inline std::vector<Bf16> normal_numbers(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Bf16> out(count);
  // Sums of uniform numbers: the same bits with every standard library.
  for (Bf16& v : out) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
    v = to_bf16(static_cast<float>(sum));
  }
  return out;
}

/// Plain attention of one query over the keys that `sees` admits. Returns the log-sum-exp.
template <class Sees>
double plain_attention(const Bf16* q, int qk_dim, const Bf16* k, const Bf16* v, std::int64_t kv_row,
                       int v_dim, std::int64_t keys, double scale, Sees sees, std::vector<double>& out) {
  std::vector<double> score(static_cast<std::size_t>(keys), kNothingSeen);
  double high = kNothingSeen, sum = 0;
  out.assign(static_cast<std::size_t>(v_dim), 0);
  for (std::int64_t i = 0; i < keys; ++i) {
    if (!sees(i)) continue;
    double dot = 0;
    for (int d = 0; d < qk_dim; ++d)
      dot += static_cast<double>(to_float(q[d])) * static_cast<double>(to_float(k[i * kv_row + d]));
    score[static_cast<std::size_t>(i)] = dot * scale;
    high = std::max(high, dot * scale);
  }
  if (high == kNothingSeen) return high;
  for (std::int64_t i = 0; i < keys; ++i) {
    if (score[static_cast<std::size_t>(i)] == kNothingSeen) continue;
    const double weight = std::exp(score[static_cast<std::size_t>(i)] - high);
    sum += weight;
    for (int d = 0; d < v_dim; ++d)
      out[static_cast<std::size_t>(d)] += weight * static_cast<double>(to_float(v[i * kv_row + d]));
  }
  for (double& o : out) o /= sum;
  return high + std::log(sum);
}

}  // namespace shardline
