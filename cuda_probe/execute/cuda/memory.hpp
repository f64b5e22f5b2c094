// Memory on the devices of the local ranks, freed together.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_probe/transport/transport.hpp"

namespace shardline {

class RankMemory {
 public:
  explicit RankMemory(Transport& transport) : transport_(transport) {}
  ~RankMemory() {
    for (const auto& [rank, memory] : all_) {
      try {
        transport_.gpu(rank).release(memory);
      } catch (const GpuError&) {  // of a device that failed before, which was told then
      }
    }
  }
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  /// On the device of a local rank; never null. Throws GpuError.
  std::byte* allocate(int rank, std::size_t bytes) {
    void* memory = transport_.gpu(rank).allocate(std::max<std::size_t>(bytes, 1));
    all_.emplace_back(rank, memory);
    return static_cast<std::byte*>(memory);
  }
  template <class T>
  T* allocate_of(int rank, std::size_t count) {
    return reinterpret_cast<T*>(allocate(rank, count * sizeof(T)));
  }
  /// A copy on the device.
  template <class T>
  const T* upload(int rank, const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    T* memory = allocate_of<T>(rank, values.size());
    if (!values.empty()) transport_.gpu(rank).upload(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }

 private:
  Transport& transport_;
  std::vector<std::pair<int, void*>> all_;
};

}  // namespace shardline
