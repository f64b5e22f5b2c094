// One GPU: peaks, memory, and the fixed cost of a kernel.
#pragma once

#include <array>
#include <string>

#include "models/schedule.hpp"
#include "sim/base/reader.hpp"
#include "sim/base/units.hpp"

namespace shardline {

struct Device {
  std::string name;
  std::string source;                  // of the figures below
  Bytes memory;                        // HBM capacity
  BytesPerSecond memory_bandwidth;     // HBM peak
  std::array<FlopsPerSecond, 4> peak;  // dense tensor-core peak per Dtype; zero: no such unit
  FlopsPerSecond exponentials;         // special-function units
  double memory_efficiency = 1;        // achieved fraction of HBM peak
  double compute_efficiency = 1;       // achieved fraction of tensor-core peak
  double usable_memory = 1;            // fraction of HBM that weights and KV may fill
  Seconds kernel_cost;                 // per kernel: launch, ramp and tail

  FlopsPerSecond achieved(Dtype math) const {
    return peak[static_cast<std::size_t>(math)] * compute_efficiency;
  }
  BytesPerSecond achieved_memory() const { return memory_bandwidth * memory_efficiency; }
};

/// Reads the `device` mapping of a system file; faults are recorded in the document.
Device read_device(const Reader& reader);

}  // namespace shardline
