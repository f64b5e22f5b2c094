// What a kernel may use of a GPU, in two forms: instructions where nvcc compiles it, and the emulator
// (cuda_probe/emulator) elsewhere, so that tests run the kernels' own code on a CPU. Names follow CUDA and
// the PTX ISA (section numbers: PTX ISA 9.0).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda_probe/kernels/bf16.hpp"

#ifdef __CUDACC__
#define SL_DEVICE __device__ __forceinline__
#define SL_UNROLL _Pragma("unroll")
#define SL_PRAGMA(text) _Pragma(#text)
#define SL_UNROLL_BY(times) SL_PRAGMA(unroll times)
#else
#define SL_DEVICE inline
#define SL_UNROLL
#define SL_UNROLL_BY(times)
#include "cuda_probe/emulator/warp.hpp"
#endif

namespace shardline::device {

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

#ifdef __CUDACC__

SL_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
SL_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
SL_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
SL_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }

SL_DEVICE void sync_threads() { __syncthreads(); }
SL_DEVICE void sync_warp() { __syncwarp(); }
/// bar.sync: `threads` threads, whole warps, meet at barrier `id` (1 to 15; 0 is sync_threads).
SL_DEVICE void sync_named(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// bar.arrive: counts for the barrier without waiting.
SL_DEVICE void arrive_named(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// All lanes of the warp take part in these.
template <class T>
SL_DEVICE T shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
template <class T>
SL_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
SL_DEVICE std::uint32_t ballot(bool value) { return __ballot_sync(0xffffffffu, value); }

/// 2^x, approximate (2 ulp), 2^-infinity = 0.
SL_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SL_DEVICE float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two values as bfloat16, the first in the low half.
SL_DEVICE std::uint32_t pack(float low, float high) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/// Address in the shared window of the block.
SL_DEVICE std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

SL_DEVICE int atomic_add(int* address, int value) { return atomicAdd(address, value); }

#else

SL_DEVICE int thread() { return emulator::thread(); }
SL_DEVICE int block_x() { return emulator::block(0); }
SL_DEVICE int block_y() { return emulator::block(1); }
SL_DEVICE int block_z() { return emulator::block(2); }
SL_DEVICE void sync_threads() { emulator::sync_all(); }
SL_DEVICE void sync_warp() { emulator::sync_warp(); }
SL_DEVICE void sync_named(int id, int threads) { emulator::sync_named(id, threads, true); }
SL_DEVICE void arrive_named(int id, int threads) { emulator::sync_named(id, threads, false); }
template <class T>
SL_DEVICE T shuffle(T value, int lane) {
  return emulator::shuffle(value, lane);
}
template <class T>
SL_DEVICE T shuffle_xor(T value, int mask) {
  return emulator::shuffle(value, (emulator::thread() % 32) ^ mask);
}
SL_DEVICE std::uint32_t ballot(bool value) { return emulator::ballot(value); }
SL_DEVICE float exp2_fast(float x) { return std::exp2(x); }
SL_DEVICE float log2_fast(float x) { return std::log2(x); }
SL_DEVICE std::uint32_t pack(float low, float high) {
  return std::uint32_t{to_bf16(low).bits} | std::uint32_t{to_bf16(high).bits} << 16;
}
SL_DEVICE std::uint32_t shared_address(const void* p) { return emulator::shared_address(p); }
SL_DEVICE int atomic_add(int* address, int value) {
  const int before = *address;
  *address += value;
  return before;
}

#endif

SL_DEVICE int lane() { return thread() % 32; }
SL_DEVICE int warp() { return thread() / 32; }

/// 16 bytes, the widest access of a thread.
struct alignas(16) Words4 {
  std::uint32_t w[4];
};

SL_DEVICE float low_half(std::uint32_t two) { return to_float({static_cast<std::uint16_t>(two & 0xffffu)}); }
SL_DEVICE float high_half(std::uint32_t two) { return to_float({static_cast<std::uint16_t>(two >> 16)}); }

}  // namespace shardline::device
