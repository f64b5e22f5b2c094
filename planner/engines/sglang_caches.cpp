#include "planner/engines/sglang_caches.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "planner/layers/share.hpp"

namespace shardline {

// FlashAttention 3 and FlashInfer, its own choices before Blackwell, are none of the backends that it reads
// such caches with. Of weights it asks nothing there (server_args.py:4727-4800). Sparse attention (DSA) and
// Nemotron-H, for which it takes FlashInfer on Blackwell, too, read none anywhere.
std::optional<CaseComplaint> sglang_cache_type(const Case& c) {
  if (auto out = fp32_cache(c)) return out;
  if (auto out = fp8_under_triton(c)) return out;
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
