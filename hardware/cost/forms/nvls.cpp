// In-switch all-reduce. forms/README.md [H46].
#include "hardware/cost/forms/nvls.hpp"

#include <cmath>

#include "hardware/machine/system.hpp"

namespace shardline {

namespace {

// NVIDIA/nccl v2.30.7-1. src/graph/topo.h: SM90_NVLINK_BW, SM100_NVLINK_BW, of links of 25 and 50 GB/s.
// src/graph/tuning.cc: nvlsEfficiency, and hwLatencies of NVLS over NVLink.
constexpr double kHopper = 20.6 / 25 * 0.85, kBlackwell = 40.1 / 50 * 0.74;
constexpr double kSwitchLatency = 25;  // us

// Bytes of the port that fill the pipeline of 8 GPUs; it grows with the square of their number. From
// measurements of 8 and of 72 GPUs (forms/README.md).
constexpr double kFill = 4e6;
constexpr double kFillGpus = 8;

constexpr double kAsFastAsARing = 4;  // GPUs: NVIDIA/nccl issue 1455

}  // namespace

double nvls_efficiency(const System& s) {
  if (!s.fabric.nvlink.multicast) return 0;
  return s.device.peak[static_cast<std::size_t>(Dtype::fp4)].value > 0 ? kBlackwell : kHopper;
}

NvlsShape::NvlsShape(double gpus, double link) {
  if (gpus <= kAsFastAsARing) return;
  const double group = gpus / kFillGpus;
  share = 1 + 1 / gpus;
  fill = kFill * group * group / link;
}

double nvls_microseconds(double share, double fill, double bytes, double link, double rate) {
  const double wire = share * bytes / link;
  return kSwitchLatency + (wire + std::sqrt(wire * fill)) * 1e6 / rate;
}

}  // namespace shardline
