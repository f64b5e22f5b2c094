// Clocks, limits and throttling of a GPU through NVML, loaded at run time. Reads only.
#pragma once

#include <memory>
#include <string>

#include "cuda_probe/probes/results.hpp"

namespace shardline {

/// Bits of NVML's clock event reasons that mean: slower than the workload and the power limit allow.
bool is_throttled(unsigned long long reasons);
/// The bit that means: slower because of the power limit.
bool is_power_capped(unsigned long long reasons);

class Nvml {
 public:
  /// `bus_id` as CUDA prints it ("0000:17:00.0"). Without the library or the device everything is unknown.
  explicit Nvml(const std::string& bus_id);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Why nothing is known; empty: it is.
  const std::string& missing() const { return missing_; }
  /// Driver, clocks, power limit, temperature, ECC, MIG.
  void describe(DeviceInfo& device) const;

  struct State {
    double clock = 0;  // MHz; 0: unknown
    bool throttled = false, capped = false;
  };
  State state() const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
  std::string missing_;
};

}  // namespace shardline
