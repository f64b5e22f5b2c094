// Attention, for prefill and decode.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cuda_probe/gpu/reference_kernels.hpp"

namespace shardline::reference {

namespace {

struct KeyValue {
  const Bf16 *k, *v;
};

/// One query row and head against the key rows that it sees.
void attend(const Bf16* q, const std::vector<KeyValue>& rows, int qk_dim, int v_dim, float scale, Bf16* out,
            float* lse) {
  std::vector<float> scores, values(static_cast<std::size_t>(v_dim));
  float highest = -std::numeric_limits<float>::infinity();
  // Several keys at a time: a sum of one waits for its own last addition.
  constexpr std::size_t kTogether = 8;
  for (std::size_t first = 0; first < rows.size(); first += kTogether) {
    const Bf16* keys[kTogether];
    for (std::size_t i = 0; i < kTogether; ++i) keys[i] = rows[std::min(first + i, rows.size() - 1)].k;
    float dots[kTogether] = {};
    for (int d = 0; d < qk_dim; ++d) {
      const float value = to_float(q[d]);
      for (std::size_t i = 0; i < kTogether; ++i) dots[i] += value * to_float(keys[i][d]);
    }
    for (std::size_t i = 0; i < kTogether && first + i < rows.size(); ++i) {
      scores.push_back(scale * dots[i]);
      highest = std::max(highest, scores.back());
    }
  }
  float sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float weight = std::exp(scores[i] - highest);
    sum += weight;
    for (int d = 0; d < v_dim; ++d) values[static_cast<std::size_t>(d)] += weight * to_float(rows[i].v[d]);
  }
  for (int d = 0; d < v_dim; ++d)
    out[d] = to_bf16(rows.empty() ? 0.0f : values[static_cast<std::size_t>(d)] / sum);
  if (lse != nullptr) *lse = rows.empty() ? -std::numeric_limits<float>::infinity() : highest + std::log(sum);
}

std::int64_t tiles_of(std::int64_t rows, int tile) { return (rows + tile - 1) / tile; }

bool aligned(std::initializer_list<const void*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; });
}

bool multiples_of_8(std::initializer_list<std::int64_t> strides) {
  return std::all_of(strides.begin(), strides.end(), [](std::int64_t s) { return s % 8 == 0; });
}

/// Row of the cache that row i of sequence s is. Arguments are DecodeArguments or MlaDecodeArguments.
template <class A>
std::int64_t cache_row(const A& a, std::int64_t s, std::int64_t i) {
  if (a.kv_begin != nullptr) return a.kv_begin[s] + i;
  return std::int64_t{a.pages[s * a.most_pages + i / a.page_rows]} * a.page_rows + i % a.page_rows;
}

/// Reads what says where the cache is, then calls read(first row, rows) for each run of it.
template <class A, class Read>
void touch_cache(Touches& t, const A& a, Read read) {
  t.require(a.sequences >= 0 && a.splits >= 1, "splits must be at least 1");
  t.read("kv_rows", a.kv_rows, flat(a.sequences));
  if (a.kv_begin != nullptr) {
    t.read("kv_begin", a.kv_begin, flat(a.sequences));
  } else {
    const auto p = a.page_rows;
    t.require(p == 16 || p == 32 || p == 64 || p == 128 || p == 256, "page_rows must be 16 to 256");
  }
  for (std::int64_t s = 0; s < a.sequences; ++s) {
    const std::int64_t rows = a.kv_rows[s];
    t.require(rows >= 0, "negative kv_rows");
    if (a.kv_begin != nullptr) {
      read(a.kv_begin[s], rows);
      continue;
    }
    t.require(tiles_of(rows, a.page_rows) <= a.most_pages, "a sequence has more than most_pages pages");
    t.read("pages", a.pages + s * a.most_pages, flat(tiles_of(rows, a.page_rows)));
    for (std::int64_t i = 0; i < rows; i += a.page_rows)
      read(cache_row(a, s, i), std::min<std::int64_t>(a.page_rows, rows - i));
  }
}

template <class A>
void touch_decode_results(Touches& t, const A& a, int v_dim) {
  t.write("out", a.out, {a.sequences, a.out_row, a.q_heads, a.out_head, v_dim});
  if (a.lse != nullptr) t.write("lse", a.lse, {.rows = a.sequences, .row = a.lse_row, .width = a.q_heads});
  if (a.splits > 1) {
    const std::int64_t cells = std::int64_t{a.splits} * a.sequences * a.q_heads;
    t.write("partial_out", a.partial_out, flat(cells * v_dim));
    t.write("partial_lse", a.partial_lse, flat(cells));
  }
  t.forbid_overlap();
}

template <class A>
void forget_partials(const A& a, int v_dim) {
  if (a.splits <= 1) return;
  const std::int64_t cells = std::int64_t{a.splits} * a.sequences * a.q_heads;
  std::fill_n(a.partial_out, cells * v_dim, std::numeric_limits<float>::quiet_NaN());
  std::fill_n(a.partial_lse, cells, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace

void touch(Touches& t, const PrefillArguments& a) {
  const bool known = (a.qk_dim == 64 && a.v_dim == 64) || (a.qk_dim == 128 && a.v_dim == 128) ||
                     (a.qk_dim == 192 && a.v_dim == 128);
  t.require(known, "head widths must be 64 and 64, 128 and 128, or 192 and 128");
  t.require(a.q_rows >= 0 && a.kv_rows >= 0, "negative size");
  t.require(a.q_heads >= 1 && a.kv_heads >= 1 && a.q_heads % a.kv_heads == 0,
            "q_heads must be a multiple of kv_heads");
  t.require(multiples_of_8({a.q_row, a.q_head, a.kv_row, a.kv_head, a.out_row, a.out_head}),
            "strides must be multiples of 8");
  t.require(aligned({a.q, a.k, a.v, a.out}), "pointers must be aligned to 16 bytes");
  if (a.q_rows == 0) return;
  const std::int64_t tiles = tiles_of(a.q_rows, kQueryTile);
  t.read("visible", a.visible, flat(a.q_rows));
  t.read("codes", a.codes, flat(tiles_of(a.kv_rows, kKeyTile) * kKeyTile));
  t.read("run_begin", a.run_begin, flat(tiles + 1));
  t.read("order", a.order, flat(tiles));
  t.require(a.run_begin[0] == 0, "run_begin must begin with 0");
  t.read("runs", a.runs, flat(a.run_begin[tiles]));
  std::vector<bool> planned(static_cast<std::size_t>(tiles)), read(static_cast<std::size_t>(a.kv_rows));
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int32_t tile = a.order[i];
    t.require(tile >= 0 && tile < tiles && !planned[static_cast<std::size_t>(tile)],
              "order is not a permutation of the tiles");
    planned[static_cast<std::size_t>(tile)] = true;
    t.require(a.run_begin[i] <= a.run_begin[i + 1], "run_begin must not fall");
  }
  for (std::int32_t i = 0; i < a.run_begin[tiles]; ++i) {
    const KeyRun run = a.runs[i];
    t.require(run.first >= 0 && run.first % kKeyTile == 0 && run.first <= run.last &&
                  (run.last % kKeyTile == 0 || run.last == a.kv_rows) && run.last <= a.kv_rows,
              "a run is not made of whole key tiles");
    std::fill(read.begin() + run.first, read.begin() + run.last, true);
  }
  t.read("q", a.q, {a.q_rows, a.q_row, a.q_heads, a.q_head, a.qk_dim});
  for (std::int64_t first = 0, last = 0; first < a.kv_rows; first = last + 1) {
    while (first < a.kv_rows && !read[static_cast<std::size_t>(first)]) ++first;
    for (last = first; last < a.kv_rows && read[static_cast<std::size_t>(last)];) ++last;
    t.read("k", a.k + first * a.kv_row, {last - first, a.kv_row, a.kv_heads, a.kv_head, a.qk_dim});
    t.read("v", a.v + first * a.kv_row, {last - first, a.kv_row, a.kv_heads, a.kv_head, a.v_dim});
  }
  t.write("out", a.out, {a.q_rows, a.out_row, a.q_heads, a.out_head, a.v_dim});
  t.write("lse", a.lse, {.rows = a.q_rows, .row = a.lse_row, .width = a.q_heads});
  t.forbid_overlap();
}

void compute(const PrefillArguments& a) {
  const int group = a.q_heads / a.kv_heads;
  for (std::int64_t r = 0; r < a.q_rows; ++r) {
    const std::int64_t tile = r / kQueryTile;
    const Visible sees = a.visible[r];
    std::vector<std::int64_t> keys;
    for (std::int32_t i = a.run_begin[tile]; i < a.run_begin[tile + 1]; ++i) {
      const KeyRun run = a.runs[i];
      for (std::int64_t j = run.first; j < run.last; ++j) {
        if (run.masked == 0 || (a.codes[j] >= sees.low && a.codes[j] <= sees.high)) keys.push_back(j);
      }
    }
    for (std::int64_t h = 0; h < a.q_heads; ++h) {
      std::vector<KeyValue> rows;
      for (const std::int64_t j : keys) {
        const std::int64_t at = j * a.kv_row + h / group * a.kv_head;
        rows.push_back({a.k + at, a.v + at});
      }
      attend(a.q + r * a.q_row + h * a.q_head, rows, a.qk_dim, a.v_dim, a.scale,
             a.out + r * a.out_row + h * a.out_head, a.lse + r * a.lse_row + h);
    }
  }
}

void touch(Touches& t, const DecodeArguments& a) {
  t.require(a.head_dim == 64 || a.head_dim == 128, "head_dim must be 64 or 128");
  t.require(a.kv_heads >= 1 && a.q_heads % a.kv_heads == 0 && a.q_heads / a.kv_heads >= 1 &&
                a.q_heads / a.kv_heads <= 64,
            "there must be 1 to 64 query heads per KV head");
  t.require(multiples_of_8({a.q_row, a.q_head, a.kv_row, a.kv_head, a.out_row, a.out_head}),
            "strides must be multiples of 8");
  t.require(aligned({a.q, a.k, a.v, a.out}), "pointers must be aligned to 16 bytes");
  touch_cache(t, a, [&](std::int64_t first, std::int64_t rows) {
    const Cells c{rows, a.kv_row, a.kv_heads, a.kv_head, a.head_dim};
    t.read("k", a.k + first * a.kv_row, c);
    t.read("v", a.v + first * a.kv_row, c);
  });
  t.read("q", a.q, {a.sequences, a.q_row, a.q_heads, a.q_head, a.head_dim});
  touch_decode_results(t, a, a.head_dim);
}

void compute(const DecodeArguments& a) {
  const int group = a.q_heads / a.kv_heads;
  for (std::int64_t s = 0; s < a.sequences; ++s) {
    for (std::int64_t h = 0; h < a.q_heads; ++h) {
      std::vector<KeyValue> rows;
      for (std::int64_t i = 0; i < a.kv_rows[s]; ++i) {
        const std::int64_t at = cache_row(a, s, i) * a.kv_row + h / group * a.kv_head;
        rows.push_back({a.k + at, a.v + at});
      }
      attend(a.q + s * a.q_row + h * a.q_head, rows, a.head_dim, a.head_dim, a.scale,
             a.out + s * a.out_row + h * a.out_head, a.lse == nullptr ? nullptr : a.lse + s * a.lse_row + h);
    }
  }
  forget_partials(a, a.head_dim);
}

void touch(Touches& t, const MlaDecodeArguments& a) {
  t.require(a.q_heads >= 1 && a.q_heads <= 128, "q_heads must be 1 to 128");
  t.require(multiples_of_8({a.q_row, a.q_head, a.kv_row, a.out_row, a.out_head}),
            "strides must be multiples of 8");
  t.require(aligned({a.q, a.kv, a.out}), "pointers must be aligned to 16 bytes");
  touch_cache(t, a, [&](std::int64_t first, std::int64_t rows) {
    t.require(first + rows <= a.cache_rows, "a sequence reaches beyond cache_rows");
    t.read("kv", a.kv + first * a.kv_row, {.rows = rows, .row = a.kv_row, .width = kLatent + kRotary});
  });
  t.read("q", a.q, {a.sequences, a.q_row, a.q_heads, a.q_head, kLatent + kRotary});
  touch_decode_results(t, a, kLatent);
}

void compute(const MlaDecodeArguments& a) {
  for (std::int64_t s = 0; s < a.sequences; ++s) {
    std::vector<KeyValue> rows;
    for (std::int64_t i = 0; i < a.kv_rows[s]; ++i) {
      const Bf16* row = a.kv + cache_row(a, s, i) * a.kv_row;
      rows.push_back({row, row});
    }
    for (std::int64_t h = 0; h < a.q_heads; ++h) {
      attend(a.q + s * a.q_row + h * a.q_head, rows, kLatent + kRotary, kLatent, a.scale,
             a.out + s * a.out_row + h * a.out_head, a.lse == nullptr ? nullptr : a.lse + s * a.lse_row + h);
    }
  }
  forget_partials(a, kLatent);
}

}  // namespace shardline::reference
