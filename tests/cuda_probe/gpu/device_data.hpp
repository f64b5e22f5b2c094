// Arrays on a device, filled from and read back to the host; for tests.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "cuda_probe/gpu/gpu.hpp"

namespace shardline {

/// Array of a device; freed with the device.
template <class T>
struct OnDevice {
  Gpu* gpu = nullptr;
  T* p = nullptr;
  std::size_t size = 0;

  OnDevice(Gpu& device, std::size_t count)
      : gpu(&device), p(static_cast<T*>(device.allocate(count * sizeof(T)))), size(count) {}
  OnDevice(Gpu& device, const std::vector<T>& values) : OnDevice(device, values.size()) { set(values); }
  void set(const std::vector<T>& values) { gpu->upload(p, values.data(), values.size() * sizeof(T)); }
  std::vector<T> get() const {
    std::vector<T> values(size);
    gpu->download(values.data(), p, size * sizeof(T));
    return values;
  }
};

inline std::vector<Bf16> bf16(const std::vector<float>& values) {
  std::vector<Bf16> result;
  for (const float v : values) result.push_back(to_bf16(v));
  return result;
}

inline std::vector<float> floats(const std::vector<Bf16>& values) {
  std::vector<float> result;
  for (const Bf16 v : values) result.push_back(to_float(v));
  return result;
}

/// Uniform in [-1, 1].
inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> result(count);
  for (float& v : result) v = static_cast<float>(random() >> 40) / 8388608.0f - 1;
  return result;
}

inline std::vector<Bf16> random_bf16(std::size_t count, std::uint64_t seed) {
  return bf16(random_floats(count, seed));
}

/// The text of the GpuError that `f` throws, or "".
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const GpuError& e) {
    return e.what();
  }
  return "";
}

}  // namespace shardline
