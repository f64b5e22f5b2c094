// `shardline-probe execute`: schedules run on GPUs, checked against the CPU executor, and timed op by op
// beside what is simulated.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda_probe/transport/transport.hpp"

namespace shardline::probe_cli {

/// Devices and what connects the ranks on them.
struct Ranks {
  std::vector<std::unique_ptr<Gpu>> gpus;  // freed after the transport
  std::unique_ptr<Transport> transport;
};

struct ExecuteOptions {
  std::string strategy = "all";
  int ranks = 8;           // of the transport; cases that need more are left out
  std::size_t cases = 0;   // per strategy and head width at most, spread over all; 0: all
  bool emulate = false;    // on a device made up of CPU code
  std::uint64_t seed = 1;  // of the made-up device's order
  bool collectives = true;
  // One schedule, op by op, instead of the cases.
  std::string scenario, plan;
  std::string model;                // of the scenario; empty: its first
  std::string system;               // to simulate on; empty: the scenario's
  std::optional<long long> tokens;  // per request, cached ones included
  /// Real devices for so many ranks; unset where there are none.
  std::function<Ranks(int)> devices;
};

/// 0, or 1 if a result is wrong, or 3 if there is no device. Throws UserError, GpuError.
int execute(const ExecuteOptions& options);

/// The two halves of execute().
int execute_cases(const ExecuteOptions& options, Transport& transport);
int execute_schedule(const ExecuteOptions& options);

/// Ranks on the stand-in device or, by ExecuteOptions::devices, on real ones; no transport if there are none.
Ranks ranks_for(const ExecuteOptions& options, int ranks);

}  // namespace shardline::probe_cli
