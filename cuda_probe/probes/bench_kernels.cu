#include <cuda_bf16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>

#include "cuda_probe/probes/bench_kernels.hpp"

namespace shardline {

namespace {

constexpr int kThreads = 512, kUnroll = 4;

__device__ std::uint64_t mixed(std::uint64_t v) {  // splitmix64
  v += 0x9e3779b97f4a7c15ull;
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
  return v ^ (v >> 31);
}

// Two independent standard normal numbers (Box-Muller).
__device__ float2 normals(std::uint64_t index, std::uint64_t seed) {
  const std::uint64_t bits = mixed(index ^ mixed(seed));
  const float u = (static_cast<float>(static_cast<std::uint32_t>(bits >> 32) >> 8) + 0.5f) * 0x1p-24f;
  const float angle = static_cast<float>(static_cast<std::uint32_t>(bits) >> 8) * (6.2831853f * 0x1p-24f);
  const float radius = sqrtf(-2.0f * logf(u));
  return {radius * cosf(angle), radius * sinf(angle)};
}

__device__ std::uint32_t word(Data kind, std::uint64_t index, std::uint64_t seed) {
  if (kind == Data::bf16) {
    const float2 n = normals(index, seed);
    const __nv_bfloat162 pair = __floats2bfloat162_rn(n.x, n.y);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  std::uint32_t out = 0;
  if (kind == Data::fp8) {
    for (int i = 0; i < 2; ++i) {
      const auto two = __nv_cvt_float2_to_fp8x2(normals(2 * index + i, seed), __NV_SATFINITE, __NV_E4M3);
      out |= static_cast<std::uint32_t>(two) << (16 * i);
    }
  } else {
    for (int i = 0; i < 4; ++i) {
      const auto two = __nv_cvt_float2_to_fp4x2(normals(4 * index + i, seed), __NV_E2M1, cudaRoundNearest);
      out |= static_cast<std::uint32_t>(two) << (8 * i);
    }
  }
  return out;
}

__global__ void __launch_bounds__(kThreads)
    fill_kernel(uint4* to, std::size_t count, Data kind, std::uint64_t seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride)
    to[i] = {word(kind, 4 * i, seed), word(kind, 4 * i + 1, seed), word(kind, 4 * i + 2, seed),
             word(kind, 4 * i + 3, seed)};
}

__global__ void __launch_bounds__(kThreads) read_kernel(const uint4* from, std::size_t count, uint4* sink) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads;
  uint4 all{0, 0, 0, 0};
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = from[i + u * stride];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) all = {all.x ^ v[u].x, all.y ^ v[u].y, all.z ^ v[u].z, all.w ^ v[u].w};
  }
  for (; i < count; i += stride) {
    const uint4 v = from[i];
    all = {all.x ^ v.x, all.y ^ v.y, all.z ^ v.z, all.w ^ v.w};
  }
  // Never true for random data, but the compiler must not know.
  if (all.x == 0x12345678u && all.y == 0x9abcdef0u && all.z == 0x0fedcba9u && all.w == 0x87654321u)
    *sink = all;
}

__global__ void __launch_bounds__(kThreads) write_kernel(uint4* to, std::size_t count, std::uint32_t value) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    const auto v = static_cast<std::uint32_t>(i) * 0x9e3779b9u + value;
    to[i] = {v, v ^ 0x55555555u, v * 3u, ~v};
  }
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const uint4* from, uint4* to, std::size_t count) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads;
  std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = from[i + u * stride];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) to[i + u * stride] = v[u];
  }
  for (; i < count; i += stride) to[i] = from[i];
}

__global__ void do_nothing() {}

// Blocks that fill `sms` multiprocessors, or fewer where there is less to do.
unsigned blocks_for(std::size_t count, int sms) {
  const std::size_t needed = (count + kThreads - 1) / kThreads;
  const std::size_t full = static_cast<std::size_t>(sms) * 4;
  return static_cast<unsigned>(needed < 1 ? 1 : needed < full ? needed : full);
}

}  // namespace

void fill_random(void* to, std::size_t bytes, Data kind, std::uint64_t seed, cudaStream_t stream) {
  const std::size_t count = bytes / 16;
  if (count == 0) return;
  fill_kernel<<<blocks_for(count, 1024), kThreads, 0, stream>>>(static_cast<uint4*>(to), count, kind, seed);
}

void read_through(const void* from, std::size_t bytes, int sms, void* sink, cudaStream_t stream) {
  const std::size_t count = bytes / 16;
  read_kernel<<<blocks_for(count, sms), kThreads, 0, stream>>>(static_cast<const uint4*>(from), count,
                                                               static_cast<uint4*>(sink));
}

void write_over(void* to, std::size_t bytes, int sms, cudaStream_t stream) {
  const std::size_t count = bytes / 16;
  write_kernel<<<blocks_for(count, sms), kThreads, 0, stream>>>(static_cast<uint4*>(to), count, 1u);
}

void copy_by_kernel(const void* from, void* to, std::size_t bytes, int sms, cudaStream_t stream) {
  const std::size_t count = bytes / 16;
  copy_kernel<<<blocks_for(count, sms), kThreads, 0, stream>>>(static_cast<const uint4*>(from),
                                                               static_cast<uint4*>(to), count);
}

void empty_kernel(cudaStream_t stream) { do_nothing<<<1, 1, 0, stream>>>(); }

}  // namespace shardline
