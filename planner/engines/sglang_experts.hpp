// Which experts SGLang 0.5.14 has kernels for behind DeepEP, and in MXFP4.
#pragma once

#include "planner/engines/launch_rules.hpp"

namespace shardline {

/// Experts that its classes and kernels do not run behind DeepEP's dispatch and combine.
Complaint sglang_undispatched(const Case& c, const Plan& plan);

/// Experts in MXFP4 that several ranks share by EP before Blackwell: it would widen them to 16 bits when it
/// loads them, with four times the memory and other kernels.
Complaint sglang_widened_experts(const Case& c, const Plan& plan);

}  // namespace shardline
