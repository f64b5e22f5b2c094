// How a question is answered, whatever it asks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace shardline::api {

struct RunOptions {
  int threads = 0;           // 0: all cores; results do not depend on it
  std::string engine;        // "vllm", "vllm 0.24.0", "ideal"; empty: as the scenario says
  std::string costs;         // "calibrated" or "parameters"; empty: as the scenario says
  bool any_gpus = false;     // with an engine: also plans of part of a tray or node
  bool any_context = false;  // with an engine: also requests longer than the model's maximum
  /// "device.memory.bandwidth=4 TB/s": in place of what the system's file or the scenario says.
  std::vector<std::string> settings;
  /// What the question may need, in bytes; one that needs more is refused before it starts, with Error of
  /// kind bad_input. 0: any amount, as a library does not know what else its process does.
  double memory_bytes = 0;
  /// Neither may throw: what they throw is nobody's answer. Asked between plans (of partitions between
  /// chains), from any thread: true stops, and Error of kind `interrupted` is thrown.
  std::function<bool()> cancelled;
  /// Of each model in turn, from one thread at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

}  // namespace shardline::api
