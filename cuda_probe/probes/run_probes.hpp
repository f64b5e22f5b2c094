// Runs the probes on a GPU.
#pragma once

#include <functional>
#include <optional>

#include "cuda_probe/probes/results.hpp"
#include "cuda_probe/probes/shapes.hpp"

namespace shardline {

struct ProbeOptions {
  std::vector<const Probe*> probes;
  Seconds budget{300};  // wall clock of the whole run
  bool quick = false;   // few samples of few shapes: whether all works, not how fast it is
  int device = 0;
};

/// Whom a run tells what happens.
struct RunListener {
  /// Before the first measurement; `roof` is the copy bandwidth that rates are compared with.
  std::function<void(const DeviceInfo& device, const MeasureRule& rule, BytesPerSecond roof)> start;
  std::function<void(const Probe& probe, std::size_t done, std::size_t of)> progress;
  std::function<void(const FamilyResult& family)> done;
  std::function<bool()> interrupted;  // asked between shapes; true ends the run
};

/// Why nothing can be measured on this machine, or nothing.
std::optional<std::string> no_device();

/// Why a GPU of that number cannot be had, where there are others.
std::optional<std::string> no_such_device(int device);

/// Never changes a setting of a GPU. A probe that fails keeps what it measured, and the next one runs where
/// the device still answers; throws GpuError with all failures at the end.
void run_probes(const ProbeOptions& options, const ShapeLists& shapes, const RunListener& listener);

}  // namespace shardline
