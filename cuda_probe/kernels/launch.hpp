// Starts the kernels. All are asynchronous on `stream`; arguments are checked on the host first:
// cudaErrorInvalidValue for shapes that the headers of the arguments exclude, cudaErrorNotSupported for a
// device below compute capability 8.0.
#pragma once

#include <cuda_runtime.h>

#include "cuda_probe/kernels/attention.hpp"
#include "cuda_probe/kernels/elementwise.hpp"
#include "cuda_probe/kernels/merge.hpp"
#include "cuda_probe/kernels/splits.hpp"

namespace shardline {

/// Which instructions a prefill uses; automatic: the best that the device has.
enum class PrefillPath : std::uint8_t { automatic, mma, wgmma };
/// The same of an MLA decode; up to 16 heads automatic is mma.
enum class MlaDecodePath : std::uint8_t { automatic, mma, wgmma };

cudaError_t prefill(const PrefillArguments& arguments, cudaStream_t stream,
                    PrefillPath path = PrefillPath::automatic);
/// Both launch a second kernel that merges the splits where there are several.
cudaError_t decode(const DecodeArguments& arguments, cudaStream_t stream);
cudaError_t mla_decode(const MlaDecodeArguments& arguments, cudaStream_t stream,
                       MlaDecodePath path = MlaDecodePath::automatic);
cudaError_t merge(const MergeArguments& arguments, cudaStream_t stream);
cudaError_t compress(const CompressArguments& arguments, cudaStream_t stream);
cudaError_t rms_norm(const RowArguments& arguments, cudaStream_t stream);
cudaError_t swiglu(const RowArguments& arguments, cudaStream_t stream);
cudaError_t add(const RowArguments& arguments, cudaStream_t stream);

}  // namespace shardline
