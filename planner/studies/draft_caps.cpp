#include "planner/studies/draft_caps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sim/base/argument_names.hpp"

namespace shardline {

// NVIDIA/TensorRT-LLM, _torch/pyexecutor/request_utils.py, derive_attention_dp_per_rank_request_cap.
std::uint32_t verified_at_once(const TrtllmKnobs& knobs, const Plan& plan) {
  if (plan.dp == 1 || plan[kDrafts] == 0) return std::numeric_limits<std::uint32_t>::max();
  return std::max(1U, knobs.max_num_tokens / (1U + static_cast<std::uint32_t>(plan[kDrafts])));
}

void note_draft_caps(const Plan& plan, const ServiceKnobs& knobs, std::vector<Diagnostic>& out) {
  if (plan[kDrafts] == 0) return;
  const auto* sglang = std::get_if<SglangKnobs>(&knobs.of);
  if (sglang != nullptr &&
      sglang->max_running_requests == std::max(1U, kSglangDrafting / static_cast<std::uint32_t>(plan.dp)))
    out.push_back(
        {{},
         fmt::format("SGLang decodes at most {} requests at once, of all attention groups together, "
                     "where it verifies drafts, unless it is told otherwise",
                     kSglangDrafting),
         {argument_given("knob", "max_running_requests=256") + " tells it otherwise"}});
  const auto* trtllm = std::get_if<TrtllmKnobs>(&knobs.of);
  if (trtllm != nullptr && trtllm->max_batch_size == verified_at_once(*trtllm, plan))
    out.push_back(
        {{},
         fmt::format("TensorRT-LLM takes at most {} requests at once in each attention group, as it "
                     "verifies {} tokens of each in a step of at most {}",
                     trtllm->max_batch_size, 1 + plan[kDrafts], trtllm->max_num_tokens),
         {argument_given("knob", fmt::format("max_num_tokens={}", 2 * trtllm->max_num_tokens)) +
          " makes room for as many again"}});
}

}  // namespace shardline
