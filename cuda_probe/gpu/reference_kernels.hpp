// The kernels as plain loops, written from the headers of their arguments and independent of the CUDA code:
// float32 sums in the order of the loops, results rounded to bfloat16. touch() says what a kernel reads and
// writes and throws GpuError for arguments that the headers exclude; compute() runs it.
#pragma once

#include "cuda_probe/gpu/gpu.hpp"
#include "cuda_probe/gpu/memory_map.hpp"

namespace shardline::reference {

/// RowArguments serve three kernels.
struct RmsNorm {
  RowArguments a;
};
struct Swiglu {
  RowArguments a;
};
struct Add {
  RowArguments a;
};

void touch(Touches& t, const Copy& a);
void touch(Touches& t, const PrefillArguments& a);
void touch(Touches& t, const DecodeArguments& a);
void touch(Touches& t, const MlaDecodeArguments& a);
void touch(Touches& t, const MergeArguments& a);
void touch(Touches& t, const CompressArguments& a);
void touch(Touches& t, const RmsNorm& k);
void touch(Touches& t, const Swiglu& k);
void touch(Touches& t, const Add& k);
void touch(Touches& t, const GemmArguments& a);

void compute(const Copy& a);
void compute(const PrefillArguments& a);
/// With splits > 1 the partial results are left NaN: what they hold is the kernel's own affair.
void compute(const DecodeArguments& a);
void compute(const MlaDecodeArguments& a);
void compute(const MergeArguments& a);
void compute(const CompressArguments& a);
void compute(const RmsNorm& k);
void compute(const Swiglu& k);
void compute(const Add& k);
void compute(const GemmArguments& a);

}  // namespace shardline::reference
