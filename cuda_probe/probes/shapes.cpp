#include "cuda_probe/probes/shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda_probe/kernels/attention.hpp"
#include "cuda_probe/kernels/merge.hpp"

namespace shardline {

namespace {

double d(std::int64_t v) { return static_cast<double>(v); }
double octaves(double v) { return std::log2(v); }
bool measurable(double flops, double bytes) { return flops <= kMostFlops && bytes <= kMostBytes; }
constexpr int kLatentRow = kLatent + kRotary;

}  // namespace

double flops_of(const GemmCase& c) { return 2 * d(c.m) * d(c.n) * d(c.k); }
double flops_of(const PrefillCase& c) {
  const double pairs = d(c.batch) * (d(c.fresh) * d(c.cached) + d(c.fresh) * (d(c.fresh) + 1) / 2);
  return 4 * pairs * c.q_heads * c.head_dim;
}
double flops_of(const DecodeCase& c) { return 4 * d(c.batch) * d(c.kv) * c.q_heads * c.head_dim; }
double flops_of(const MlaCase& c) { return 2 * d(c.batch) * d(c.kv) * c.heads * (kLatentRow + kLatent); }

double bytes_of(const GemmCase& c, double element) {
  return element * (d(c.m) * d(c.k) + d(c.k) * d(c.n)) + 2 * d(c.m) * d(c.n);
}
double bytes_of(const PrefillCase& c) {
  const double rows = d(c.batch) * d(c.fresh);
  return 2 * (2 * rows * c.q_heads * c.head_dim +
              2 * d(c.batch) * d(c.cached + c.fresh) * c.kv_heads * c.head_dim) +
         4 * rows * c.q_heads;
}
double bytes_of(const DecodeCase& c) {
  return 2 * d(c.batch) * c.head_dim * (2 * d(c.kv) * c.kv_heads + 2 * c.q_heads);
}
double bytes_of(const MlaCase& c) {
  return 2 * d(c.batch) * (d(c.kv) * kLatentRow + c.heads * double(kLatentRow + kLatent));
}
double bytes_of(const MergeCase& c) { return d(c.rows) * c.heads * (c.parts + 1.0) * (2.0 * c.head_dim + 4); }

bool runs(const GemmCase& c) {
  return c.m >= 1 && c.n >= 16 && c.k >= 16 && c.n % 16 == 0 && c.k % 16 == 0 &&
         measurable(flops_of(c), bytes_of(c));
}
bool runs(const PrefillCase& c) {
  return c.batch >= 1 && c.fresh >= 1 && c.cached >= 0 && c.q_heads >= 1 && c.kv_heads >= 1 &&
         c.q_heads % c.kv_heads == 0 && (c.head_dim == 64 || c.head_dim == 128) &&
         c.batch * (c.cached + c.fresh) <= std::numeric_limits<std::int32_t>::max() &&
         measurable(flops_of(c), bytes_of(c));
}
bool runs(const DecodeCase& c) {
  return c.batch >= 1 && c.kv >= 1 && c.q_heads >= 1 && c.kv_heads >= 1 && c.q_heads % c.kv_heads == 0 &&
         c.q_heads / c.kv_heads <= 64 && (c.head_dim == 64 || c.head_dim == 128) &&
         c.kv <= std::numeric_limits<std::int32_t>::max() && measurable(flops_of(c), bytes_of(c));
}
bool runs(const MlaCase& c) {
  return c.batch >= 1 && c.kv >= 1 && c.heads >= 1 && c.heads <= 128 &&
         c.kv <= std::numeric_limits<std::int32_t>::max() && measurable(flops_of(c), bytes_of(c));
}
bool runs(const MergeCase& c) {
  return c.rows >= 1 && c.heads >= 1 && c.parts >= 2 && c.parts <= kMostParts && c.head_dim >= 8 &&
         c.head_dim % 8 == 0 && bytes_of(c) <= kMostBytes;
}

std::array<double, 6> place(const GemmCase& c) { return {octaves(d(c.m)), octaves(d(c.n)), octaves(d(c.k))}; }
std::array<double, 6> place(const PrefillCase& c) {
  return {octaves(d(c.batch)), octaves(d(c.fresh)), octaves(1 + d(c.cached) / d(c.fresh)),
          octaves(c.q_heads),  octaves(c.kv_heads), octaves(c.head_dim)};
}
std::array<double, 6> place(const DecodeCase& c) {
  return {octaves(d(c.batch)), octaves(d(c.kv)), octaves(c.q_heads), octaves(c.kv_heads),
          octaves(c.head_dim)};
}
std::array<double, 6> place(const MlaCase& c) {
  return {octaves(d(c.batch)), octaves(d(c.kv)), octaves(c.heads)};
}
std::array<double, 6> place(const MergeCase& c) {
  return {octaves(d(c.rows)), octaves(c.heads), octaves(c.head_dim), octaves(c.parts)};
}

double distance(const std::array<double, 6>& a, const std::array<double, 6>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

template <class C>
std::vector<C> spread(std::vector<C> cases, std::size_t most) {
  std::erase_if(cases, [](const C& c) { return !runs(c); });
  std::sort(cases.begin(), cases.end());
  cases.erase(std::unique(cases.begin(), cases.end()), cases.end());
  std::vector<std::array<double, 6>> places;
  for (const C& c : cases) places.push_back(place(c));
  std::vector<double> nearest(cases.size(), std::numeric_limits<double>::infinity());
  std::vector<C> out;
  std::size_t next = 0;
  while (out.size() < std::min(most, cases.size())) {
    out.push_back(cases[next]);
    nearest[next] = -1;
    std::size_t farthest = next;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (nearest[i] >= 0) nearest[i] = std::min(nearest[i], distance(places[i], places[next]));
      if (nearest[i] > nearest[farthest]) farthest = i;
    }
    next = farthest;
  }
  return out;
}

template std::vector<GemmCase> spread(std::vector<GemmCase>, std::size_t);
template std::vector<PrefillCase> spread(std::vector<PrefillCase>, std::size_t);
template std::vector<DecodeCase> spread(std::vector<DecodeCase>, std::size_t);
template std::vector<MlaCase> spread(std::vector<MlaCase>, std::size_t);
template std::vector<MergeCase> spread(std::vector<MergeCase>, std::size_t);

namespace {

std::vector<std::int64_t> geometric(std::int64_t from, std::int64_t to, std::int64_t factor) {
  std::vector<std::int64_t> out;
  for (std::int64_t v = from; v <= to; v *= factor) out.push_back(v);
  return out;
}

}  // namespace

std::vector<std::int64_t> copy_sizes() { return geometric(std::int64_t{1} << 16, std::int64_t{1} << 31, 2); }
std::vector<std::int64_t> message_sizes() {
  return geometric(std::int64_t{1} << 10, std::int64_t{1} << 30, 2);
}
std::vector<std::int64_t> launch_counts() { return geometric(1, 1024, 4); }
std::vector<PrefillCase> ring_steps() {
  std::vector<PrefillCase> out;
  for (const std::int64_t rows : geometric(256, 65536, 2)) out.push_back({1, rows, 0, 16, 1, 128});
  return out;
}

std::string to_string(const GemmCase& c) { return fmt::format("m={} n={} k={}", c.m, c.n, c.k); }
std::string to_string(const PrefillCase& c) {
  return fmt::format("batch={} seq_q={} kv_cached={} heads_q={} heads_kv={} head_dim={}", c.batch, c.fresh,
                     c.cached, c.q_heads, c.kv_heads, c.head_dim);
}
std::string to_string(const DecodeCase& c) {
  return fmt::format("batch={} kv_len={} heads_q={} heads_kv={} head_dim={}", c.batch, c.kv, c.q_heads,
                     c.kv_heads, c.head_dim);
}
std::string to_string(const MlaCase& c) {
  return fmt::format("batch={} kv_len={} heads_local={}", c.batch, c.kv, c.heads);
}
std::string to_string(const MergeCase& c) {
  return fmt::format("rows={} heads={} head_dim={} parts={}", c.rows, c.heads, c.head_dim, c.parts);
}

}  // namespace shardline
