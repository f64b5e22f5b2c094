// MLA latent decode for Hopper: a block is 64 heads of one sequence and one split of its cache. One warpgroup
// only starts tensor copies of key tiles (64 rows x 576 columns) into a ring of two; a tile is keys and
// values at once, so it is read from HBM once. Two warpgroups hold 256 output columns each: the first also
// computes scores and softmax and hands the weights to the second through shared memory (the division of work
// of FlashMLA's first Hopper kernel), which uses the tensor cores while the first computes exponentials.
#pragma once

#include "cuda_probe/device/hopper.hpp"
#include "cuda_probe/kernels/prefill_parts.hpp"

namespace shardline {

struct MlaDecodeWgmma {
  static constexpr int kThreads = 384, kStages = 2, kHeads = 64, kKeys = 64;
  static constexpr int kWidth = kLatent + kRotary, kChunks = kWidth / 64;
  static constexpr int kChunkBytes = 64 * device::kTileRowBytes;  // 64 rows x 64 columns
  static constexpr int kTileBytes = kChunks * kChunkBytes;
  static constexpr int kTilesAt = kTileBytes, kWeightsAt = kTilesAt + kStages * kTileBytes;
  static constexpr int kRowsAt = kWeightsAt + kChunkBytes, kBarriersAt = kRowsAt + kHeads * 4;
  static constexpr int kSharedBytes = kBarriersAt + 64;

  /// Boxes of the maps: 64 columns x 64 heads of a sequence (q), x box_rows rows of the cache (kv):
  /// min(64, page_rows) where it is paged, else 64.
  struct Arguments {
    device::TensorMap q, kv;
    MlaDecodeArguments a;
  };
  SL_BOTH static int box_rows(const MlaDecodeArguments& a) {
    return a.pages != nullptr && a.page_rows < kKeys ? a.page_rows : kKeys;
  }

  struct Barriers {
    std::uint64_t q, full[kStages], free[kStages];
  };

  /// `shared`: kSharedBytes, aligned to 1024. Grid: [tiles of 64 heads][splits][sequences].
  SL_DEVICE static void run(const Arguments& x, std::byte* shared) {
    using namespace device;
    auto* barriers = reinterpret_cast<Barriers*>(shared + kBarriersAt);
    if (thread() == 0) {
      prefetch_map(&x.q);
      prefetch_map(&x.kv);
      barrier_init(&barriers->q, 1);
      for (int i = 0; i < kStages; ++i) {
        barrier_init(&barriers->full[i], 1);
        barrier_init(&barriers->free[i], 8);  // warps of both consumers
      }
      fence_barriers();
    }
    sync_threads();
    const int rows = x.a.kv_rows[block_z()];
    const int tiles = (rows + kKeys - 1) / kKeys, each = (tiles + x.a.splits - 1) / x.a.splits;
    const Part part{rows, min(tiles, each * block_y()), min(tiles, each * (block_y() + 1))};
    // From lane 0, so that the compiler knows it to be the same in all lanes.
    const int group = shuffle(thread() / 128, 0);
    if (group == 0) {
      give_registers<24>();
      if (thread() == 0) produce(x, shared, barriers, part);
    } else if (group == 1) {
      take_registers<240>();
      lead(x.a, shared, barriers, part);
    } else {
      take_registers<240>();
      follow(x.a, shared, barriers, part);
    }
  }

 private:
  static constexpr int kOutputs = 128;  // registers of a thread: 64 x 256 over 128 threads
  // Named barriers.
  static constexpr int kReady = 1, kTaken = 2, kLeaders = 3;

  /// Of the cache of a sequence: key tiles [first, last) of `rows` rows.
  struct Part {
    int rows, first, last;
  };

  SL_DEVICE static int min(int a, int b) { return a < b ? a : b; }

  SL_DEVICE static int cache_row(const MlaDecodeArguments& a, int sequence, int row) {
    if (a.pages == nullptr) return static_cast<int>(a.kv_begin[sequence]) + row;
    return a.pages[static_cast<std::int64_t>(sequence) * a.most_pages + row / a.page_rows] * a.page_rows +
           row % a.page_rows;
  }

  SL_DEVICE static void produce(const Arguments& x, std::byte* shared, Barriers* b, const Part& part) {
    using namespace device;
    if (part.first == part.last) return;
    const int sequence = block_z(), box = box_rows(x.a);
    barrier_expect(&b->q, kTileBytes);
    for (int c = 0; c < kChunks; ++c)
      copy_tensor(shared + c * kChunkBytes, &x.q, &b->q, 64 * c, block_x() * kHeads, sequence);
    int stage = 0;
    std::uint32_t parity = 1;
    for (int tile = part.first; tile < part.last; ++tile) {
      const int boxes = (min(kKeys, part.rows - tile * kKeys) + box - 1) / box;
      std::byte* to = shared + kTilesAt + stage * kTileBytes;
      barrier_wait(&b->free[stage], parity);
      barrier_expect(&b->full[stage], static_cast<std::uint32_t>(boxes * box * kChunks * kTileRowBytes));
      for (int i = 0; i < boxes; ++i) {
        const int row = cache_row(x.a, sequence, tile * kKeys + i * box);
        for (int c = 0; c < kChunks; ++c)
          copy_tensor(to + c * kChunkBytes + i * box * kTileRowBytes, &x.kv, &b->full[stage], 64 * c, row, 0);
      }
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }

  /// Rows from `rows` on become zero: what follows a sequence in memory may be anything, NaN too.
  SL_DEVICE static void clear_from(std::byte* tile, int rows) {
    using namespace device;
    constexpr int kPieces = kTileRowBytes / 16;
    for (int i = thread() % 128; i < (kKeys - rows) * kChunks * kPieces; i += 128) {
      const int row = rows + i / (kChunks * kPieces), piece = i % (kChunks * kPieces);
      *reinterpret_cast<Words4*>(tile + piece / kPieces * kChunkBytes + row * kTileRowBytes +
                                 piece % kPieces * 16) = Words4{};
    }
    fence_for_async();
    sync_named(kLeaders, 128);
  }

  /// s = q * k^T, not waited for.
  SL_DEVICE static void scores(float (&s)[kKeys / 2], std::uint64_t q, std::uint64_t k) {
    using namespace device;
    hold(s);
    wgmma_fence();
    SL_UNROLL
    for (int i = 0; i < kWidth / 16; ++i) {
      const std::uint64_t at = static_cast<std::uint64_t>(i / 4 * kChunkBytes + i % 4 * 32) / 16;
      wgmma<false>(s, q + at, k + at, i > 0);
    }
    wgmma_commit();
  }

  static constexpr std::uint64_t kSixteenRows = 16 * device::kTileRowBytes / 16;

  SL_DEVICE static void release(std::uint64_t* barrier) {
    if (device::lane() == 0) device::barrier_arrive(barrier);
  }

  SL_DEVICE static int row_of_thread() { return device::warp() % 4 * 16 + device::lane() / 4; }

  /// Waits for a tile, of which the first `valid` rows are keys.
  SL_DEVICE static void await_tile(std::byte* shared, Barriers* b, int stage, std::uint32_t parity,
                                   int valid) {
    device::barrier_wait(&b->full[stage], parity);
    if (valid < kKeys) clear_from(shared + kTilesAt + stage * kTileBytes, valid);
  }

  /// Softmax of scores, of which the first `valid` columns are keys.
  SL_DEVICE static void soften(float (&s)[kKeys / 2], float (&factor)[2], prefill_parts::Softmax& softmax,
                               float scale, int valid) {
    if (valid < kKeys) {
      SL_UNROLL
      for (int i = 0; i < kKeys / 2; ++i) {
        if (i / 4 * 8 + device::lane() % 4 * 2 + i % 2 >= valid) s[i] = -INFINITY;
      }
    }
    softmax.step(s, scale, factor);
  }

  /// Of this thread's two rows, for the follower.
  SL_DEVICE static void share_factors(std::byte* shared, const float (&factor)[2]) {
    float* factors = reinterpret_cast<float*>(shared + kRowsAt);
    if (device::lane() % 4 == 0) {
      factors[row_of_thread()] = factor[0];
      factors[row_of_thread() + 8] = factor[1];
    }
  }

  /// Weights in the layout of an operand, and what the follower must rescale by.
  SL_DEVICE static void hand_over(std::byte* shared, std::uint32_t (&p)[kKeys / 16][4],
                                  const float (&s)[kKeys / 2], const float (&factor)[2]) {
    using namespace device;
    SL_UNROLL
    for (int i = 0; i < kKeys / 16; ++i) {
      prefill_parts::as_operand(p[i], s, i);
      SL_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int row = row_of_thread() + j % 2 * 8, column = 16 * i + j / 2 * 8;
        *reinterpret_cast<std::uint32_t*>(shared + kWeightsAt + tile_offset(row, column) + lane() % 4 * 4) =
            p[i][j];
      }
    }
    share_factors(shared, factor);
    fence_for_async();
    arrive_named(kReady, 256);
  }

  /// o += p * v, not waited for.
  SL_DEVICE static void values(float (&o)[kOutputs], std::uint32_t (&p)[kKeys / 16][4], std::uint64_t v) {
    using namespace device;
    hold(o);
    SL_UNROLL
    for (int i = 0; i < kKeys / 16; ++i) hold(p[i]);
    wgmma_fence();
    SL_UNROLL
    for (int i = 0; i < kKeys / 16; ++i)
      wgmma<true>(o, p[i], v + static_cast<std::uint64_t>(i) * kSixteenRows, true);
    wgmma_commit();
  }

  /// The leader's sums over the key tiles of a part that has some: `o` still to be divided by softmax.sum.
  SL_DEVICE static void lead_tiles(float (&o)[kOutputs], prefill_parts::Softmax& softmax, float scale,
                                   std::byte* shared, Barriers* b, const Part& part) {
    using namespace device;
    const std::uint64_t q = rows_descriptor(shared_address(shared));
    const std::uint64_t k = rows_descriptor(shared_address(shared + kTilesAt));
    const std::uint64_t v = columns_descriptor(shared_address(shared + kTilesAt), kChunkBytes);
    float s[kKeys / 2], factor[2];
    std::uint32_t p[kKeys / 16][4];
    int stage = 0;
    std::uint32_t parity = 0;
    const auto valid = [&](int tile) { return part.rows - tile * kKeys; };

    barrier_wait(&b->q, 0);
    await_tile(shared, b, stage, parity, valid(part.first));
    scores(s, q, k);
    wgmma_wait<0>();
    hold(s);
    soften(s, factor, softmax, scale, valid(part.first));
    hand_over(shared, p, s, factor);
    for (int tile = part.first + 1; tile < part.last; ++tile) {
      const int before = stage;
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
      await_tile(shared, b, stage, parity, valid(tile));
      scores(s, q, k + static_cast<std::uint64_t>(stage * kTileBytes / 16));
      values(o, p, v + static_cast<std::uint64_t>(before * kTileBytes / 16));
      wgmma_wait<1>();
      hold(s);
      soften(s, factor, softmax, scale, valid(tile));
      wgmma_wait<0>();
      hold(o);
      release(&b->free[before]);
      prefill_parts::rescale(o, factor);
      sync_named(kTaken, 256);
      hand_over(shared, p, s, factor);
    }
    values(o, p, v + static_cast<std::uint64_t>(stage * kTileBytes / 16));
    wgmma_wait<0>();
    hold(o);
    sync_named(kTaken, 256);
  }

  /// Scores, softmax, and columns 0 to 255.
  SL_DEVICE static void lead(const MlaDecodeArguments& a, std::byte* shared, Barriers* b, const Part& part) {
    using namespace device;
    const float scale = a.scale * kLog2E;
    prefill_parts::Softmax softmax;
    float o[kOutputs] = {};
    if (part.first < part.last) lead_tiles(o, softmax, scale, shared, b, part);
    softmax.finish();
    const float weight[2] = {softmax.weight(0), softmax.weight(1)};
    share_factors(shared, weight);
    arrive_named(kReady, 256);
    write(a, o, weight, 0);
    SL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int head = block_x() * kHeads + row_of_thread() + 8 * r;
      if (lane() % 4 != 0 || head >= a.q_heads) continue;
      const float lse = softmax.lse(r, scale);
      if (a.splits > 1) {
        a.partial_lse[(static_cast<std::int64_t>(block_y()) * a.sequences + block_z()) * a.q_heads + head] =
            lse;
      } else if (a.lse != nullptr) {
        a.lse[block_z() * a.lse_row + head] = lse;
      }
    }
  }

  /// Columns 256 to 511.
  SL_DEVICE static void follow(const MlaDecodeArguments& a, std::byte* shared, Barriers* b,
                               const Part& part) {
    using namespace device;
    const float* factors = reinterpret_cast<const float*>(shared + kRowsAt);
    const std::uint64_t p = rows_descriptor(shared_address(shared + kWeightsAt));
    const std::uint64_t v =
        columns_descriptor(shared_address(shared + kTilesAt + 4 * kChunkBytes), kChunkBytes);
    float o[kOutputs] = {};
    float factor[2];
    int stage = 0;
    std::uint32_t parity = 0;
    for (int tile = part.first; tile < part.last; ++tile) {
      barrier_wait(&b->full[stage], parity);
      sync_named(kReady, 256);
      factor[0] = factors[row_of_thread()];
      factor[1] = factors[row_of_thread() + 8];
      prefill_parts::rescale(o, factor);
      hold(o);
      wgmma_fence();
      SL_UNROLL
      for (int i = 0; i < kKeys / 16; ++i)
        wgmma<true>(o, p + static_cast<std::uint64_t>(i * 32 / 16),
                    v + static_cast<std::uint64_t>(stage * kTileBytes / 16) +
                        static_cast<std::uint64_t>(i) * kSixteenRows,
                    true);
      wgmma_commit();
      wgmma_wait<0>();
      hold(o);
      arrive_named(kTaken, 256);
      release(&b->free[stage]);
      if (++stage == kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    sync_named(kReady, 256);
    factor[0] = factors[row_of_thread()];
    factor[1] = factors[row_of_thread() + 8];
    write(a, o, factor, 256);
  }

  SL_DEVICE static void write(const MlaDecodeArguments& a, const float (&o)[kOutputs],
                              const float (&weight)[2], int column) {
    using namespace device;
    SL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int head = block_x() * kHeads + row_of_thread() + 8 * r;
      if (head >= a.q_heads) continue;
      const int at = column + lane() % 4 * 2;
      if (a.splits > 1) {
        float* to =
            a.partial_out +
            ((static_cast<std::int64_t>(block_y()) * a.sequences + block_z()) * a.q_heads + head) * kLatent +
            at;
        SL_UNROLL
        for (int j = 0; j < kOutputs / 4; ++j)
          *reinterpret_cast<Words2*>(to + 8 * j) = {
              {o[4 * j + 2 * r] * weight[r], o[4 * j + 2 * r + 1] * weight[r]}};
      } else {
        Bf16* to = a.out + block_z() * a.out_row + head * a.out_head + at;
        SL_UNROLL
        for (int j = 0; j < kOutputs / 4; ++j)
          *reinterpret_cast<std::uint32_t*>(to + 8 * j) =
              pack(o[4 * j + 2 * r] * weight[r], o[4 * j + 2 * r + 1] * weight[r]);
      }
    }
  }

  struct alignas(8) Words2 {
    float w[2];
  };
};

}  // namespace shardline
