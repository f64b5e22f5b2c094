// Rows of measured loops as tables have them.
#pragma once

#include <fmt/format.h>

#include <string>

namespace shardline {

inline const char* const kServedHeader =
    "system,model,precision,backend,backend_version,isl_tokens,osl_tokens,concurrency,gpus,tp,pp,attn_dp,moe_"
    "tp,"
    "moe_ep,ttft_ms,tpot_ms,measured,source\n";

/// Of vLLM on H100s, 1,024 tokens in and 256 out; times in ms.
inline std::string served_row(const std::string& model, int users, int tp, double ttft, double tpot) {
  return fmt::format("h100_sxm,{},,vllm,0.24.0,1024,256,{},{},{},1,,1,1,{},{},,gap-analysis/x.csv\n", model,
                     users, tp, tp, ttft, tpot);
}

}  // namespace shardline
