#include "cuda_probe/execute/cuda/kernel_limits.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/kernels/attention.hpp"
#include "cuda_probe/kernels/merge.hpp"

namespace shardline {

namespace {

using Shape2d = std::pair<std::int64_t, std::int64_t>;

/// Shapes that the regions must have, from those that may vary; empty: of another number of regions.
std::vector<Shape2d> shapes(const Dataflow& flow, const Action& a, std::span<const Region> r) {
  const std::int64_t heads = a.heads, n = r.empty() ? 0 : r[0].rows;
  switch (a.function) {
    case Function::attend: {
      const std::int64_t q = rows(flow.token_list(a.queries)), k = rows(flow.token_list(a.keys));
      return {{q, heads * a.qk_dim}, {k, kv_columns(a)}, {q, heads * a.v_dim}, {q, heads}};
    }
    case Function::merge: {
      if (r.size() < 4 || r.size() % 2 != 0) return {};
      std::vector<Shape2d> all;
      for (std::size_t i = 0; i < r.size(); i += 2) {
        const bool weighed_only = r[i].columns == 0 && i + 2 < r.size();
        all.push_back({n, weighed_only ? 0 : heads * a.v_dim});
        all.push_back({n, heads});
      }
      return all;
    }
    case Function::gemm:
      if (r.size() != 3) return {};
      return {{n, r[1].rows}, {r[1].rows, r[2].columns}, {n, r[2].columns}};
    case Function::gemm_per_head:
      if (r.size() != 3) return {};
      return {{n, r[1].rows}, {r[1].rows, r[1].columns}, {n, heads * r[1].columns}};
    case Function::expand: {
      if (r.size() != 3) return {};
      const std::int64_t plain = a.qk_dim - (r[0].columns - r[1].rows);
      return {{n, r[0].columns}, {r[1].rows, heads * (plain + a.v_dim)}, {n, heads * (a.qk_dim + a.v_dim)}};
    }
    case Function::swiglu:
      if (r.size() != 2) return {};
      return {{n, 2 * r[1].columns}, {n, r[1].columns}};
    case Function::rms_norm:
      return {{n, r[0].columns}, {n, r[0].columns}};
    case Function::add:
      return {{n, r[0].columns}, {n, r[0].columns}, {n, r[0].columns}};
    case Function::silu:
    case Function::compress:
    case Function::index_scores:
    case Function::block_scores:
    case Function::choose:
    case Function::choose_among:
    case Function::make_rows:
    case Function::convolve:
    case Function::delta_rule:
    case Function::state_space:
    case Function::gated_norm:
    case Function::gated_squares:
    case Function::norm_by_squares:
      break;
  }
  return {};
}

bool is_lse(Function f, std::size_t region) {
  return f == Function::attend ? region == 3 : f == Function::merge && region % 2 == 1;
}

/// Plans number the positions of all requests one after the other, in 31 bits.
bool too_long(TokenView queries, TokenView keys) {
  std::map<std::int32_t, std::int64_t> end;
  for (const TokenView list : {queries, keys}) {
    for (const Interval& i : list) {
      if (i.request != kPadding) end[i.request] = std::max(end[i.request], i.end);
    }
  }
  std::int64_t sum = 0;
  for (const auto& [request, positions] : end) {
    if (positions > std::numeric_limits<std::int32_t>::max() - sum) return true;
    sum += positions;
  }
  return false;
}

std::string wrong_heads(const Dataflow& flow, const Action& a) {
  const auto text = [](int x) { return std::to_string(x); };
  if (a.heads < 1) return "has no heads";
  if (a.function == Function::gemm_per_head) return "";
  if (a.function == Function::merge)
    return a.v_dim % 8 == 0 && a.v_dim > 0 ? "" : "has head_dim " + text(a.v_dim);
  if (a.kv_heads < 1 || a.heads % a.kv_heads != 0) return "has KV heads that do not divide its query heads";
  const std::string widths = "has heads of " + text(a.qk_dim) + " and " + text(a.v_dim);
  if (a.cache == CacheRows::latent) {
    if (a.qk_dim != kLatent + kRotary || a.v_dim != kLatent) return widths + ", the MLA kernel 576 and 512";
    if (a.heads > 128) return "has " + text(a.heads) + " heads, the MLA kernel at most 128";
    if (!cache_rows(flow.token_list(a.queries), flow.token_list(a.keys)))
      return "is MLA's absorbed form of more than one query row per request";
    return "";
  }
  if (attend_kernel(flow, a) == AttendKernel::decode) return "";
  const std::array<std::pair<int, int>, 3> known{{{64, 64}, {128, 128}, {192, 128}}};
  if (std::find(known.begin(), known.end(), std::pair{a.qk_dim, a.v_dim}) == known.end())
    return widths + ", the kernels 64 and 64, 128 and 128, or 192 and 128";
  if (too_long(flow.token_list(a.queries), flow.token_list(a.keys)))
    return "has positions that exceed 31 bits together";
  return "";
}

/// Whether this output may lie where that input does.
bool in_place(const Action& a, std::span<const Region> r, std::size_t input, std::size_t output) {
  if (r[input].slot != r[output].slot || r[input].row != r[output].row || r[input].column != r[output].column)
    return false;
  if (a.function == Function::merge) return input % 2 == output % 2 && merges_in_place(a.v_dim);
  return a.function == Function::rms_norm || a.function == Function::add || a.function == Function::swiglu;
}

/// Parts of a row that an expansion reads and writes must be whole vectors.
std::string wrong_expansion(const Action& a, std::span<const Region> r) {
  const std::int64_t rope = r[0].columns - r[1].rows, plain = a.qk_dim - rope;
  if (a.heads < 1 || rope < 0 || plain < 1 || a.v_dim < 1) return "expands latents to heads of no width";
  for (const std::int64_t width : {r[1].rows, rope, plain, std::int64_t{a.v_dim}}) {
    if (width % kRowUnit != 0) return "has a width that is no multiple of 8";
  }
  return "";
}

}  // namespace

std::optional<CachedKeys> cache_rows(TokenView queries, TokenView keys) {
  struct Keys {
    std::int64_t begin = 0, end = 0, last_position = -1;
  };
  std::map<std::int32_t, Keys> caches;
  std::int64_t row = 0;
  for (const Interval& i : keys) {
    if (i.request != kPadding && i.size() > 0) {
      const auto [at, first] = caches.try_emplace(i.request, Keys{row, row, -1});
      Keys& cache = at->second;
      if (cache.end != row) return std::nullopt;
      cache.end = row + i.size();
      cache.last_position = std::max(cache.last_position, i.last());
    }
    row += i.size();
  }
  CachedKeys out;
  std::set<std::int32_t> seen;
  for (const Interval& i : queries) {
    const bool padding = i.request == kPadding;
    if (!padding && i.size() > 1) return std::nullopt;
    for (std::int64_t p = i.begin; p < i.end; p += i.stride) {
      const auto cache = padding ? caches.end() : caches.find(i.request);
      if (!padding) {
        if (!seen.insert(i.request).second) return std::nullopt;
      }
      const bool none = cache == caches.end();
      if (!none && cache->second.last_position > p) return std::nullopt;
      out.begin.push_back(none ? 0 : cache->second.begin);
      out.count.push_back(none ? 0 : static_cast<std::int32_t>(cache->second.end - cache->second.begin));
    }
  }
  return out;
}

AttendKernel attend_kernel(const Dataflow& flow, const Action& a) {
  if (a.cache == CacheRows::latent) return AttendKernel::latent_decode;
  const bool widths = a.qk_dim == a.v_dim && (a.qk_dim == 64 || a.qk_dim == 128);
  if (widths && a.heads / a.kv_heads <= 64 && cache_rows(flow.token_list(a.queries), flow.token_list(a.keys)))
    return AttendKernel::decode;
  return AttendKernel::prefill;
}

std::string why_not(const Dataflow& flow, const Layout& layout, const Action& a) {
  if (a.function == Function::silu || a.function == Function::compress)
    return "scores or compresses KV, which this executor does not do";
  if (a.chosen || a.function == Function::index_scores || a.function == Function::block_scores ||
      a.function == Function::choose || a.function == Function::choose_among)
    return "attends to keys that an index chooses, which this executor does not do";
  if (a.ratio > 1 || a.function == Function::make_rows)
    return "attends to rows of several tokens, which this executor does not do";
  if (is_recurrent(a.function) || a.function == Function::gated_norm ||
      a.function == Function::gated_squares || a.function == Function::norm_by_squares)
    return "is of linear attention, which this executor does not do";
  const auto r = flow.regions_of(a);
  if (has_sinks(a)) return "has sinks, which the attention kernels do not";
  if (a.function == Function::attend && a.reach.local())
    return "sees a window or a chunk of its keys, the attention kernels see all before the query";
  const std::vector<Shape2d> wanted = r.empty() ? std::vector<Shape2d>{} : shapes(flow, a, r);
  if (wanted.empty() || wanted.size() != r.size()) return "has " + std::to_string(r.size()) + " regions";
  const bool headed = a.function == Function::attend || a.function == Function::merge ||
                      a.function == Function::gemm_per_head;
  if (headed) {
    const std::string wrong = wrong_heads(flow, a);
    if (!wrong.empty()) return wrong;
    if (a.function == Function::gemm_per_head && r[1].rows % a.heads != 0)
      return "has weights whose rows its heads do not divide";
    if (a.function == Function::gemm_per_head && r[1].rows / a.heads % kRowUnit != 0)
      return "has a width that is no multiple of 8";
    if (a.function == Function::merge && r.size() / 2 - 1 > kMostParts) return "merges more than 64 parts";
  }
  if (a.function == Function::expand) {
    const std::string wrong = wrong_expansion(a, r);
    if (!wrong.empty()) return wrong;
  }
  const std::size_t inputs = r.size() - results(a.function);  // an attend has no sinks here
  for (std::size_t i = 0; i < r.size(); ++i) {
    if (!layout.inside(a.rank, r[i])) return "has a region outside its slot";
    if (Shape2d{r[i].rows, r[i].columns} != wanted[i]) return "has regions that do not fit each other";
    const bool lse = is_lse(a.function, i);
    if (layout.number(r[i].slot) != (lse ? Number::fp32 : Number::bf16))
      return "uses log-sum-exps as other numbers";
    if (!lse && (r[i].column % kRowUnit != 0 || r[i].columns % kRowUnit != 0))
      return "has a width that is no multiple of 8";
    if (lse && a.function == Function::attend && r[i].column % 4 != 0)
      return "has log-sum-exps that begin at an odd column";
    for (std::size_t input = 0; i >= inputs && input < inputs; ++input) {
      if (overlap(r[i], r[input]) && !in_place(a, r, input, i)) return "overwrites what it reads";
    }
    for (std::size_t other = inputs; i >= inputs && other < i; ++other) {
      if (overlap(r[i], r[other])) return "has two outputs in one place";
    }
  }
  return "";
}

}  // namespace shardline
