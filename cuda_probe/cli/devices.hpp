// Real devices for `execute`.
#pragma once

#include "cuda_probe/cli/execute.hpp"

namespace shardline::probe_cli {

/// So many ranks: a GPU each over NCCL where this machine has as many, else all of them on the first GPU over
/// the loopback transport. No transport where there is no GPU.
Ranks real_ranks(int ranks);

}  // namespace shardline::probe_cli
