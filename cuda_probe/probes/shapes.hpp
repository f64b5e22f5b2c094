// What the probes measure: shapes, which of them our kernels run, and how a long list is thinned.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace shardline {

/// [m, k] x [k, n].
struct GemmCase {
  std::int64_t m = 1, n = 1, k = 1;
  auto operator<=>(const GemmCase&) const = default;
};

/// `batch` requests of `fresh` new tokens behind `cached` ones, causal.
struct PrefillCase {
  std::int64_t batch = 1, fresh = 1, cached = 0;
  int q_heads = 1, kv_heads = 1, head_dim = 128;
  auto operator<=>(const PrefillCase&) const = default;
};

/// One query token of each of `batch` requests against `kv` cached tokens.
struct DecodeCase {
  std::int64_t batch = 1, kv = 1;
  int q_heads = 1, kv_heads = 1, head_dim = 128;
  auto operator<=>(const DecodeCase&) const = default;
};

/// DecodeCase on MLA's latent cache (absorbed).
struct MlaCase {
  std::int64_t batch = 1, kv = 1;
  int heads = 1;
  auto operator<=>(const MlaCase&) const = default;
};

struct MergeCase {
  std::int64_t rows = 1;
  int heads = 1, head_dim = 128, parts = 2;
  auto operator<=>(const MergeCase&) const = default;
};

/// Operations, and bytes that must move: each input read and each output written once; bfloat16 unless
/// `element` says otherwise.
double flops_of(const GemmCase& c);
double flops_of(const PrefillCase& c);
double flops_of(const DecodeCase& c);
double flops_of(const MlaCase& c);
double bytes_of(const GemmCase& c, double element = 2);
double bytes_of(const PrefillCase& c);
double bytes_of(const DecodeCase& c);
double bytes_of(const MlaCase& c);
double bytes_of(const MergeCase& c);

/// Whether the kernels take the shape and one call of it is of a measurable size: at most kMostFlops and
/// kMostBytes, beyond which rates no longer change.
bool runs(const GemmCase& c);
bool runs(const PrefillCase& c);
bool runs(const DecodeCase& c);
bool runs(const MlaCase& c);
bool runs(const MergeCase& c);
inline constexpr double kMostFlops = 1e14, kMostBytes = 8e9;

/// Place of a shape in a space of doublings: distances in it are octaves of the costliest ratio.
std::array<double, 6> place(const GemmCase& c);
std::array<double, 6> place(const PrefillCase& c);
std::array<double, 6> place(const DecodeCase& c);
std::array<double, 6> place(const MlaCase& c);
std::array<double, 6> place(const MergeCase& c);

/// Largest difference in any coordinate.
double distance(const std::array<double, 6>& a, const std::array<double, 6>& b);

/// Sorts, drops repetitions and what does not run, then orders by farthest point: first the smallest shape,
/// then always the one farthest from all before it (the first of several). Any beginning of the list covers
/// the whole as evenly as its length allows, so a run may stop anywhere. At most `most` shapes.
template <class C>
std::vector<C> spread(std::vector<C> cases, std::size_t most);

extern template std::vector<GemmCase> spread(std::vector<GemmCase>, std::size_t);
extern template std::vector<PrefillCase> spread(std::vector<PrefillCase>, std::size_t);
extern template std::vector<DecodeCase> spread(std::vector<DecodeCase>, std::size_t);
extern template std::vector<MlaCase> spread(std::vector<MlaCase>, std::size_t);
extern template std::vector<MergeCase> spread(std::vector<MergeCase>, std::size_t);

struct ShapeLists {
  std::vector<GemmCase> gemm;
  std::vector<PrefillCase> prefill;
  std::vector<DecodeCase> decode;
  std::vector<MlaCase> mla;
  std::vector<MergeCase> merge;
};

/// Sizes that do not come from models: bytes of copies and messages, kernels launched, tokens of ring steps.
std::vector<std::int64_t> copy_sizes();
std::vector<std::int64_t> message_sizes();
std::vector<std::int64_t> launch_counts();
/// A ring step of Llama-3.1-405B on 8-GPU ranks.
std::vector<PrefillCase> ring_steps();

std::string to_string(const GemmCase& c);
std::string to_string(const PrefillCase& c);
std::string to_string(const DecodeCase& c);
std::string to_string(const MlaCase& c);
std::string to_string(const MergeCase& c);

}  // namespace shardline
