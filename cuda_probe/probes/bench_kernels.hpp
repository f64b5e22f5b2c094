// Small kernels that measuring needs. All are asynchronous; callers check cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace shardline {

/// Kinds of random numbers, standard normal: zeros draw less power than real data and so run faster.
enum class Data : std::uint8_t { bf16, fp8, fp4 };  // fp8: E4M3; fp4: E2M1, two in a byte

/// Fills `bytes` bytes, a multiple of 16.
void fill_random(void* to, std::size_t bytes, Data kind, std::uint64_t seed, cudaStream_t stream);

/// Through `sms` multiprocessors; sizes are multiples of 16 bytes. read_through leaves nothing dirty in L2.
void read_through(const void* from, std::size_t bytes, int sms, void* sink, cudaStream_t stream);
void write_over(void* to, std::size_t bytes, int sms, cudaStream_t stream);
void copy_by_kernel(const void* from, void* to, std::size_t bytes, int sms, cudaStream_t stream);

void empty_kernel(cudaStream_t stream);

}  // namespace shardline
