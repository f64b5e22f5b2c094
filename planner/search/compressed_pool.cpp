#include "planner/search/compressed_pool.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "models/model/cache.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/sparse_attention.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

long long over(long long whole, long long part) { return (whole + part - 1) / part; }

// Layers of a rank that keep as many tokens: all of them a window, and those with an index, or without one,
// the tokens of their rows to come.
struct WindowKind {
  const Attention* attention = nullptr;
  int layers = 0;
  long long window = 0, page = 0;  // tokens
};

struct Kinds {
  int index = 0, heavy = 0;  // layers with rows that an index chooses, and with rows that are all seen
  const Attention* of_index = nullptr;
  const Attention* of_heavy = nullptr;
  std::array<WindowKind, 3> windows;
};

Kinds kinds_of(const Case& c, const std::vector<KindLayers>& layers) {
  Kinds k;
  for (const KindLayers& l : layers) {
    const Attention& a = c.model.attentions[static_cast<std::size_t>(l.attention)];
    if (a.none() || l.count == 0) continue;
    SL_CHECK(a.compression, "all layers have compressed attention");
    k.windows[0].attention = &a;
    k.windows[0].layers += l.count;
    k.windows[0].window = a.reach.tokens;
    k.windows[0].page = kWindowPage;
    if (a.compression->ratio == 0) continue;
    (a.index ? k.index : k.heavy) += l.count;
    (a.index ? k.of_index : k.of_heavy) = &a;
    WindowKind& made_of = k.windows[a.index ? 1 : 2];
    made_of.attention = &a;
    made_of.layers += l.count;
    made_of.window = std::int64_t{rows_of_token(a)} * a.compression->ratio;
    made_of.page = uncompressed_page(a);
  }
  return k;
}

// Pages of FlashMLA's layout are whole multiples of its rows (vllm/models/deepseek_v4/compressor.py).
Bytes aligned(double page) {
  constexpr double kMultiple = 576;
  return Bytes(std::ceil(page / kMultiple) * kMultiple);
}

// One block of one tuple of layers: a page of rows, and of index keys, of the layers with an index, and one
// of rows of the others. Pages of windows and of what rows are made of take the next larger of these sizes.
Bytes tuple_bytes(const Case& c, const Kinds& k, long long block) {
  std::set<Bytes> sizes;
  const auto rows = [&](const Attention& a, double bytes) {
    sizes.insert(aligned(static_cast<double>(block / a.compression->ratio) * bytes));
  };
  if (k.of_index != nullptr) {
    rows(*k.of_index, row_bytes(*k.of_index, c.precision.kv));
    rows(*k.of_index, index_row_bytes(*k.of_index, c.precision.kv));
  }
  if (k.of_heavy != nullptr) rows(*k.of_heavy, row_bytes(*k.of_heavy, c.precision.kv));
  const Attention& any = *k.windows[0].attention;
  const Bytes window = aligned(kWindowPage * row_bytes(any, c.precision.kv));
  if (sizes.empty() || *sizes.rbegin() < window) sizes.insert(window);
  Bytes sum;
  for (const Bytes size : sizes) sum += size;
  return sum;
}

// Tuples of a group: as many as waste the fewest where each kind's are rounded up to whole groups, the more
// of equal ones; at least those with rows (_approximate_gcd).
int tuples_of_group(const Kinds& k) {
  const int least = std::max({1, k.index, k.heavy});
  int most = least;
  for (const WindowKind& w : k.windows) most = std::max(most, w.layers);
  int best = least, fewest = -1;
  for (int n = least; n <= most; ++n) {
    int wasted = n - least;
    for (const WindowKind& w : k.windows) wasted += (n - w.layers % n) % n;
    if (fewest >= 0 && wasted > fewest) continue;
    fewest = wasted;
    best = n;
  }
  return best;
}

}  // namespace

// vLLM: v1/core/kv_cache_utils.py, group_and_unify_kv_cache_specs, _get_kv_cache_groups_uniform_groups and
// _max_memory_usage_bytes_from_groups: every group takes blocks of all tuples, whatever it has of them.
Bytes compressed_pool(const Case& c, const Plan& p, const std::vector<KindLayers>& layers) {
  const Kinds k = kinds_of(c, layers);
  if (k.windows[0].layers == 0) return Bytes(0);
  const long long block = c.engine->pools.compressed_block;
  const int tuples = tuples_of_group(k);
  const CacheShare share = cache_share(c, *k.windows[0].attention, p);
  const auto groups = [&](const WindowKind& w) { return over(w.layers, tuples); };
  long long blocks = 0;
  for (const Asked asked : {Asked::decode, Asked::prefill}) {
    for (const Segment& s : asked_segments(c, p, asked)) {
      long long each = k.index + k.heavy > 0 ? over(tokens_on_fullest(share, s.length()), block) : 0;
      for (const WindowKind& w : k.windows) {
        if (w.layers == 0) continue;
        // A window begins inside a block.
        const long long tokens = std::min(s.length(), w.window - 1 + s.fresh);
        each += groups(w) * std::min(over(tokens, w.page) + 1, over(s.length(), w.page));
      }
      blocks += each * s.count * p.in_flight;
    }
  }
  const long long under_way = tokens_under_way(c, p);
  for (const WindowKind& w : k.windows)
    if (w.layers > 0) blocks += groups(w) * over(under_way, w.page);
  return tuple_bytes(c, k, block) * (static_cast<double>(tuples) * static_cast<double>(blocks));
}

}  // namespace shardline
