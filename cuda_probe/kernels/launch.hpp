// Starts the kernels. Asynchronous on `stream`; arguments are checked on the host.
#pragma once

#include <cuda_runtime.h>

#include "cuda_probe/kernels/merge.hpp"

namespace shardline {

/// cudaErrorInvalidValue for shapes that merge.hpp excludes.
cudaError_t merge(const MergeArguments& arguments, cudaStream_t stream);

}  // namespace shardline
