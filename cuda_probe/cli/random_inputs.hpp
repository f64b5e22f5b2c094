// Inputs for a schedule of any size, of no meaning: for timing.
#pragma once

#include <cstdint>

#include "cuda_probe/execute/core/tensors.hpp"

namespace shardline::probe_cli {

/// Host memory that random_inputs() takes.
double random_input_bytes(const Dataflow& flow);
/// As many tokens and columns of each input matrix as the data flow's bindings name, uniform in [-1, 1);
/// weights smaller, so that results keep their size. Rounded to bfloat16.
Tensors<float> random_inputs(const Dataflow& flow, std::uint64_t seed);

}  // namespace shardline::probe_cli
