// Schedules and inputs for tests of the device executor, and runs on the stand-in device.
#pragma once

#include <string>
#include <vector>

#include "cuda_probe/execute/cuda/compare.hpp"
#include "cuda_probe/execute/cuda/supported.hpp"
#include "cuda_probe/execute/verify/verify_cases.hpp"
#include "cuda_probe/gpu/emulated_gpu.hpp"

namespace shardline::testing {

/// The least widths that every kernel takes.
cli::CaseSizes device_sizes();
/// Of those that device executors can run.
std::vector<std::string> strategy_names();
/// Whether our kernels compute the case: every query sees all keys before it (no window, no chunk, no sinks,
/// no index, no state), and a request has one query over latents: no drafts, no prompt that attends to them.
bool has_kernels(const cli::VerifyCase& c);
/// About `count` cases of each kind of heads that the strategy has, spread over the grid.
std::vector<cli::VerifyCase> sampled(const std::string& strategy, std::size_t count);

struct Inputs {
  explicit Inputs(const Problem& problem);
  RunResult<float> on_cpu(const Schedule& schedule) const;
  Tensors<float> tensors;
};

/// Runs on loopback ranks over one EmulatedGpu.
DeviceResult on_emulated(const Schedule& schedule, const Inputs& inputs, const EmulatedOptions& gpu = {},
                         const DeviceOptions& options = {});

bool same_bits(const DeviceResult& a, const DeviceResult& b);
std::string describe(const DeviceCheck& check);

}  // namespace shardline::testing
