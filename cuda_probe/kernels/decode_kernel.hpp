// Split-KV decode attention ("Flash-Decoding", on the running softmax of arXiv 2307.08691) for compute
// capability 8.0 and up. A block is one KV head of one sequence over one split of its keys. Its query heads
// are the rows of the products, 16 to a band, so that the cache is read once for all of them.
//
// Bound by HBM: keys and values come in tiles of 64 rows through a ring of 96 KiB that holds one tile in use
// and 64 to 80 KiB under way; two blocks share a multiprocessor. Each of the four warps has one band and its
// own keys of every tile, so that warps meet once per tile, and exchange results only at the end.
#pragma once

#include "cuda_probe/device/mma.hpp"
#include "cuda_probe/kernels/decode_parts.hpp"
#include "cuda_probe/kernels/prefill_parts.hpp"

namespace shardline {

/// Bands: of 16 query heads per KV head; 1, 2 or 4.
template <int HeadDim, int Bands>
struct Decode {
  static constexpr int kThreads = 128, kKeys = 64, kStages = 384 / HeadDim;
  static constexpr int kParts = 4 / Bands,
                       kPartKeys = kKeys / kParts;                   // warps per band, their keys of a tile
  static constexpr int kStepKeys = kPartKeys < 32 ? kPartKeys : 32;  // more take too many registers
  static constexpr int kMatrix = kKeys * HeadDim;                    // values of a tile's keys
  static constexpr int kSharedBytes = kStages * 2 * kMatrix * 2;

  /// `shared`: kSharedBytes, aligned to 16. Grid: [KV heads][sequences][splits].
  SL_DEVICE static void run(const DecodeArguments& a, std::byte* shared) {
    using namespace device;
    const int rows = a.kv_rows[block_y()], group = a.q_heads / a.kv_heads;
    const decode_parts::Tiles tiles =
        decode_parts::split_tiles((rows + kKeys - 1) / kKeys, a.splits, block_z());
    if (a.splits > 1 && tiles.first == tiles.last) {
      if (thread() < group) a.partial_lse[cell(a, thread())] = -INFINITY;
      return;
    }
    const int band = warp() % Bands, part = warp() / Bands;
    const bool busy = band * 16 < group;
    const float scale = a.scale * kLog2E;
    auto* ring = reinterpret_cast<Bf16*>(shared);
    const Cache cache(a, rows);

    Pages pages;
    {
      Pages early[kStages - 1];
      SL_UNROLL
      for (int i = 0; i < kStages - 1; ++i) cache.look_up(early[i], tiles.first + i);
      cache.look_up(pages, tiles.first + kStages - 1);
      SL_UNROLL
      for (int i = 0; i < kStages - 1; ++i) {
        if (tiles.first + i < tiles.last) cache.copy(ring + i * 2 * kMatrix, tiles.first + i, early[i]);
        commit_copies();
      }
    }
    std::uint32_t q[HeadDim / 16][4];
    load_queries(q, a, band, group);

    prefill_parts::Softmax softmax;
    float o[HeadDim / 2] = {};
    int stage = 0, free_stage = kStages - 1;
    SL_UNROLL_BY(1)
    for (int tile = tiles.first; tile < tiles.last; ++tile) {
      wait_copies<kStages - 2>();
      sync_threads();  // the tile is there; all have read the one before it
      if (tile + kStages - 1 < tiles.last)
        cache.copy(ring + free_stage * 2 * kMatrix, tile + kStages - 1, pages);
      commit_copies();
      cache.look_up(pages, tile + kStages);  // a tile ahead of its use
      const Bf16* k = ring + stage * 2 * kMatrix;
      free_stage = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if (!busy) continue;

      SL_UNROLL_BY(1)
      for (int key = part * kPartKeys; key < (part + 1) * kPartKeys; key += kStepKeys) {
        float s[kStepKeys / 2] = {};
        scores(s, q, k, key);
        if ((tile + 1) * kKeys > rows) mask(s, rows - tile * kKeys - key);
        float factor[2];
        softmax.step(s, scale, factor);
        prefill_parts::rescale(o, factor);
        values(o, s, k + kMatrix, key);
      }
    }
    merge_warps(a, shared, o, softmax, scale, group);
  }

 private:
  static constexpr int kGroups = kKeys / 16;  // 16 rows of the cache lie in one page
  static constexpr int kPieces = HeadDim / 8;

  struct alignas(16) Floats4 {
    float v[4];
  };
  struct Pages {
    std::int32_t page[kGroups];
  };

  struct Cache {
    const Bf16 *k, *v;  // this thread's first piece of row 0
    std::int64_t stride, begin;
    const std::int32_t* pages;
    int page_log2, rows;

    SL_DEVICE Cache(const DecodeArguments& a, int kv_rows)
        : stride(a.kv_row), begin(0), pages(nullptr), page_log2(4), rows(kv_rows) {
      using namespace device;
      const std::int64_t column = block_x() * a.kv_head + thread() % 8 * 8;
      k = a.k + column;
      v = a.v + column;
      if (a.pages == nullptr) {
        begin = a.kv_begin[block_y()];
      } else {
        pages = a.pages + static_cast<std::int64_t>(block_y()) * a.most_pages;
        while (1 << page_log2 < a.page_rows) ++page_log2;
      }
    }
    SL_DEVICE void look_up(Pages& found, int tile) const {
      SL_UNROLL
      for (int i = 0; i < kGroups; ++i) {
        const int first = tile * kKeys + i * 16;
        found.page[i] = pages != nullptr && first < rows ? pages[first >> page_log2] : 0;
      }
    }
    /// Zeros beyond the last row: a weight of 0 must meet a number. Eight threads copy 64 columns of a row.
    SL_DEVICE void copy(Bf16* to, int tile, const Pages& found) const {
      const int row = device::thread() / 8;
      Bf16* target = to + place(row, device::thread() % 8 * 8);
      SL_UNROLL
      for (int i = 0; i < kGroups; ++i) {
        const int first = tile * kKeys + i * 16;
        const bool valid = first + row < rows;
        const std::int64_t from = pages == nullptr ? begin + first
                                                   : (static_cast<std::int64_t>(found.page[i]) << page_log2) +
                                                         (first & ((1 << page_log2) - 1));
        const std::int64_t offset = valid ? (from + row) * stride : 0;
        SL_UNROLL
        for (int c = 0; c < HeadDim / 64; ++c) {
          device::copy_async(target + i * 16 * HeadDim + c * 64, k + offset + c * 64, valid);
          device::copy_async(target + kMatrix + i * 16 * HeadDim + c * 64, v + offset + c * 64, valid);
        }
      }
    }
  };

  /// The 16-byte pieces of a row XORed with the row: ldmatrix then meets no bank twice.
  SL_DEVICE static int place(int row, int column) { return row * HeadDim + ((column / 8) ^ (row % 8)) * 8; }

  /// Of a head of this block in the partial results.
  SL_DEVICE static std::int64_t cell(const DecodeArguments& a, int head) {
    using namespace device;
    return (static_cast<std::int64_t>(block_z()) * a.sequences + block_y()) * a.q_heads +
           block_x() * (a.q_heads / a.kv_heads) + head;
  }

  /// As first operands; rows without a head are zeros.
  SL_DEVICE static void load_queries(std::uint32_t (&q)[HeadDim / 16][4], const DecodeArguments& a, int band,
                                     int group) {
    using namespace device;
    SL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int head = band * 16 + lane() / 4 + 8 * r;
      const bool valid = head < group;
      const auto* from = reinterpret_cast<const std::uint32_t*>(
          a.q + block_y() * a.q_row + (block_x() * group + (valid ? head : 0)) * a.q_head + lane() % 4 * 2);
      SL_UNROLL
      for (int i = 0; i < HeadDim / 16; ++i) {
        q[i][r] = valid ? from[i * 8] : 0;
        q[i][r + 2] = valid ? from[i * 8 + 4] : 0;
      }
    }
  }

  SL_DEVICE static void scores(float (&s)[kStepKeys / 2], const std::uint32_t (&q)[HeadDim / 16][4],
                               const Bf16* k, int first) {
    using namespace device;
    SL_UNROLL
    for (int i = 0; i < HeadDim / 16; ++i) {
      SL_UNROLL
      for (int j = 0; j < kStepKeys / 16; ++j) {
        std::uint32_t right[4];  // 16 keys: [0], [1] the first eight, [2], [3] the others
        load_matrices(right,
                      k + place(first + j * 16 + lane() % 8 + lane() / 16 * 8, i * 16 + lane() / 8 % 2 * 8));
        mma(piece(s, 2 * j), q[i], right[0], right[1]);
        mma(piece(s, 2 * j + 1), q[i], right[2], right[3]);
      }
    }
  }

  /// Only the first `seen` columns are keys.
  SL_DEVICE static void mask(float (&s)[kStepKeys / 2], int seen) {
    SL_UNROLL
    for (int i = 0; i < kStepKeys / 2; ++i) {
      if (i / 4 * 8 + device::lane() % 4 * 2 + i % 2 >= seen) s[i] = -INFINITY;
    }
  }

  SL_DEVICE static void values(float (&o)[HeadDim / 2], const float (&s)[kStepKeys / 2], const Bf16* v,
                               int first) {
    using namespace device;
    SL_UNROLL
    for (int i = 0; i < kStepKeys / 16; ++i) {
      std::uint32_t left[4];
      prefill_parts::as_operand(left, s, i);
      SL_UNROLL
      for (int j = 0; j < HeadDim / 16; ++j) {
        std::uint32_t right[4];
        load_matrices_transposed(right, v + place(first + i * 16 + lane() % 16, j * 16 + lane() / 16 * 8));
        mma(piece(o, 2 * j), left, right[0], right[1]);
        mma(piece(o, 2 * j + 1), left, right[2], right[3]);
      }
    }
  }

  /// The four words of eight columns.
  template <int N>
  SL_DEVICE static float (&piece(float (&s)[N], int j))[4] {
    return *reinterpret_cast<float(*)[4]>(&s[4 * j]);
  }

  // What the warps exchange: results [warp][16][HeadDim, padded so that fragments meet no bank twice], then
  // the highest score and the sum of each row, [warp][16].
  static constexpr int kSharedRow = HeadDim + 8, kHighAt = 4 * 16 * kSharedRow, kSumAt = kHighAt + 4 * 16;
  static_assert((kSumAt + 4 * 16) * 4 <= kSharedBytes);

  /// Merges what the warps have of a band, and writes it.
  SL_DEVICE static void merge_warps(const DecodeArguments& a, std::byte* shared,
                                    const float (&o)[HeadDim / 2], prefill_parts::Softmax& softmax,
                                    float scale, int group) {
    using namespace device;
    softmax.finish();
    wait_copies<0>();
    sync_threads();  // the ring's place is free
    share(shared, o, softmax, scale);
    sync_threads();
    write(a, shared, group);
  }

  SL_DEVICE static void share(std::byte* shared, const float (&o)[HeadDim / 2],
                              const prefill_parts::Softmax& softmax, float scale) {
    using namespace device;
    auto* floats = reinterpret_cast<float*>(shared);
    SL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = warp() * 16 + lane() / 4 + 8 * r;
      SL_UNROLL
      for (int j = 0; j < HeadDim / 8; ++j) {
        float* to = floats + row * kSharedRow + 8 * j + lane() % 4 * 2;
        to[0] = o[4 * j + 2 * r];
        to[1] = o[4 * j + 2 * r + 1];
      }
      if (lane() % 4 == 0) {
        floats[kHighAt + row] = softmax.high[r] * scale;
        floats[kSumAt + row] = softmax.sum[r];
      }
    }
  }

  /// Each thread merges eight columns of a head.
  SL_DEVICE static void write(const DecodeArguments& a, const std::byte* shared, int group) {
    using namespace device;
    const auto* floats = reinterpret_cast<const float*>(shared);
    SL_UNROLL_BY(1)
    for (int index = thread(); index < group * kPieces; index += kThreads) {
      const int head = index / kPieces, column = index % kPieces * 8;
      float high = -INFINITY, sum = 0, o[8] = {};
      SL_UNROLL
      for (int p = 0; p < kParts; ++p) high = fmaxf(high, floats[kHighAt + row_of(head, p)]);
      SL_UNROLL
      for (int p = 0; p < kParts; ++p) {
        const int row = row_of(head, p);
        const float part_high = floats[kHighAt + row];
        const float weight = part_high == -INFINITY ? 0.0f : exp2_fast(part_high - high);
        sum += weight * floats[kSumAt + row];
        SL_UNROLL
        for (int i = 0; i < 8; ++i) o[i] += weight * floats[row * kSharedRow + column + i];
      }
      const float weight = sum > 0 ? 1 / sum : 0.0f;
      const float lse = sum > 0 ? (high + log2_fast(sum)) * kLn2 : -INFINITY;
      SL_UNROLL
      for (float& value : o) value *= weight;
      write_piece(a, head, column, o, lse);
    }
  }

  SL_DEVICE static int row_of(int head, int part) { return (part * Bands + head / 16) * 16 + head % 16; }

  SL_DEVICE static void write_piece(const DecodeArguments& a, int head, int column, const float (&o)[8],
                                    float lse) {
    using namespace device;
    if (a.splits > 1) {
      auto* to = reinterpret_cast<Floats4*>(a.partial_out + cell(a, head) * HeadDim + column);
      to[0] = {{o[0], o[1], o[2], o[3]}};
      to[1] = {{o[4], o[5], o[6], o[7]}};
      if (column == 0) a.partial_lse[cell(a, head)] = lse;
      return;
    }
    const int q_head = block_x() * (a.q_heads / a.kv_heads) + head;
    *reinterpret_cast<Words4*>(a.out + block_y() * a.out_row + q_head * a.out_head + column) = {
        {pack(o[0], o[1]), pack(o[2], o[3]), pack(o[4], o[5]), pack(o[6], o[7])}};
    if (column == 0 && a.lse != nullptr) a.lse[block_y() * a.lse_row + q_head] = lse;
  }
};

/// Merges the splits of one head of one sequence. Few heads have many splits: eight warps share them, and
/// each keeps several loads under way.
template <int HeadDim>
struct DecodeMerge {
  static constexpr int kThreads = 256, kWarps = kThreads / 32, kWidth = HeadDim / 32, kBatch = 4;
  static constexpr int kSharedBytes = kWarps * (HeadDim + 2) * 4;

  /// `shared`: kSharedBytes, aligned to 16. Grid: [query heads][sequences].
  SL_DEVICE static void run(const DecodeArguments& a, std::byte* shared) {
    using namespace device;
    const std::int64_t cells = static_cast<std::int64_t>(a.sequences) * a.q_heads;
    const std::int64_t cell = static_cast<std::int64_t>(block_y()) * a.q_heads + block_x();
    float high = -INFINITY, sum = 0, o[kWidth] = {};
    SL_UNROLL_BY(1)
    for (int first = warp(); first < a.splits; first += kWarps * kBatch) {
      float lse[kBatch], now = high;
      Piece part[kBatch];
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const int split = first + i * kWarps;
        const std::int64_t at = (split < a.splits ? split : first) * cells + cell;
        lse[i] = split < a.splits ? a.partial_lse[at] : -INFINITY;
        part[i] = reinterpret_cast<const Piece*>(a.partial_out + at * HeadDim)[lane()];
      }
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) now = fmaxf(now, lse[i]);
      if (now == -INFINITY) continue;
      add_to(o, sum, exp2_fast((high - now) * kLog2E));
      high = now;
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        if (lse[i] == -INFINITY) continue;  // its output was not written
        const float weight = exp2_fast((lse[i] - high) * kLog2E);
        sum += weight;
        SL_UNROLL
        for (int j = 0; j < kWidth; ++j) o[j] += weight * part[i].v[j];
      }
    }
    auto* outs = reinterpret_cast<float*>(shared);
    float *highs = outs + kWarps * HeadDim, *sums = highs + kWarps;
    SL_UNROLL
    for (int j = 0; j < kWidth; ++j) outs[warp() * HeadDim + lane() * kWidth + j] = o[j];
    if (lane() == 0) {
      highs[warp()] = high;
      sums[warp()] = sum;
    }
    sync_threads();
    if (warp() == 0) write(a, outs, highs, sums);
  }

 private:
  struct alignas(kWidth * 4) Piece {
    float v[kWidth];
  };

  SL_DEVICE static void add_to(float (&o)[kWidth], float& sum, float factor) {
    sum *= factor;
    SL_UNROLL
    for (float& value : o) value *= factor;
  }

  SL_DEVICE static void write(const DecodeArguments& a, const float* outs, const float* highs,
                              const float* sums) {
    using namespace device;
    float high = -INFINITY, sum = 0, o[kWidth] = {};
    SL_UNROLL
    for (int w = 0; w < kWarps; ++w) high = fmaxf(high, highs[w]);
    SL_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      if (highs[w] == -INFINITY) continue;
      const float weight = exp2_fast((highs[w] - high) * kLog2E);
      sum += weight * sums[w];
      SL_UNROLL
      for (int j = 0; j < kWidth; ++j) o[j] += weight * outs[w * HeadDim + lane() * kWidth + j];
    }
    const float weight = sum > 0 ? 1 / sum : 0.0f;
    auto* to = reinterpret_cast<std::uint32_t*>(a.out + block_y() * a.out_row + block_x() * a.out_head) +
               lane() * (kWidth / 2);
    SL_UNROLL
    for (int j = 0; j < kWidth / 2; ++j) to[j] = pack(o[2 * j] * weight, o[2 * j + 1] * weight);
    if (lane() == 0 && a.lse != nullptr)
      a.lse[block_y() * a.lse_row + block_x()] = sum > 0 ? high + log2_fast(sum) * kLn2 : -INFINITY;
  }
};

}  // namespace shardline
