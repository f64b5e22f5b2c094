// Prefill attention for compute capability 8.0 and up, after FlashAttention-2 (arXiv 2307.08691): a block of
// four warps is 128 query rows of one head, 32 rows per warp; keys come in tiles of 64 rows. The copy of the
// values runs under the product of the scores, that of the next keys under softmax and values. 64 KiB of
// shared memory at head dimension 128, so that two blocks share a multiprocessor.
#pragma once

#include "cuda_probe/device/mma.hpp"
#include "cuda_probe/kernels/prefill_parts.hpp"

namespace shardline {

template <int QkDim, int VDim>
struct PrefillMma {
  static constexpr int kThreads = 128, kKeys = 64, kBands = 2;  // bands of 16 rows per warp
  static constexpr int kQAt = 0, kKAt = kQueryTile * QkDim * 2, kVAt = kKAt + kKeys * QkDim * 2;
  static constexpr int kSharedBytes = kVAt + kKeys * VDim * 2;
  using Arguments = PrefillArguments;

  /// `shared`: kSharedBytes, aligned to 16. Grid: [query heads][query tiles].
  SL_DEVICE static void run(const Arguments& a, std::byte* shared) {
    using namespace device;
    const auto [tile, head] = prefill_parts::work_of_block<QkDim, VDim>(a);
    const int kv_head = head / (a.q_heads / a.kv_heads);
    const int first_row = tile * kQueryTile;
    const float scale = a.scale * kLog2E;
    auto* q = reinterpret_cast<Bf16*>(shared + kQAt);
    auto* k = reinterpret_cast<Bf16*>(shared + kKAt);
    auto* v = reinterpret_cast<Bf16*>(shared + kVAt);

    prefill_parts::Softmax softmax[kBands];
    float o[kBands][VDim / 2] = {};
    prefill_parts::KeyTiles tiles(a, tile);
    if (!tiles.done()) {
      const Bf16* k_head = a.k + kv_head * a.kv_head;
      const Bf16* v_head = a.v + kv_head * a.kv_head;
      copy<QkDim, kQueryTile>(q, a.q + head * a.q_head, a.q_row, first_row, a.q_rows);
      copy<QkDim, kKeys>(k, k_head, a.kv_row, tiles.first, a.kv_rows);
      commit_copies();
      while (!tiles.done()) {
        const int first = tiles.first, masked = tiles.now.masked;
        tiles.next(kKeys);
        wait_copies<0>();
        sync_threads();  // k is there; all have read the last v
        copy<VDim, kKeys>(v, v_head, a.kv_row, first, a.kv_rows);
        commit_copies();

        float s[kBands][kKeys / 2] = {};
        scores(s, q, k);
        wait_copies<0>();
        sync_threads();  // v is there; all have read k
        if (!tiles.done()) copy<QkDim, kKeys>(k, k_head, a.kv_row, tiles.first, a.kv_rows);
        commit_copies();

        SL_UNROLL
        for (int band = 0; band < kBands; ++band) {
          float factor[2];
          if (masked) {
            const int row = first_row + warp() * 32 + band * 16 + lane() / 4;
            const Visible rows[2] = {prefill_parts::visible_to(a, row),
                                     prefill_parts::visible_to(a, row + 8)};
            prefill_parts::mask(s[band], a.codes + first, rows);
          }
          softmax[band].step(s[band], scale, factor);
          prefill_parts::rescale(o[band], factor);
        }
        values(o, s, v);
      }
      wait_copies<0>();
    }
    SL_UNROLL
    for (int band = 0; band < kBands; ++band) softmax[band].finish();
    // q's place is free: a barrier followed the last scores.
    write(a, q, o, softmax, scale, first_row, head);
  }

 private:
  /// Rows of Width values, their 16-byte pieces XORed with the row: ldmatrix then meets no bank twice.
  template <int Width>
  SL_DEVICE static int place(int row, int column) {
    return row * Width + ((column / 8) ^ (row % 8)) * 8;
  }

  template <int Width, int Rows>
  SL_DEVICE static void copy(Bf16* to, const Bf16* from, std::int64_t stride, int first, int rows) {
    // Eight threads copy 64 columns of a row; what differs between a thread's pieces are constants.
    const int row = device::thread() / 8, piece = device::thread() % 8;
    const Bf16* source = from + (first + row) * stride + piece * 8;
    Bf16* target = to + place<Width>(row, piece * 8);
    SL_UNROLL_BY(2)
    for (int i = 0; i < Rows / 16; ++i) {
      const bool valid = first + row + i * 16 < rows;
      SL_UNROLL
      for (int c = 0; c < Width / 64; ++c)
        device::copy_async(target + i * 16 * Width + c * 64, valid ? source + c * 64 : from, valid);
      source += 16 * stride;
    }
  }

  SL_DEVICE static void scores(float (&s)[kBands][kKeys / 2], const Bf16* q, const Bf16* k) {
    using namespace device;
    SL_UNROLL_BY(1)
    for (int i = 0; i < QkDim / 16; ++i) {
      std::uint32_t left[kBands][4];
      SL_UNROLL
      for (int band = 0; band < kBands; ++band)
        load_matrices(left[band],
                      q + place<QkDim>(warp() * 32 + band * 16 + lane() % 16, i * 16 + lane() / 16 * 8));
      SL_UNROLL
      for (int j = 0; j < kKeys / 16; ++j) {
        std::uint32_t right[4];  // 16 keys: [0], [1] the first eight, [2], [3] the others
        load_matrices(right,
                      k + place<QkDim>(j * 16 + lane() % 8 + lane() / 16 * 8, i * 16 + lane() / 8 % 2 * 8));
        SL_UNROLL
        for (int band = 0; band < kBands; ++band) {
          mma(piece(s[band], 2 * j), left[band], right[0], right[1]);
          mma(piece(s[band], 2 * j + 1), left[band], right[2], right[3]);
        }
      }
    }
  }

  SL_DEVICE static void values(float (&o)[kBands][VDim / 2], const float (&s)[kBands][kKeys / 2],
                               const Bf16* v) {
    using namespace device;
    SL_UNROLL
    for (int i = 0; i < kKeys / 16; ++i) {
      std::uint32_t left[kBands][4];
      SL_UNROLL
      for (int band = 0; band < kBands; ++band) prefill_parts::as_operand(left[band], s[band], i);
      SL_UNROLL
      for (int j = 0; j < VDim / 16; ++j) {
        std::uint32_t right[4];
        load_matrices_transposed(right, v + place<VDim>(i * 16 + lane() % 16, j * 16 + lane() / 16 * 8));
        SL_UNROLL
        for (int band = 0; band < kBands; ++band) {
          mma(piece(o[band], 2 * j), left[band], right[0], right[1]);
          mma(piece(o[band], 2 * j + 1), left[band], right[2], right[3]);
        }
      }
    }
  }

  /// The four words of eight columns.
  template <int N>
  SL_DEVICE static float (&piece(float (&s)[N], int j))[4] {
    return *reinterpret_cast<float(*)[4]>(&s[4 * j]);
  }

  SL_DEVICE static void write(const PrefillArguments& a, Bf16* shared, const float (&o)[kBands][VDim / 2],
                              const prefill_parts::Softmax (&softmax)[kBands], float scale, int first_row,
                              int head) {
    using namespace device;
    SL_UNROLL
    for (int band = 0; band < kBands; ++band) {
      SL_UNROLL
      for (int r = 0; r < 2; ++r) {
        const int in_tile = warp() * 32 + band * 16 + lane() / 4 + 8 * r, row = first_row + in_tile;
        const float weight = softmax[band].weight(r);
        SL_UNROLL
        for (int j = 0; j < VDim / 8; ++j)
          *reinterpret_cast<std::uint32_t*>(shared + place<VDim>(in_tile, 8 * j) + lane() % 4 * 2) =
              pack(o[band][4 * j + 2 * r] * weight, o[band][4 * j + 2 * r + 1] * weight);
        if (lane() % 4 == 0 && row < a.q_rows) a.lse[row * a.lse_row + head] = softmax[band].lse(r, scale);
      }
    }
    sync_warp();
    constexpr int kPieces = VDim / 8;
    SL_UNROLL
    for (int i = 0; i < 32 * kPieces / 32; ++i) {
      const int index = i * 32 + lane(), in_tile = warp() * 32 + index / kPieces, piece8 = index % kPieces;
      if (first_row + in_tile < a.q_rows)
        *reinterpret_cast<Words4*>(a.out + (first_row + in_tile) * a.out_row + head * a.out_head +
                                   piece8 * 8) =
            *reinterpret_cast<const Words4*>(shared + place<VDim>(in_tile, piece8 * 8));
    }
  }
};

}  // namespace shardline
