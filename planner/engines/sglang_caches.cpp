#include "planner/engines/sglang_caches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "planner/layers/share.hpp"

namespace shardline {

namespace {

// Attention with sinks and MLA have Triton's kernels on Ampere (server_args.py, _get_default_attn_backend),
// and Triton converts FP8 as launch files name it (fp8_e4m3, which it calls fp8e4nv) from compute capability
// 8.9 on. Sparse attention has no kernels there at all, which is another rule.
bool read_by_triton(const Case& c) {
  if (architecture_of(c.system.device) != Architecture::ampere) return false;
  const bool sinks = std::any_of(c.model.attentions.begin(), c.model.attentions.end(),
                                 [](const Attention& a) { return a.sinks && !a.compression; });
  return sinks || (has_latents(c.model) && !has_sparse(c.model));
}

}  // namespace

// FlashAttention 3 and FlashInfer, its own choices before Blackwell, are none of the backends that it reads
// such caches with. Of weights it asks nothing there (server_args.py:4727-4800). Sparse attention (DSA) and
// Nemotron-H, for which it takes FlashInfer on Blackwell, too, read none anywhere.
std::optional<CaseComplaint> sglang_cache_type(const Case& c) {
  if (auto out = fp32_cache(c)) return out;
  if (kernel_type(c.precision.kv) == Dtype::fp8 && read_by_triton(c))
    return CaseComplaint{"precision.kv",
                         fmt::format("{} is attended to by Triton's kernels on {}, which read caches in 16 "
                                     "bits alone",
                                     c.model.name, c.system.device.name),
                         "bf16"};
  if (kernel_type(c.precision.kv) != Dtype::fp4) return std::nullopt;
  const auto no = [](std::string text) {
    return CaseComplaint{"precision.kv", std::move(text), "fp8 or bf16"};
  };
  if (has_sparse_latents(c.model))
    return no(c.model.name + " has sparse attention, whose cache it does not keep in fp4");
  if (c.model.architecture == "NemotronHForCausalLM")
    return no(c.model.name + " is attended to by FlashInfer, which reads no cache in fp4");
  if (architecture_of(c.system.device) == Architecture::blackwell) return std::nullopt;
  return no(fmt::format("{} is no Blackwell, whose attention reads caches in fp4", c.system.device.name));
}

std::optional<CaseComplaint> sglang_unpriced_cache(const Case& c) {
  if (kernel_type(c.precision.kv) != Dtype::fp4) return std::nullopt;
  return CaseComplaint{
      "precision.kv",
      "a cache in fp4, whose whole pool it widens to 16 bits in every layer of every step: a "
      "time that grows with the pool and that nobody here has measured",
      "fp8 or bf16"};
}

}  // namespace shardline
