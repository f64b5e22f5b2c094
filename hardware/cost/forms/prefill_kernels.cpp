#include "hardware/cost/forms/prefill_kernels.hpp"

#include <cstddef>

#include "hardware/machine/system.hpp"

namespace shardline {

namespace {

using enum PrefillKernel;
struct Named {
  std::string_view name;
  PrefillKernel kernel;
  bool writes = false;  // see writes_by_token()
};
// FlashAttention-3 packs wherever a KV head has several query heads: before Hopper and for pages that TMA
// cannot fetch always (get_pack_gqa, hopper/flash_api.cpp:446 of vllm-project/flash-attention@803020a8), for
// sequences of several lengths by whether it wins (should_pack_gqa); FlashAttention-4 always
// (flash_attn/cute/interface.py:695 of Dao-AILab/flash-attention@0251105a); vLLM's Triton kernel has the
// query heads of a KV head in a block (triton_unified_attention.py:105 of vllm-project/vllm@ee0da84ab9),
// SGLang's one head (extend_attention.py:287 of sgl-project/sglang v0.5.14). On Blackwell SGLang runs
// FlashInfer's CUTLASS kernel (flashinfer_backend.py:432), a tile of one head as those of TensorRT-LLM are.
constexpr Named kNamed[] = {
    {"torch_flow", with_rope},
    {"torch_flow_flashinfer", with_rope},
    {"vllm_flash_attn", plain, true},
    {"trtllm_mha", plain},
    {"flashinfer_trtllmprefill", plain, true},
    {"flashinfer", plain},
    {"triton", triton_hopper},
    {"fa3", PrefillKernel::flash_attention_3},
    {"flash_attention", packed},  // SGLang's on Ampere: FlashAttention-3's
    {"flash_attn_fa3", PrefillKernel::flash_attention_3, true},
    {"flash_attn_fa4", packed, true},
    {"triton_attn", packed, true},
};

const Named* named(std::string_view name) {
  for (const Named& k : kNamed) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

}  // namespace

std::optional<PrefillKernel> prefill_kernel(std::string_view name, const System& system) {
  const Named* k = named(name);
  if (k == nullptr) return std::nullopt;
  const bool blackwell = system.device.peak[static_cast<std::size_t>(Dtype::fp4)].value > 0;
  return k->kernel == triton_hopper && blackwell ? triton_blackwell : k->kernel;
}

bool writes_by_token(std::string_view name) {
  const Named* k = named(name);
  return k != nullptr && k->writes;
}

}  // namespace shardline
