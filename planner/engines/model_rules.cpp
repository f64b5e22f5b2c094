// Rules of engines that are of single models, or of the blocks of their caches.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "planner/engines/launch_rules.hpp"

namespace shardline {

namespace {

constexpr int kMiniMaxBlock = 128;
constexpr std::array kModules{Module::attention, Module::out_proj, Module::dense_ffn, Module::experts};

// MiniMax-M3, whose index chooses blocks of tokens, as no other model's does.
bool chooses_blocks(const Case& c) {
  return std::any_of(c.model.attentions.begin(), c.model.attentions.end(),
                     [](const Attention& a) { return a.index && a.index->block > 1; });
}

template <class F>
bool any_weights(const Case& c, F f) {
  return std::any_of(kModules.begin(), kModules.end(),
                     [&](Module m) { return f(c.precision.of(m).weights); });
}

}  // namespace

bool quantised(const Case& c) {
  return any_weights(c, [](Dtype t) { return bytes_per_element(t) < 2; });
}

std::optional<CaseComplaint> other_block(const Case& c, const LaunchRules& rules) {
  if (c.kv_block == rules.own_block) return std::nullopt;
  return CaseComplaint{"kv_block", fmt::format("blocks of {} tokens", c.kv_block),
                       fmt::format("no kv_block, or {} tokens", rules.own_block)};
}

std::optional<int> vllm_block(const Case& c) {
  return chooses_blocks(c) ? std::optional(kMiniMaxBlock) : std::nullopt;
}

std::optional<CaseComplaint> vllm_block_size(const Case& c) {
  constexpr int kLeast = 16, kMost = 256;
  const bool power = std::has_single_bit(static_cast<unsigned>(c.kv_block));
  const std::optional<int> own = vllm_block(c);
  if (own ? c.kv_block == *own : power && c.kv_block >= kLeast && c.kv_block <= kMost) return std::nullopt;
  return CaseComplaint{"kv_block", fmt::format("blocks of {} tokens", c.kv_block),
                       own ? fmt::format("no kv_block, or {} tokens", *own)
                           : std::string("one of 16, 32, 64, 128 and 256 tokens")};
}

std::optional<CaseComplaint> minimax_without_fp4(const Case& c) {
  if (!chooses_blocks(c) || !any_weights(c, [](Dtype t) { return arithmetic_of(t) == Dtype::fp4; }))
    return std::nullopt;
  return CaseComplaint{"models", fmt::format("{} with weights in FP4", c.model.name),
                       "weights in bf16 or fp8, as --set precision.weights=bf16 on the command line"};
}

std::optional<CaseComplaint> minimax_in_16_bits(const Case& c) {
  if (!chooses_blocks(c) || !quantised(c)) return std::nullopt;
  return CaseComplaint{"models", fmt::format("{} with weights of fewer than 16 bits", c.model.name),
                       "weights in bf16, as --set precision.weights=bf16 on the command line"};
}

std::optional<CaseComplaint> minimax_by_fallback(const Case& c) {
  if (!chooses_blocks(c) || architecture_of(c.system.device) == Architecture::blackwell) return std::nullopt;
  return CaseComplaint{
      "models", fmt::format("the dense fallback that {} runs by on {}", c.model.name, c.system.device.name),
      "engine vllm, which has kernels of its own for it, or a system of Blackwell"};
}

Complaint minimax_in_stages(const Case& c, const Plan& plan) {
  if (!chooses_blocks(c) || plan.pp == 1) return std::nullopt;
  return fmt::format("{} in {} stages", c.model.name, plan.pp);
}

}  // namespace shardline
