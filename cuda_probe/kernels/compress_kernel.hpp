// Top-k of KV rows by score (contract: CompressArguments). Two kernels: one block per KV head finds the k-th
// highest score by a radix select over the scores' bits (11, 11 and 10 of them: three reads of the scores)
// and writes the chosen rows in order (a fourth); then all multiprocessors copy the rows.
//
// One block per KV head: more would need global memory for their counts. At an estimated 0.1 TB/s per block a
// choice among 128k rows takes some 30 us, all heads at once; copying a quarter of them (8 heads of 128) 70
// us.
#pragma once

#include "cuda_probe/device/simt.hpp"
#include "cuda_probe/kernels/attention.hpp"

namespace shardline {

/// Bytes that a compression must move in HBM: scores once, chosen rows read and written.
SL_BOTH double compress_bytes(const CompressArguments& a) {
  return a.kv_heads * (4.0 * a.rows + a.keep * (4.0 + 2 * 2 * 2.0 * a.head_dim));
}

/// Numbers that order as the scores do: NaN lowest, -0 equal to 0.
SL_BOTH std::uint32_t score_key(float score) {
  std::uint32_t bits;
  memcpy(&bits, &score, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0;
  if ((bits & 0x7fffffffu) == 0) return 0x80000000u;
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

namespace compress_parts {

#ifdef __CUDACC__
SL_DEVICE int count_bits(std::uint32_t bits) { return __popc(bits); }
#else
SL_DEVICE int count_bits(std::uint32_t bits) { return __builtin_popcount(bits); }
#endif

/// Sum over this and all lower lanes.
SL_DEVICE int warp_sums(int value) {
  SL_UNROLL
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = device::shuffle(value, device::lane() - distance);
    if (device::lane() >= distance) value += other;
  }
  return value;
}

}  // namespace compress_parts

/// Threads: a multiple of 32, at most 1024, that divides kBins.
template <int Threads>
struct CompressSelect {
  static constexpr int kThreads = Threads, kWarps = Threads / 32, kBins = 2048;
  static constexpr int kBatch = 8;  // scores of a thread under way together
  static constexpr int kSharedBytes = (kBins + 4 * 32 + 2) * 4;
  static_assert(kBins % Threads == 0 && Threads % 32 == 0);

  /// `shared`: kSharedBytes, aligned to 4. Grid: [KV heads]. keep > 0.
  SL_DEVICE static void run(const CompressArguments& a, std::byte* shared) {
    auto* ints = reinterpret_cast<int*>(shared);
    const float* scores = a.scores + static_cast<std::int64_t>(device::block_x()) * a.rows;
    Choice c{0, a.keep};
    narrow<21>(c, 11, scores, a.rows, ints);
    narrow<10>(c, 11, scores, a.rows, ints);
    narrow<0>(c, 10, scores, a.rows, ints);
    list(c, scores, a.rows, a.chosen + static_cast<std::int64_t>(device::block_x()) * a.keep, ints + kBins);
  }

 private:
  /// All keys above `key` are kept, and the first `equal` of those that equal it; while narrowing, `key` is
  /// known down to some bit, and `equal` counts those that agree with it so far.
  struct Choice {
    std::uint32_t key;
    int equal;
  };

  /// Bits [Shift, Shift + bits) of the key.
  template <int Shift>
  SL_DEVICE static void narrow(Choice& c, int bits, const float* scores, int rows, int* ints) {
    using namespace device;
    int *bins = ints, *sums = ints + kBins, *found = ints + kBins + 4 * 32;
    const std::uint32_t mask = (1u << bits) - 1;
    const std::uint32_t known = Shift + bits >= 32 ? 0 : ~0u << (Shift + bits) % 32;
    for (int i = thread(); i < kBins; i += kThreads) bins[i] = 0;
    sync_threads();
    SL_UNROLL_BY(1)
    for (std::int64_t first = thread(); first < rows; first += kThreads * kBatch) {
      float score[kBatch];
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i)
        score[i] = first + i * kThreads < rows ? scores[first + i * kThreads] : 0.0f;
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const std::uint32_t key = score_key(score[i]);
        if (first + i * kThreads < rows && (key & known) == c.key)
          atomic_add(&bins[(key >> Shift) & mask], 1);
      }
    }
    sync_threads();
    // From the highest bin down; thread t has kEach bins.
    constexpr int kEach = kBins / kThreads;
    const int top = kBins - 1 - thread() * kEach;
    int mine = 0;
    SL_UNROLL
    for (int i = 0; i < kEach; ++i) mine += bins[top - i];
    const int through = compress_parts::warp_sums(mine);
    if (lane() == 31) sums[warp()] = through;
    sync_threads();
    int above = through - mine + before_warp(sums);
    if (above < c.equal && c.equal <= above + mine) {
      int bin = top;
      while (above + bins[bin] < c.equal) above += bins[bin--];
      found[0] = bin;
      found[1] = above;
    }
    sync_threads();
    c.key |= static_cast<std::uint32_t>(found[0]) << Shift;
    c.equal -= found[1];
  }

  /// Sum of sums[0 .. warp() - 1].
  SL_DEVICE static int before_warp(const int* sums) {
    using namespace device;
    const int through = compress_parts::warp_sums(lane() < kWarps ? sums[lane()] : 0);
    const int before = shuffle(through, warp() - 1);
    return warp() == 0 ? 0 : before;
  }

  SL_DEVICE static void read(float (&score)[kBatch], const float* scores, std::int64_t first, int rows) {
    SL_UNROLL
    for (int i = 0; i < kBatch; ++i) score[i] = first + i * 32 < rows ? scores[first + i * 32] : NAN;
  }

  /// A warp takes 32 * kBatch rows in a row, a block kWarps times as many.
  SL_DEVICE static void list(const Choice& c, const float* scores, int rows, std::int32_t* chosen,
                             int* sums) {
    using namespace device;
    const std::uint32_t below = (1u << lane()) - 1;
    int higher_before = 0, equal_before = 0;  // in the rows of earlier turns
    float score[kBatch], next[kBatch];
    read(next, scores, warp() * 32 * kBatch + lane(), rows);
    int* now = sums;  // two places by turns, so that one barrier is enough
    SL_UNROLL_BY(1)
    for (std::int64_t turn = 0; turn < rows; turn += kThreads * kBatch) {
      const std::int64_t first = turn + warp() * 32 * kBatch + lane();
      std::uint32_t higher[kBatch], equal[kBatch];
      int higher_here = 0, equal_here = 0;
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) score[i] = next[i];
      read(next, scores, first + kThreads * kBatch, rows);
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const std::uint32_t key = score_key(score[i]);
        const bool is_row = first + i * 32 < rows;
        higher[i] = ballot(is_row && key > c.key);
        equal[i] = ballot(is_row && key == c.key);
        higher_here += compress_parts::count_bits(higher[i]);
        equal_here += compress_parts::count_bits(equal[i]);
      }
      if (lane() == 0) {
        now[warp()] = higher_here;
        now[32 + warp()] = equal_here;
      }
      sync_threads();
      const int higher_through = compress_parts::warp_sums(lane() < kWarps ? now[lane()] : 0);
      const int equal_through = compress_parts::warp_sums(lane() < kWarps ? now[32 + lane()] : 0);
      int h = shuffle(higher_through, warp()) - higher_here + higher_before;
      int e = shuffle(equal_through, warp()) - equal_here + equal_before;
      SL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const int h_mine = h + compress_parts::count_bits(higher[i] & below);
        const int e_mine = e + compress_parts::count_bits(equal[i] & below);
        const bool is_equal = (equal[i] >> lane() & 1) != 0;
        if ((higher[i] >> lane() & 1) != 0 || (is_equal && e_mine < c.equal))
          chosen[h_mine + (e_mine < c.equal ? e_mine : c.equal)] = static_cast<std::int32_t>(first + i * 32);
        h += compress_parts::count_bits(higher[i]);
        e += compress_parts::count_bits(equal[i]);
      }
      higher_before += shuffle(higher_through, 31);
      equal_before += shuffle(equal_through, 31);
      now = now == sums ? sums + 64 : sums;
    }
  }
};

/// Copies the chosen rows, 16 bytes of a key and of a value at a time.
struct CompressGather {
  static constexpr int kThreads = 256, kSharedBytes = 0;
  static constexpr int kBatch = 4;  // rows of a thread under way together

  /// Blocks per KV head.
  SL_BOTH static int blocks(const CompressArguments& a) {
    const int rows = rows_of_block(a);
    return a.keep / rows + (a.keep % rows != 0 ? 1 : 0);
  }

  /// Grid: [blocks()][KV heads].
  SL_DEVICE static void run(const CompressArguments& a, std::byte*) {
    using namespace device;
    const int pieces = a.head_dim / 8, together = kThreads / pieces;
    const int row = thread() / pieces, column = thread() % pieces * 8;
    if (row >= together) return;
    const int first = block_x() * together * kBatch + row;
    const std::int32_t* chosen = a.chosen + static_cast<std::int64_t>(block_y()) * a.keep;
    const std::int64_t from = block_y() * a.kv_head + column, to = block_y() * a.out_head + column;
    Words4 k[kBatch], v[kBatch];
    SL_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const int place = first + i * together;
      if (place >= a.keep) continue;
      const std::int64_t at = chosen[place] * a.kv_row + from;
      k[i] = *reinterpret_cast<const Words4*>(a.k + at);
      v[i] = *reinterpret_cast<const Words4*>(a.v + at);
    }
    SL_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const int place = first + i * together;
      if (place >= a.keep) continue;
      *reinterpret_cast<Words4*>(a.k_out + place * a.out_row + to) = k[i];
      *reinterpret_cast<Words4*>(a.v_out + place * a.out_row + to) = v[i];
    }
  }

 private:
  SL_BOTH static int rows_of_block(const CompressArguments& a) {
    return kThreads / (a.head_dim / 8) * kBatch;
  }
};

}  // namespace shardline
