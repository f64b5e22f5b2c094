// One GPU: peaks, memory, and the fixed cost of a kernel.
#pragma once

#include <array>
#include <string>

#include "models/ir/schedule.hpp"
#include "sim/base/reader.hpp"
#include "sim/base/units.hpp"

namespace shardline {

struct Device {
  std::string name;
  std::string source;                        // of the figures below
  Bytes memory;                              // HBM capacity
  BytesPerSecond memory_bandwidth;           // HBM peak
  std::array<FlopsPerSecond, kDtypes> peak;  // dense tensor-core peak per Dtype; zero: no such unit
  FlopsPerSecond exponentials;               // special-function units
  double memory_efficiency = 1;              // achieved fraction of HBM peak
  double compute_efficiency = 1;             // achieved fraction of tensor-core peak
  double attention_efficiency = 0;           // ... of long flash-attention kernels; 0: compute_efficiency
  double tile_efficiency = 0;                // ... of one wave of attention tiles; 0: attention_efficiency
  int sms = 0;                               // 0: attention tiles are not rounded to waves
  int multiprocessors = 0;                   // for the forms of hardware/cost/forms; 0: as sms
  double usable_memory = 1;                  // fraction of HBM that weights and KV may fill
  double power_limit = 0;                    // W, of the board; 0: not given
  Seconds kernel_cost;                       // per kernel: launch, ramp and tail

  FlopsPerSecond achieved(Dtype math) const {
    return peak[static_cast<std::size_t>(math)] * compute_efficiency;
  }
  BytesPerSecond achieved_memory() const { return memory_bandwidth * memory_efficiency; }
  double attention() const { return attention_efficiency > 0 ? attention_efficiency : compute_efficiency; }
  double tile() const { return tile_efficiency > 0 ? tile_efficiency : attention(); }
};

/// HBM traffic of elementwise work over that of one fused kernel, where an engine launches several (prefill).
struct Passes {
  double norm = 1, rotary = 1, residual = 1, activation = 1, merge = 1;
};

/// What an engine's host side adds where it launches kernel by kernel (prefill); zero under CUDA graphs.
struct Runtime {
  Seconds ring_step;         // launch and synchronisation of one iteration of ring attention
  Seconds send_recv;         // added to a message between nodes
  Seconds all_to_all;        // added to an all-to-all between nodes
  Seconds persistent_layer;  // per layer where new tokens join a cache kept from earlier turns
  Bytes persistent_traffic;  // copies of one such token, per layer
  Seconds host_layer;        // a host's time to launch one layer; it runs ahead of its GPU
  Seconds host_gather;       // ... and for each member of a gather, whose pieces are copied one by one
  Seconds distribute;        // once per prefill that several context-parallel ranks share
  Bytes retaining_traffic;   // APB: copies of one scored token around the retaining heads, per layer
  Passes passes;
};

/// Reads the `device` mapping of a system file; faults are recorded in the document.
Device read_device(const Reader& reader);
Runtime read_runtime(const Reader& reader);

}  // namespace shardline
