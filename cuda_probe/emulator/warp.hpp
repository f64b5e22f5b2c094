// Runs a kernel's code on the CPU, thread by thread, with what a GPU's warps share: barriers, shuffles,
// tensor cores, asynchronous copies. Semantics are those of the PTX ISA; a wrong use (a barrier that not all
// threads reach, a warp whose lanes call different collectives, an address outside shared memory) throws
// EmulationError. Asynchronous work happens as early or as late as the ISA allows, and threads run in an
// order of choice, so that a missing wait or barrier changes results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace shardline::emulator {

class EmulationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class ThreadOrder : std::uint8_t { ascending, descending, random };

struct Options {
  ThreadOrder order = ThreadOrder::ascending;
  std::uint64_t seed = 1;  // of random
  bool late = true;        // asynchronous work ends when something waits for it; else when it is issued
};

struct Grid {
  int x = 1, y = 1, z = 1;
  int threads = 32;
  std::size_t shared_bytes = 0;
};

/// What a run did, all blocks together.
struct Counts {
  double mma_flops = 0;       // of tensor cores
  double bytes_async = 0;     // copied to shared memory by copy_async and copy_tensor
  std::int64_t barriers = 0;  // sync_all and sync_named that completed
};

/// Runs `body` on every thread of every block, blocks in random order for ThreadOrder::random. Shared memory
/// is aligned to 1024 bytes and begins as NaN. Throws EmulationError; what the body throws is passed on.
Counts run(const Grid& grid, const Options& options, const std::function<void(std::byte* shared)>& body);

// The rest is called by kernels, through cuda_probe/device.
int thread();
int block(int axis);
void sync_all();
void sync_warp();
void sync_named(int id, int threads, bool wait);
std::uint32_t shuffle_bits(std::uint32_t value, int lane);
std::uint32_t ballot(bool value);
std::uint32_t shared_address(const void* p);

template <class T>
T shuffle(T value, int lane) {
  static_assert(sizeof(T) == 4);
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  bits = shuffle_bits(bits, lane);
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
void load_matrices(std::uint32_t (&m)[4], const void* row, bool transposed);
void copy_async(void* to, const void* from, bool valid);
void commit_copies();
void wait_copies(int pending);

// Hopper (cuda_probe/device/hopper.hpp).
struct TensorMap {
  const void* base = nullptr;
  std::uint64_t size[3] = {1, 1, 1};    // elements
  std::uint64_t stride[3] = {2, 0, 0};  // bytes
  std::uint32_t box[3] = {1, 1, 1};     // elements; box[0] * 2 bytes <= 128
};
void barrier_init(std::uint64_t* barrier, int count);
void barrier_fence();
void barrier_arrive(std::uint64_t* barrier, std::uint32_t expected_bytes);
void barrier_wait(std::uint64_t* barrier, std::uint32_t parity);
void tensor_copy(void* to, const TensorMap* map, std::uint64_t* barrier, int c0, int c1, int c2);
/// a null: from shared memory by descriptor. `accumulate` false: d = a * b. Columns: of b and d.
void wgmma(float* d, const std::uint32_t* a, std::uint64_t a_descriptor, std::uint64_t b_descriptor,
           int columns, bool b_rows_are_k, bool accumulate);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int pending);
void proxy_fence();

}  // namespace shardline::emulator
