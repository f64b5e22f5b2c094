// Hopper's asynchronous machinery (compute capability 9.0a): barriers in shared memory that count arrivals
// and bytes, tensor copies by the copy engine (TMA), products of a warpgroup (wgmma).
#pragma once

#include "cuda_probe/device/simt.hpp"

#ifdef __CUDACC__
#include <cuda.h>
#include "cuda_probe/device/wgmma.hpp"
#endif

namespace shardline::device {

// Tiles in shared memory: rows of 128 bytes (64 values), the 16-byte pieces of row r at places XORed with
// r % 8 ("128-byte swizzle"), base aligned to 1024 bytes. A matrix of more columns is several such tiles, one
// per 64 columns. What copy_tensor writes, wgmma reads through a descriptor (PTX ISA, 9.7.15.5.1).
inline constexpr int kTileColumns = 64, kTileRowBytes = 128;

/// Place of row r, column c (a multiple of 8) in such a tile, in bytes.
SL_DEVICE int tile_offset(int row, int column) {
  return row * kTileRowBytes + (((column / 8) ^ (row % 8)) * 16);
}

/// For an operand whose rows are M or N and whose columns are K; the product takes 16 columns from `address`.
SL_DEVICE std::uint64_t rows_descriptor(std::uint32_t address) {
  constexpr std::uint64_t eight_rows = 8 * kTileRowBytes / 16, swizzle_128 = 1;
  return (address & 0x3ffffu) / 16 | std::uint64_t{1} << 16 | eight_rows << 32 | swizzle_128 << 62;
}
/// For B with rows K and columns N: the product takes 16 rows from `address`; tiles of 64 columns lie
/// `tile_bytes` apart.
SL_DEVICE std::uint64_t columns_descriptor(std::uint32_t address, int tile_bytes) {
  constexpr std::uint64_t eight_rows = 8 * kTileRowBytes / 16, swizzle_128 = 1;
  return (address & 0x3ffffu) / 16 | static_cast<std::uint64_t>(tile_bytes / 16) << 16 | eight_rows << 32 |
         swizzle_128 << 62;
}

#ifdef __CUDACC__

using TensorMap = CUtensorMap;

/// The swizzle counts from multiples of 1024 bytes of the shared window; a kernel asks for this many more.
inline constexpr int kSwizzleSlack = 1024;
SL_DEVICE std::byte* swizzle_base(std::byte* dynamic) {
  const std::uint32_t past = shared_address(dynamic) % kSwizzleSlack;
  return dynamic + (past == 0 ? 0 : kSwizzleSlack - past);
}

/// One thread; then fence_barriers() and a barrier of the block.
SL_DEVICE void barrier_init(std::uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
SL_DEVICE void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}
SL_DEVICE void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
/// Arrives, and lets the phase end only when `bytes` more have been copied.
SL_DEVICE void barrier_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Until the phase of this parity has ended; the phases of a new barrier have parity 0, 1, 0, ...
SL_DEVICE void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

/// One thread: the box of the map at (c0, c1, c2) to shared memory; its bytes count for the barrier. What
/// lies outside the tensor arrives as zeros.
SL_DEVICE void copy_tensor(void* to, const TensorMap* map, std::uint64_t* barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
SL_DEVICE void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Registers per thread of the warpgroup, from the pool of the block.
template <int Registers>
SL_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
SL_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Ordinary writes to shared memory before it are seen by the copy engine and wgmma after it.
SL_DEVICE void fence_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Before the first product, and after registers that products use were written.
SL_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SL_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Until at most `Pending` of the warpgroup's latest groups are under way.
template <int Pending>
SL_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// Keeps the compiler from moving accesses of these registers over this point.
template <int N>
SL_DEVICE void hold(float (&registers)[N]) {
  SL_UNROLL
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int N>
SL_DEVICE void hold(std::uint32_t (&registers)[N]) {
  SL_UNROLL
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

#else

using TensorMap = emulator::TensorMap;

SL_DEVICE void barrier_init(std::uint64_t* barrier, int count) { emulator::barrier_init(barrier, count); }
SL_DEVICE void fence_barriers() { emulator::barrier_fence(); }
SL_DEVICE void barrier_arrive(std::uint64_t* barrier) { emulator::barrier_arrive(barrier, 0); }
SL_DEVICE void barrier_expect(std::uint64_t* barrier, std::uint32_t bytes) {
  emulator::barrier_arrive(barrier, bytes);
}
SL_DEVICE void barrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  emulator::barrier_wait(barrier, parity);
}
SL_DEVICE void copy_tensor(void* to, const TensorMap* map, std::uint64_t* barrier, int c0, int c1, int c2) {
  emulator::tensor_copy(to, map, barrier, c0, c1, c2);
}
SL_DEVICE void prefetch_map(const TensorMap*) {}
template <int Registers>
SL_DEVICE void take_registers() {}
template <int Registers>
SL_DEVICE void give_registers() {}
SL_DEVICE void fence_for_async() { emulator::proxy_fence(); }
SL_DEVICE void wgmma_fence() { emulator::wgmma_fence(); }
SL_DEVICE void wgmma_commit() { emulator::wgmma_commit(); }
template <int Pending>
SL_DEVICE void wgmma_wait() {
  emulator::wgmma_wait(Pending);
}
template <class Word, int N>
SL_DEVICE void hold(Word (&)[N]) {}

/// d (+)= a * b of a warpgroup, 64 rows x 2 * N columns, 16 deep: see wgmma.hpp.
template <bool RowsAreK, int N>
SL_DEVICE void wgmma(float (&d)[N], std::uint64_t a, std::uint64_t b, bool accumulate) {
  emulator::wgmma(d, nullptr, a, b, 2 * N, RowsAreK, accumulate);
}
template <bool RowsAreK, int N>
SL_DEVICE void wgmma(float (&d)[N], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate) {
  emulator::wgmma(d, a, 0, b, 2 * N, RowsAreK, accumulate);
}

#endif

}  // namespace shardline::device
