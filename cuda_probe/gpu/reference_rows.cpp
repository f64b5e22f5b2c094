// Copies, row-wise kernels, merge, compress and GEMM.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "cuda_probe/gpu/reference_kernels.hpp"

namespace shardline::reference {

namespace {

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

/// In place, or elsewhere altogether.
bool same_or_disjoint(const Bf16* a, std::int64_t a_row, std::int64_t width, const RowArguments& r) {
  if (a == r.out) return a_row == r.out_row || r.rows == 1;
  const Bf16* a_end = a + (r.rows - 1) * a_row + width;
  const Bf16* out_end = r.out + (r.rows - 1) * r.out_row + r.columns;
  // Interleaved rows of one matrix are disjoint too where the strides agree.
  if (a_end <= r.out || out_end <= a) return true;
  const std::int64_t shift = a < r.out ? r.out - a : a - r.out;
  const std::int64_t first = a < r.out ? width : r.columns, second = a < r.out ? r.columns : width;
  const std::int64_t place = a_row > 0 ? shift % a_row : 0;
  return a_row == r.out_row && place >= first && place + second <= a_row;
}

void touch_rows(Touches& t, const RowArguments& a, std::int64_t width) {
  t.require(a.columns % 8 == 0 && a.a_row % 8 == 0 && a.b_row % 8 == 0 && a.out_row % 8 == 0,
            "columns and strides must be multiples of 8");
  t.require(aligned(a.a) && aligned(a.b) && aligned(a.out), "pointers must be aligned to 16 bytes");
  if (a.rows == 0 || a.columns == 0) return;
  t.write("out", a.out, {.rows = a.rows, .row = a.out_row, .width = a.columns});
  t.forbid_overlap();
  t.read("a", a.a, {.rows = a.rows, .row = a.a_row, .width = width});
  t.require(same_or_disjoint(a.a, a.a_row, width, a), "out overlaps a, but is not a");
}

}  // namespace

void touch(Touches& t, const Copy& a) {
  const auto cells = [&](std::size_t pitch) {
    return Cells{.rows = static_cast<std::int64_t>(a.rows),
                 .row = static_cast<std::int64_t>(pitch),
                 .width = static_cast<std::int64_t>(a.row_bytes)};
  };
  t.read("source", static_cast<const std::byte*>(a.source), cells(a.source_pitch));
  t.write("target", static_cast<const std::byte*>(a.target), cells(a.target_pitch));
  t.forbid_overlap();
}

void compute(const Copy& a) {
  for (std::size_t r = 0; r < a.rows && a.row_bytes > 0; ++r) {
    std::memcpy(static_cast<std::byte*>(a.target) + r * a.target_pitch,
                static_cast<const std::byte*>(a.source) + r * a.source_pitch, a.row_bytes);
  }
}

void touch(Touches& t, const RmsNorm& k) { touch_rows(t, k.a, k.a.columns); }
void touch(Touches& t, const Swiglu& k) { touch_rows(t, k.a, 2 * k.a.columns); }
void touch(Touches& t, const Add& k) {
  touch_rows(t, k.a, k.a.columns);
  if (k.a.rows == 0 || k.a.columns == 0) return;
  t.read("b", k.a.b, {.rows = k.a.rows, .row = k.a.b_row, .width = k.a.columns});
  t.require(same_or_disjoint(k.a.b, k.a.b_row, k.a.columns, k.a), "out overlaps b, but is not b");
}

void compute(const RmsNorm& k) {
  const RowArguments& a = k.a;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const Bf16* in = a.a + r * a.a_row;
    Bf16* out = a.out + r * a.out_row;
    float squares = 0;
    for (std::int64_t c = 0; c < a.columns; ++c) squares += to_float(in[c]) * to_float(in[c]);
    const float root = std::sqrt(squares / static_cast<float>(a.columns) + 1e-6f);
    for (std::int64_t c = 0; c < a.columns; ++c) out[c] = to_bf16(to_float(in[c]) / root);
  }
}

void compute(const Swiglu& k) {
  const RowArguments& a = k.a;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const Bf16* in = a.a + r * a.a_row;
    for (std::int64_t c = 0; c < a.columns; ++c) {
      const float gate = to_float(in[c]), up = to_float(in[a.columns + c]);
      a.out[r * a.out_row + c] = to_bf16(gate / (1 + std::exp(-gate)) * up);
    }
  }
}

void compute(const Add& k) {
  const RowArguments& a = k.a;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t c = 0; c < a.columns; ++c)
      a.out[r * a.out_row + c] = to_bf16(to_float(a.a[r * a.a_row + c]) + to_float(a.b[r * a.b_row + c]));
  }
}

void touch(Touches& t, const MergeArguments& a) {
  t.require(a.parts >= 1 && a.parts <= kMostParts, "parts must be 1 to 64");
  t.require(a.rows >= 0 && a.heads >= 1 && a.head_dim >= 8 && a.head_dim % 8 == 0,
            "head_dim must be a multiple of 8");
  const std::int64_t width = std::int64_t{a.heads} * a.head_dim;
  const auto values = [&](std::int64_t row) {
    return Cells{.rows = a.rows, .row = row > 0 ? row : width, .width = width};
  };
  const auto lses = [&](std::int64_t row) {
    return Cells{.rows = a.rows, .row = row > 0 ? row : a.heads, .width = a.heads};
  };
  t.write("out", a.out, values(a.out_row));
  t.require(aligned(a.out) && a.out_row % 8 == 0, "out and its strides must be aligned to 16 bytes");
  if (a.out_lse != nullptr) t.write("out_lse", a.out_lse, lses(a.out_lse_row));
  // What is merged in place is no overlap, and its writes say all that a race needs.
  for (int p = 0; p < a.parts; ++p) {
    t.require(aligned(a.outputs[p]) && a.output_row[p] % 8 == 0,
              "outputs and their strides must be aligned to 16 bytes");
    const bool out_in_place = a.outputs[p] == a.out;
    const bool lse_in_place = a.lses[p] == a.out_lse && a.out_lse != nullptr;
    t.require(!(out_in_place || lse_in_place) || merges_in_place(a.head_dim),
              "this head_dim cannot be merged in place");
    if (out_in_place) {
      t.require(values(a.output_row[p]).row == values(a.out_row).row, "out overlaps a part, but is not it");
    } else if (a.outputs[p] != nullptr) {
      t.read("outputs", a.outputs[p], values(a.output_row[p]));
    }
    if (lse_in_place) {
      t.require(lses(a.lse_row[p]).row == lses(a.out_lse_row).row, "out_lse overlaps lses, but is not them");
    } else {
      t.read("lses", a.lses[p], lses(a.lse_row[p]));
    }
  }
  t.forbid_overlap();
}

void compute(const MergeArguments& a) {
  std::vector<MergePiece> pieces;  // all are read before one is written: it may be in place
  for (std::int64_t i = 0; i < merge_threads(a); ++i) pieces.push_back(merge_read(a, i));
  for (std::int64_t i = 0; i < merge_threads(a); ++i) merge_write(a, i, pieces[static_cast<std::size_t>(i)]);
}

void touch(Touches& t, const CompressArguments& a) {
  t.require(a.rows >= 0 && a.kv_heads >= 1 && a.head_dim >= 8 && a.keep >= 0 && a.keep <= a.rows,
            "keep must be at most rows");
  t.require(a.head_dim % 8 == 0 && a.kv_row % 8 == 0 && a.kv_head % 8 == 0 && a.out_row % 8 == 0 &&
                a.out_head % 8 == 0,
            "head_dim and strides must be multiples of 8");
  const Cells in{a.rows, a.kv_row, a.kv_heads, a.kv_head, a.head_dim};
  const Cells out{a.keep, a.out_row, a.kv_heads, a.out_head, a.head_dim};
  t.read("scores", a.scores, flat(std::int64_t{a.kv_heads} * a.rows));
  t.read("k", a.k, in);
  t.read("v", a.v, in);
  t.write("chosen", a.chosen, flat(std::int64_t{a.kv_heads} * a.keep));
  t.write("k_out", a.k_out, out);
  t.write("v_out", a.v_out, out);
  t.forbid_overlap();
}

void compute(const CompressArguments& a) {
  for (std::int64_t h = 0; h < a.kv_heads; ++h) {
    const float* score = a.scores + h * a.rows;
    std::vector<std::int32_t> rows(static_cast<std::size_t>(a.rows));
    std::iota(rows.begin(), rows.end(), 0);
    std::stable_sort(rows.begin(), rows.end(), [&](std::int32_t x, std::int32_t y) {
      if (std::isnan(score[x]) || std::isnan(score[y])) return !std::isnan(score[x]) && std::isnan(score[y]);
      return score[x] > score[y];
    });
    std::sort(rows.begin(), rows.begin() + a.keep);
    for (std::int64_t i = 0; i < a.keep; ++i) {
      const std::int64_t row = rows[static_cast<std::size_t>(i)];
      a.chosen[h * a.keep + i] = static_cast<std::int32_t>(row);
      const std::int64_t from = row * a.kv_row + h * a.kv_head, to = i * a.out_row + h * a.out_head;
      std::copy_n(a.k + from, a.head_dim, a.k_out + to);
      std::copy_n(a.v + from, a.head_dim, a.v_out + to);
    }
  }
}

void touch(Touches& t, const GemmArguments& a) {
  t.require(a.rows >= 0 && a.k > 0 && a.n > 0 && a.batches >= 0, "k and n must be positive");
  for (const std::int64_t v : {a.k, a.n, a.a_row, a.w_row, a.out_row, a.a_batch, a.w_batch, a.out_batch})
    t.require(v % 8 == 0, "sizes and strides must be multiples of 8");
  t.require(aligned(a.a) && aligned(a.w) && aligned(a.out), "pointers must be aligned to 16 bytes");
  // As cuBLAS demands of leading dimensions.
  t.require(a.a_row >= a.k && a.w_row >= a.n && a.out_row >= a.n, "rows overlap");
  for (std::int64_t b = 0; b < a.batches && a.rows > 0; ++b) {
    t.read("a", a.a + b * a.a_batch, {.rows = a.rows, .row = a.a_row, .width = a.k});
    t.read("w", a.w + b * a.w_batch, {.rows = a.k, .row = a.w_row, .width = a.n});
    t.write("out", a.out + b * a.out_batch, {.rows = a.rows, .row = a.out_row, .width = a.n});
  }
  t.forbid_overlap();
}

void compute(const GemmArguments& a) {
  std::vector<float> sums(static_cast<std::size_t>(a.n));
  for (std::int64_t b = 0; b < a.batches; ++b) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (std::int64_t i = 0; i < a.k; ++i) {
        const float left = to_float(a.a[b * a.a_batch + r * a.a_row + i]);
        const Bf16* right = a.w + b * a.w_batch + i * a.w_row;
        for (std::int64_t c = 0; c < a.n; ++c) sums[static_cast<std::size_t>(c)] += left * to_float(right[c]);
      }
      Bf16* out = a.out + b * a.out_batch + r * a.out_row;
      for (std::int64_t c = 0; c < a.n; ++c) out[c] = to_bf16(sums[static_cast<std::size_t>(c)]);
    }
  }
}

}  // namespace shardline::reference
