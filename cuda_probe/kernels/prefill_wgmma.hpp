// Prefill attention for Hopper, after FlashAttention-3 (arXiv 2407.08608): a block is 128 query rows of one
// head. One warpgroup only starts tensor copies (TMA) of key and value tiles into a ring of two stages; two
// others take 64 rows each. In a consumer, the product of the next scores runs while the softmax of the
// present ones is computed, and the two consumers take turns at the tensor cores.
#pragma once

#include "cuda_probe/device/hopper.hpp"
#include "cuda_probe/kernels/prefill_parts.hpp"

namespace shardline {

template <int QkDim, int VDim>
struct PrefillWgmma {
  static constexpr int kThreads = 384, kStages = 2, kConsumers = 2, kKeys = kKeyTile;
  static constexpr int kChunkBytes = 128 * device::kTileRowBytes;  // 128 rows x 64 columns
  static constexpr int kQkBytes = QkDim / 64 * kChunkBytes, kVBytes = VDim / 64 * kChunkBytes;
  static constexpr int kKAt = kQkBytes, kVAt = kKAt + kStages * kQkBytes;
  static constexpr int kBarriersAt = kVAt + kStages * kVBytes;
  static constexpr int kSharedBytes = kBarriersAt + 128;
  static_assert(kQueryTile == 128 && kKeyTile == 128 && VDim <= QkDim);

  /// Boxes of the maps: 64 columns x 128 rows of one head.
  struct Arguments {
    device::TensorMap q, k, v;
    PrefillArguments a;
  };

  struct Barriers {
    std::uint64_t q, k_full[kStages], v_full[kStages], k_free[kStages], v_free[kStages];
  };

  /// `shared`: kSharedBytes, aligned to 1024. Grid: [query heads][query tiles].
  SL_DEVICE static void run(const Arguments& x, std::byte* shared) {
    using namespace device;
    auto* barriers = reinterpret_cast<Barriers*>(shared + kBarriersAt);
    if (thread() == 0) {
      prefetch_map(&x.q);
      prefetch_map(&x.k);
      prefetch_map(&x.v);
      barrier_init(&barriers->q, 1);
      for (int i = 0; i < kStages; ++i) {
        barrier_init(&barriers->k_full[i], 1);
        barrier_init(&barriers->v_full[i], 1);
        barrier_init(&barriers->k_free[i], 4 * kConsumers);
        barrier_init(&barriers->v_free[i], 4 * kConsumers);
      }
      fence_barriers();
    }
    sync_threads();
    const auto [tile, head] = prefill_parts::work_of_block<QkDim, VDim>(x.a);
    // From lane 0, so that the compiler knows it, and descriptors, to be the same in all lanes.
    const int group = shuffle(thread() / 128, 0);
    if (group == 0) {
      give_registers<24>();
      if (thread() == 0) produce(x, shared, barriers, tile, head);
    } else {
      take_registers<240>();
      consume(x, shared, barriers, tile, head, group - 1);
    }
  }

 private:
  static constexpr int kScores = kKeyTile / 2, kOutputs = VDim / 2;  // registers of a thread

  /// Of the ring; the parity of its barriers changes with every pass.
  SL_DEVICE static void next_stage(int& stage, std::uint32_t& parity) {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }

  SL_DEVICE static void produce(const Arguments& x, std::byte* shared, Barriers* b, int tile, int head) {
    using namespace device;
    prefill_parts::KeyTiles tiles(x.a, tile);
    if (tiles.done()) return;
    const int kv_head = head / (x.a.q_heads / x.a.kv_heads);
    barrier_expect(&b->q, kQkBytes);
    for (int c = 0; c < QkDim / 64; ++c)
      copy_tensor(shared + c * kChunkBytes, &x.q, &b->q, 64 * c, tile * kQueryTile, head);
    int stage = 0;
    std::uint32_t parity = 1;  // the first pass over the ring finds it free
    const auto copy_keys = [&] {
      barrier_wait(&b->k_free[stage], parity);
      barrier_expect(&b->k_full[stage], kQkBytes);
      for (int c = 0; c < QkDim / 64; ++c)
        copy_tensor(shared + kKAt + stage * kQkBytes + c * kChunkBytes, &x.k, &b->k_full[stage], 64 * c,
                    tiles.first, kv_head);
    };
    copy_keys();
    for (bool more = true; more;) {
      const int v_stage = stage, v_first = tiles.first;
      const std::uint32_t v_parity = parity;
      next_stage(stage, parity);
      tiles.next(kKeyTile);
      more = !tiles.done();
      // Consumers need the next keys before these values, and give their place back earlier.
      if (more) copy_keys();
      barrier_wait(&b->v_free[v_stage], v_parity);
      barrier_expect(&b->v_full[v_stage], kVBytes);
      for (int c = 0; c < VDim / 64; ++c)
        copy_tensor(shared + kVAt + v_stage * kVBytes + c * kChunkBytes, &x.v, &b->v_full[v_stage], 64 * c,
                    v_first, kv_head);
    }
  }

  /// s = q * k^T, not waited for.
  SL_DEVICE static void scores(float (&s)[kScores], std::uint64_t q, std::uint64_t k) {
    using namespace device;
    hold(s);
    wgmma_fence();
    SL_UNROLL
    for (int i = 0; i < QkDim / 16; ++i) {
      const std::uint64_t at = static_cast<std::uint64_t>(i / 4 * kChunkBytes + i % 4 * 32) / 16;
      wgmma<false>(s, q + at, k + at, i > 0);
    }
    wgmma_commit();
  }

  /// o += p * v, not waited for.
  SL_DEVICE static void values(float (&o)[kOutputs], std::uint32_t (&p)[kKeyTile / 16][4], std::uint64_t v) {
    using namespace device;
    hold(o);
    SL_UNROLL
    for (int i = 0; i < kKeyTile / 16; ++i) hold(p[i]);
    wgmma_fence();
    SL_UNROLL
    for (int i = 0; i < kKeyTile / 16; ++i)
      wgmma<true>(o, p[i], v + static_cast<std::uint64_t>(i * 16 * kTileRowBytes / 16), true);
    wgmma_commit();
  }

  SL_DEVICE static void release(std::uint64_t* barrier) {
    if (device::lane() == 0) device::barrier_arrive(barrier);
  }

  /// Weights in the layout of an operand.
  SL_DEVICE static void as_operands(std::uint32_t (&p)[kKeyTile / 16][4], const float (&s)[kScores]) {
    SL_UNROLL
    for (int i = 0; i < kKeyTile / 16; ++i) prefill_parts::as_operand(p[i], s, i);
  }

  /// Turns of the two consumers at the tensor cores: named barrier 1 + consumer says whose it is.
  struct Turns {
    int consumer;

    SL_DEVICE explicit Turns(int c) : consumer(c) {
      if (consumer == 1) device::arrive_named(1, 256);
    }
    SL_DEVICE void take() const { device::sync_named(1 + consumer, 256); }
    SL_DEVICE void pass(bool last) const {
      if (consumer == 0 || !last) device::arrive_named(2 - consumer, 256);
    }
  };

  /// Sums over `tiles`, of which there are some, for rows `row` and `row` + 8 of this thread: `o` still to be
  /// divided by softmax.sum.
  SL_DEVICE static void consume_tiles(float (&o)[kOutputs], prefill_parts::Softmax& softmax, float scale,
                                      prefill_parts::KeyTiles& tiles, const PrefillArguments& a,
                                      std::byte* shared, Barriers* b, int row, int consumer) {
    using namespace device;
    const Visible rows[2] = {prefill_parts::visible_to(a, row), prefill_parts::visible_to(a, row + 8)};
    const std::uint64_t q = rows_descriptor(shared_address(shared) + consumer * 64 * kTileRowBytes);
    const std::uint64_t k = rows_descriptor(shared_address(shared + kKAt));
    const std::uint64_t v = columns_descriptor(shared_address(shared + kVAt), kChunkBytes);
    const Turns turns(consumer);

    float s[kScores], factor[2];
    std::uint32_t p[kKeyTile / 16][4];
    int stage = 0;
    std::uint32_t parity = 0;
    barrier_wait(&b->q, 0);
    barrier_wait(&b->k_full[0], 0);
    int first = tiles.first, masked = tiles.now.masked;
    tiles.next(kKeyTile);
    turns.take();
    scores(s, q, k);
    turns.pass(tiles.done());
    wgmma_wait<0>();
    hold(s);
    release(&b->k_free[0]);
    if (masked) prefill_parts::mask(s, a.codes + first, rows);
    softmax.step(s, scale, factor);
    as_operands(p, s);

    while (!tiles.done()) {
      const int v_stage = stage;
      const std::uint32_t v_parity = parity;
      next_stage(stage, parity);
      first = tiles.first;
      masked = tiles.now.masked;
      tiles.next(kKeyTile);
      barrier_wait(&b->k_full[stage], parity);
      turns.take();
      scores(s, q, k + static_cast<std::uint64_t>(stage * kQkBytes / 16));
      barrier_wait(&b->v_full[v_stage], v_parity);
      values(o, p, v + static_cast<std::uint64_t>(v_stage * kVBytes / 16));
      turns.pass(tiles.done());
      wgmma_wait<1>();
      hold(s);
      release(&b->k_free[stage]);
      if (masked) prefill_parts::mask(s, a.codes + first, rows);
      softmax.step(s, scale, factor);
      wgmma_wait<0>();
      hold(o);
      release(&b->v_free[v_stage]);
      prefill_parts::rescale(o, factor);
      as_operands(p, s);
    }
    barrier_wait(&b->v_full[stage], parity);
    values(o, p, v + static_cast<std::uint64_t>(stage * kVBytes / 16));
    wgmma_wait<0>();
    hold(o);
  }

  SL_DEVICE static void consume(const Arguments& x, std::byte* shared, Barriers* b, int tile, int head,
                                int consumer) {
    using namespace device;
    const PrefillArguments& a = x.a;
    const int row = tile * kQueryTile + consumer * 64 + warp() % 4 * 16 + lane() / 4;
    const float scale = a.scale * kLog2E;
    prefill_parts::Softmax softmax;
    float o[kOutputs] = {};
    prefill_parts::KeyTiles tiles(a, tile);
    if (!tiles.done()) consume_tiles(o, softmax, scale, tiles, a, shared, b, row, consumer);
    softmax.finish();
    write(a, shared, o, softmax, scale, row, head, consumer);
  }

  /// Through shared memory (the place of q), so that whole rows leave at once.
  SL_DEVICE static void write(const PrefillArguments& a, std::byte* shared, const float (&o)[kOutputs],
                              const prefill_parts::Softmax& softmax, float scale, int row, int head,
                              int consumer) {
    using namespace device;
    sync_named(3 + consumer, 128);  // all warps have read their q
    const int in_tile = consumer * 64 + warp() % 4 * 16;
    SL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float weight = softmax.weight(r);
      SL_UNROLL
      for (int j = 0; j < VDim / 8; ++j) {
        std::byte* at = shared + j / 8 * kChunkBytes + tile_offset(in_tile + lane() / 4 + 8 * r, j % 8 * 8) +
                        lane() % 4 * 4;
        *reinterpret_cast<std::uint32_t*>(at) =
            pack(o[4 * j + 2 * r] * weight, o[4 * j + 2 * r + 1] * weight);
      }
      if (lane() % 4 == 0 && row + 8 * r < a.q_rows)
        a.lse[(row + 8 * r) * a.lse_row + head] = softmax.lse(r, scale);
    }
    sync_warp();
    constexpr int kPieces = VDim / 8;
    SL_UNROLL
    for (int i = 0; i < 16 * kPieces / 32; ++i) {
      const int piece = (i * 32 + lane()) % kPieces, r = (i * 32 + lane()) / kPieces;
      const int target = row - lane() / 4 + r;
      const auto words = *reinterpret_cast<const Words4*>(shared + piece / 8 * kChunkBytes +
                                                          tile_offset(in_tile + r, piece % 8 * 8));
      if (target < a.q_rows)
        *reinterpret_cast<Words4*>(a.out + target * a.out_row + head * a.out_head + piece * 8) = words;
    }
  }
};

}  // namespace shardline
