// MLA decode on the latent cache for compute capability 8.0 and up (DeepSeek-V2, arXiv 2405.04434, Section
// 2.1, projections absorbed). A block of eight warps is a tile of heads of one sequence and one piece of its
// cache, which passes once through a ring of kStages tiles and serves as keys and as values.
//
// Scores: two warps share 16 heads and a group of keys, each over half of the 576 columns, its half of the
// queries in registers; they exchange sums, and each goes on with 8 heads. Values: each warp owns 64 of the
// 512 columns for all heads and reads the weights of all from shared memory. The values of a tile and the
// scores of the next lie between the same two barriers: tensor cores rest during softmax only.
#pragma once

#include "cuda_probe/device/mma.hpp"
#include "cuda_probe/kernels/attention.hpp"

namespace shardline {

/// Heads: 16, 32 or 64 per block. Keys: 16 or 32 per tile; Heads * Keys >= 512.
template <int Heads, int Keys>
struct MlaDecodeMma {
  static constexpr int kThreads = 256, kHeads = Heads, kKeys = Keys, kStages = 4;
  static constexpr int kRow = kLatent + kRotary;
  static constexpr int kBands = Heads / 16, kGroups = 4 / kBands, kGroupKeys = Keys / kGroups;
  static constexpr int kMine = kGroupKeys / 4;  // scores that a thread turns to weights
  static constexpr int kTile = Keys * kRow;     // values
  // Not a multiple of 128 bytes: ldmatrix then meets no bank twice.
  static constexpr int kWeightRow = Keys + 8, kWeights = Heads * kWeightRow;
  static constexpr int kWeightsAt = kStages * kTile * 2, kExchangeAt = kWeightsAt + 2 * kWeights * 2;
  static constexpr int kFactorsAt = kExchangeAt + kThreads * kMine * 4;
  static constexpr int kGroupsAt = kFactorsAt + 2 * Heads * 4;
  static constexpr int kSharedBytes = kGroupsAt + (kGroups > 1 ? kGroups * Heads * 4 : 0);
  static_assert((Keys == 16 || Keys == 32) && kGroupKeys >= 8 && kStages * kTile >= Heads * kLatent);
  using Arguments = MlaDecodeArguments;

  /// `shared`: kSharedBytes, aligned to 16. Grid: [tiles of heads][splits][sequences].
  SL_DEVICE static void run(const Arguments& a, std::byte* shared) {
    using namespace device;
    const Place at;
    Rows rows(a);
    const int keys = rows.last - rows.first, tiles = (keys + Keys - 1) / Keys;
    const float scale = a.scale * kLog2E;
    if (tiles == 0 && a.splits > 1) {  // the merge does not read its output
      if (thread() < Heads && first_head() + thread() < a.q_heads)
        a.partial_lse[partial_row(a, first_head() + thread())] = -INFINITY;
      return;
    }
    SL_UNROLL_BY(1)
    for (int i = 0; i < kStages - 1; ++i) {
      if (i < tiles) rows.copy(a, tile(shared, i));
      commit_copies();
    }
    std::uint32_t q[kSteps][4];
    load_queries(q, a, at);

    float o[kBands][8][4] = {}, s[kGroupKeys / 8][4] = {};
    float high = -INFINITY, sum = 0;
    wait_copies<kStages - 2>();
    sync_threads();
    if (tiles > 0) scores(s, q, tile(shared, 0), at);
    SL_UNROLL_BY(1)
    for (int t = 0; t < tiles; ++t) {
      auto* weights = reinterpret_cast<Bf16*>(shared + kWeightsAt) + t % 2 * kWeights;
      float* factors = reinterpret_cast<float*>(shared + kFactorsAt) + t % 2 * Heads;
      float p[kMine];
      exchange(p, s, shared, at);
      if (t == tiles - 1) {
        const int left = keys - t * Keys - at.group * kGroupKeys - lane() % 4 * 2;
        SL_UNROLL
        for (int i = 0; i < kMine; ++i) {
          if (i / 2 * 8 + i % 2 >= left) p[i] = -INFINITY;
        }
      }
      softmax(p, high, sum, scale, weights, factors, shared, at);
      wait_copies<kStages - 3>();
      sync_threads();  // weights and the next tile are there; all have read the last tile
      // No copies beyond the last tile: finish() finds none under way.
      if (t + kStages - 1 < tiles) rows.copy(a, tile(shared, t + kStages - 1));
      commit_copies();
      values(o, weights, factors, tile(shared, t));
      if (t + 1 < tiles) scores(s, q, tile(shared, t + 1), at);
    }
    finish(a, o, high, sum, scale, shared, at);
  }

 private:
  static constexpr int kSteps = kRow / 32;  // of 16 columns: half of them all

  /// What a warp's scores are of (half of the columns, 16 heads, a group of keys), and the thread's own head.
  struct Place {
    int half, band, group, row;
    SL_DEVICE Place()
        : half(device::warp() % 2),
          band(device::warp() / 2 % kBands),
          group(device::warp() / 2 / kBands),
          row(band * 16 + half * 8 + device::lane() / 4) {}
  };

  /// The piece [first, last) of the cache, and the rows of it that this thread copies.
  struct Rows {
    int first, last, row, page, page_log2;

    SL_DEVICE explicit Rows(const Arguments& a) : page(0), page_log2(0) {
      const int length = a.kv_rows[device::block_z()], tiles = (length + Keys - 1) / Keys;
      const int per_split = (tiles + a.splits - 1) / a.splits;
      first = min_of(device::block_y() * per_split, tiles) * Keys;
      last = min_of(first + per_split * Keys, length);
      if (last < first) last = first;
      row = first + device::thread() / 8 % Keys;
      while (1 << page_log2 < a.page_rows) ++page_log2;
      find_page(a);
    }

    /// Each call copies the next tile.
    SL_DEVICE void copy(const Arguments& a, Bf16* to) {
      using namespace device;
      const bool valid = row < last;
      const int chunk = thread() / (8 * Keys), piece = thread() % 8;
      const Bf16* from = a.kv;
      if (valid) from += at(a) * a.kv_row + chunk * 64 + piece * 8;
      to += place(thread() / 8 % Keys, chunk, piece);
      SL_UNROLL
      for (int c = 0; c < kRow / 64; c += kThreads / 8 / Keys) {
        if (c + chunk < kRow / 64) copy_async(to + c * 64, valid ? from + c * 64 : from, valid);
      }
      row += Keys;
      find_page(a);
    }

   private:
    SL_DEVICE static int min_of(int x, int y) { return x < y ? x : y; }
    SL_DEVICE std::int64_t at(const Arguments& a) const {
      if (a.pages == nullptr) return a.kv_begin[device::block_z()] + row;
      return (std::int64_t{page} << page_log2) + (row & ((1 << page_log2) - 1));
    }
    /// A tile ahead of its use, so that nobody waits for it.
    SL_DEVICE void find_page(const Arguments& a) {
      if (a.pages != nullptr && row < last)
        page = a.pages[std::int64_t{device::block_z()} * a.most_pages + (row >> page_log2)];
    }
  };

  SL_DEVICE static int first_head() { return device::block_x() * Heads; }
  SL_DEVICE static Bf16* tile(std::byte* shared, int index) {
    return reinterpret_cast<Bf16*>(shared) + index % kStages * kTile;
  }
  /// In chunks of 64 columns the 16-byte pieces are XORed with the row: ldmatrix meets no bank twice.
  SL_DEVICE static int place(int row, int chunk, int piece) {
    return row * kRow + chunk * 64 + (piece ^ row % 8) * 8;
  }
  /// Of the 36 steps, a half has 16 of the latent columns and 2 of the rotary ones.
  SL_DEVICE static int chunk_of(int half, int step) { return step < 16 ? half * 4 + step / 4 : 8; }
  SL_DEVICE static int piece_of(int half, int step) {
    return step < 16 ? step % 4 * 2 : half * 4 + step % 4 * 2;
  }
  /// Where piece_of(half, step) + `more` of a row is, `start` being place(row, 0, more). A form that costs
  /// few registers.
  SL_DEVICE static int step_place(int start, int half, int step) {
    return (start ^ (step < 16 ? step % 4 * 16 : half * 32 + step % 4 * 16)) + chunk_of(half, step) * 64;
  }

  SL_DEVICE static void load_queries(std::uint32_t (&q)[kSteps][4], const Arguments& a, const Place& at) {
    using namespace device;
    const int head = first_head() + at.band * 16 + lane() / 4;
    const Bf16* row = a.q + block_z() * a.q_row + head * a.q_head + lane() % 4 * 2;
    SL_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      SL_UNROLL
      for (int w = 0; w < 4; ++w) {
        const int column = chunk_of(at.half, i) * 64 + (piece_of(at.half, i) + w / 2) * 8;
        q[i][w] = head + w % 2 * 8 < a.q_heads
                      ? *reinterpret_cast<const std::uint32_t*>(row + w % 2 * 8 * a.q_head + column)
                      : 0u;
      }
    }
  }

  SL_DEVICE static void scores(float (&s)[kGroupKeys / 8][4], const std::uint32_t (&q)[kSteps][4],
                               const Bf16* k, const Place& at) {
    using namespace device;
    SL_UNROLL
    for (int j = 0; j < kGroupKeys / 8; ++j) {
      SL_UNROLL
      for (int i = 0; i < 4; ++i) s[j][i] = 0;
    }
    std::uint32_t right[4];
    if constexpr (kGroupKeys == 8) {
      const int start = place(at.group * 8 + lane() % 8, 0, lane() / 8);
      float other[4] = {};  // two sums, that the products wait less for each other
      SL_UNROLL
      for (int i = 0; i < kSteps; i += 2) {
        load_matrices(right, k + step_place(start, at.half, i));
        mma(s[0], q[i], right[0], right[1]);
        mma(other, q[i + 1], right[2], right[3]);
      }
      SL_UNROLL
      for (int i = 0; i < 4; ++i) s[0][i] += other[i];
    } else {
      const int start = place(at.group * kGroupKeys + lane() % 8 + lane() / 16 * 8, 0, lane() / 8 % 2);
      SL_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        SL_UNROLL
        for (int j = 0; j < kGroupKeys / 16; ++j) {
          load_matrices(right, k + step_place(start, at.half, i) + j * 16 * kRow);
          mma(s[2 * j], q[i], right[0], right[1]);
          mma(s[2 * j + 1], q[i], right[2], right[3]);
        }
      }
    }
  }

  /// Sums of both halves of the columns, for the eight heads that become this warp's.
  SL_DEVICE static void exchange(float (&p)[kMine], const float (&s)[kGroupKeys / 8][4], std::byte* shared,
                                 const Place& at) {
    using namespace device;
    float* box = reinterpret_cast<float*>(shared + kExchangeAt) + lane();
    SL_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const float low = s[i / 2][i % 2], high = s[i / 2][2 + i % 2];
      p[i] = at.half == 0 ? low : high;
      box[(warp() * kMine + i) * 32] = at.half == 0 ? high : low;
    }
    sync_named(1 + warp() / 2, 64);
    SL_UNROLL
    for (int i = 0; i < kMine; ++i) p[i] += box[((warp() ^ 1) * kMine + i) * 32];
  }

  /// Online softmax of the thread's head; `sum` only over its own columns.
  SL_DEVICE static void softmax(float (&p)[kMine], float& high, float& sum, float scale, Bf16* weights,
                                float* factors, std::byte* shared, const Place& at) {
    using namespace device;
    float now = high;
    SL_UNROLL
    for (int i = 0; i < kMine; ++i) now = fmaxf(now, p[i]);
    now = fmaxf(now, shuffle_xor(now, 1));
    now = fmaxf(now, shuffle_xor(now, 2));
    if constexpr (kGroups > 1) {
      float* highs = reinterpret_cast<float*>(shared + kGroupsAt) + at.row;
      if (lane() % 4 == 0) highs[at.group * Heads] = now;
      sync_threads();
      SL_UNROLL
      for (int g = 0; g < kGroups; ++g) now = fmaxf(now, highs[g * Heads]);
    }
    // Infinity - infinity must not arise.
    const float shift = now == -INFINITY ? 0.0f : now * scale;
    const float factor = now == high ? 1.0f : exp2_fast(high * scale - shift);
    high = now;
    sum *= factor;
    if (lane() % 4 == 0 && at.group == 0) factors[at.row] = factor;
    Bf16* row = weights + at.row * kWeightRow + at.group * kGroupKeys + lane() % 4 * 2;
    SL_UNROLL
    for (int i = 0; i < kMine; i += 2) {
      const float left = exp2_fast(p[i] * scale - shift), right = exp2_fast(p[i + 1] * scale - shift);
      sum += left + right;
      *reinterpret_cast<std::uint32_t*>(row + i / 2 * 8) = pack(left, right);
    }
  }

  SL_DEVICE static void values(float (&o)[kBands][8][4], const Bf16* weights, const float* factors,
                               const Bf16* v) {
    using namespace device;
    if (ballot(factors[lane() % Heads] != 1 || factors[(lane() + 32) % Heads] != 1) != 0) {
      SL_UNROLL
      for (int r = 0; r < kBands * 2; ++r) {
        const float factor = factors[r * 8 + lane() / 4];
        SL_UNROLL
        for (int j = 0; j < 8; ++j) {
          o[r / 2][j][r % 2 * 2] *= factor;
          o[r / 2][j][r % 2 * 2 + 1] *= factor;
        }
      }
    }
    const int start = place(lane() % 16, warp(), lane() / 16);
    SL_UNROLL_BY(1)
    for (int i = 0; i < Keys / 16; ++i) {
      std::uint32_t left[kBands][4], right[4];
      SL_UNROLL
      for (int b = 0; b < kBands; ++b)
        load_matrices(left[b], weights + (b * 16 + lane() % 16) * kWeightRow + i * 16 + lane() / 16 * 8);
      SL_UNROLL
      for (int j = 0; j < 4; ++j) {
        load_matrices_transposed(right, v + (start ^ j * 16) + i * 16 * kRow);
        SL_UNROLL
        for (int b = 0; b < kBands; ++b) {
          mma(o[b][2 * j], left[b], right[0], right[1]);
          mma(o[b][2 * j + 1], left[b], right[2], right[3]);
        }
      }
    }
  }

  SL_DEVICE static std::int64_t partial_row(const Arguments& a, int head) {
    return (std::int64_t{device::block_y()} * a.sequences + device::block_z()) * a.q_heads + head;
  }

  SL_DEVICE static void finish(const Arguments& a, const float (&o)[kBands][8][4], float high, float sum,
                               float scale, std::byte* shared, const Place& at) {
    using namespace device;
    float* weights = reinterpret_cast<float*>(shared + kFactorsAt);
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    sync_threads();  // all have read all shared memory
    if constexpr (kGroups > 1) {
      float* sums = reinterpret_cast<float*>(shared + kGroupsAt) + at.row;
      if (lane() % 4 == 0) sums[at.group * Heads] = sum;
      sync_threads();
      sum = 0;
      SL_UNROLL
      for (int g = 0; g < kGroups; ++g) sum += sums[g * Heads];
    }
    if (lane() % 4 == 0 && at.group == 0) {
      const int head = first_head() + at.row;
      const float lse = sum > 0 ? (high * scale + log2_fast(sum)) * kLn2 : -INFINITY;
      weights[at.row] = sum > 0 ? 1 / sum : 0.0f;
      if (head < a.q_heads && a.splits > 1) a.partial_lse[partial_row(a, head)] = lse;
      if (head < a.q_heads && a.splits == 1 && a.lse != nullptr) a.lse[block_z() * a.lse_row + head] = lse;
    }
    sync_threads();
    if (a.splits > 1) {
      write_partial(a, o, weights);
    } else {
      write(a, o, weights, reinterpret_cast<Bf16*>(shared) + warp() * Heads * 64);
    }
  }

  struct alignas(8) Two {
    float low, high;
  };

  SL_DEVICE static void write_partial(const Arguments& a, const float (&o)[kBands][8][4],
                                      const float* weights) {
    using namespace device;
    SL_UNROLL
    for (int i = 0; i < kBands * 2; ++i) {
      const int row = i * 8 + lane() / 4, head = first_head() + row, r = i % 2 * 2;
      float* out = a.partial_out + partial_row(a, head) * kLatent + warp() * 64 + lane() % 4 * 2;
      SL_UNROLL
      for (int j = 0; j < 8; ++j) {
        if (head < a.q_heads)
          *reinterpret_cast<Two*>(out + j * 8) = {o[i / 2][j][r] * weights[row],
                                                  o[i / 2][j][r + 1] * weights[row]};
      }
    }
  }

  /// `shared`: this warp's own place of [Heads][64 columns], so that whole lines are written.
  SL_DEVICE static void write(const Arguments& a, const float (&o)[kBands][8][4], const float* weights,
                              Bf16* shared) {
    using namespace device;
    SL_UNROLL
    for (int i = 0; i < kBands * 2; ++i) {
      const int row = i * 8 + lane() / 4, r = i % 2 * 2;
      SL_UNROLL
      for (int j = 0; j < 8; ++j)
        *reinterpret_cast<std::uint32_t*>(shared + row * 64 + (j ^ row % 8) * 8 + lane() % 4 * 2) =
            pack(o[i / 2][j][r] * weights[row], o[i / 2][j][r + 1] * weights[row]);
    }
    sync_warp();
    SL_UNROLL
    for (int i = 0; i < Heads / 4; ++i) {
      const int row = i * 4 + lane() / 8, head = first_head() + row, piece = lane() % 8;
      if (head < a.q_heads)
        *reinterpret_cast<Words4*>(a.out + block_z() * a.out_row + head * a.out_head + warp() * 64 +
                                   piece * 8) =
            *reinterpret_cast<const Words4*>(shared + row * 64 + (piece ^ row % 8) * 8);
    }
  }
};

}  // namespace shardline
