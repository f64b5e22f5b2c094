// The action of a rank as a kernel of its device.
#pragma once

#include "cuda_probe/execute/cuda/exchange.hpp"

namespace shardline {

/// Uploads what the kernel needs. The action must pass why_not (kernel_limits.hpp); `scale` of scores, 0:
/// 1/sqrt(qk_dim).
Launch plan_action(const Dataflow& flow, const Layout& layout, const Action& action, double scale, Gpu& gpu,
                   RankMemory& memory);

}  // namespace shardline
