// What of a plan an engine serves requests with: its knobs, and the blocks of its KV cache.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "planner/engines/architectures.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/memory.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/request_service.hpp"

namespace shardline {

namespace {

// Bytes of a rank's KV caches of one request of so many tokens.
double cache_bytes(Case c, const Plan& plan, long long tokens) {
  c.batch = decode_batch(tokens);
  return memory_use(c, plan).kv.value;
}

struct Knob {
  const char* name;
  std::uint32_t VllmKnobs::*number = nullptr;
  bool VllmKnobs::*flag = nullptr;
};
constexpr std::array kKnobs{
    Knob{"max_num_batched_tokens", &VllmKnobs::max_num_batched_tokens, nullptr},
    Knob{"max_num_seqs", &VllmKnobs::max_num_seqs, nullptr},
    Knob{"long_prefill_token_threshold", &VllmKnobs::long_prefill_token_threshold, nullptr},
    Knob{"block_size", &VllmKnobs::block_size, nullptr},
    Knob{"max_model_len", &VllmKnobs::max_model_len, nullptr},
    Knob{"num_gpu_blocks", &VllmKnobs::num_gpu_blocks, nullptr},
    Knob{"async_scheduling", nullptr, &VllmKnobs::async_scheduling},
    Knob{"enable_chunked_prefill", nullptr, &VllmKnobs::enable_chunked_prefill},
    Knob{"enable_prefix_caching", nullptr, &VllmKnobs::enable_prefix_caching},
    Knob{"scheduler_reserve_full_isl", nullptr, &VllmKnobs::scheduler_reserve_full_isl},
};

// Whether the knob of this name is set in the question.
void set_knob(VllmKnobs& knobs, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
  const auto fault = [&](std::size_t column, std::string what,
                         std::vector<std::string> details) -> UserError {
    return UserError(
        {Diagnostic{{"--knob", 1, static_cast<int>(column + 1), text}, std::move(what), std::move(details)}});
  };
  const auto* const knob =
      std::find_if(kKnobs.begin(), kKnobs.end(), [&](const Knob& k) { return name == k.name; });
  if (knob == kKnobs.end()) {
    std::vector<std::string> names;
    for (const Knob& k : kKnobs) names.emplace_back(k.name);
    throw fault(0, "unknown knob " + name, expected_one_of(name, names));
  }
  if (knob->flag != nullptr) {
    if (value != "true" && value != "false")
      throw fault(name.size() + 1, "expected true or false, found " + (value.empty() ? "nothing" : value),
                  {});
    knobs.*knob->flag = value == "true";
    return;
  }
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool may_be_none = knob->number == &VllmKnobs::long_prefill_token_threshold;
  if (error != std::errc{} || end != value.data() + value.size() || number > 1U << 30 ||
      (number == 0 && !may_be_none))
    throw fault(name.size() + 1,
                fmt::format("expected a whole number from {}, found {}", may_be_none ? 0 : 1,
                            value.empty() ? "nothing" : value),
                {});
  knobs.*knob->number = number;
}

// Blocks of so many tokens for requests of `mean` tokens each. What a layer keeps whatever a request's length
// (a window's) is set aside for as many requests as fit.
std::uint32_t blocks_of(const Case& c, const Plan& plan, std::uint32_t block, long long mean) {
  const long long far = std::max<long long>(1 << 20, 4LL * block);
  const double token = (cache_bytes(c, plan, 2 * far) - cache_bytes(c, plan, far)) / static_cast<double>(far);
  const double fixed = std::max(0.0, cache_bytes(c, plan, far) - token * static_cast<double>(far));
  Case one = c;
  one.batch = decode_batch(mean);
  const MemoryUse use = memory_use(one, plan);
  const double room =
      c.engine->room_for_kv(c.system.device, use.weights, use.activations + use.buffers, use.server).value;
  const double each = token * static_cast<double>(mean) + fixed;
  if (room < each) return 0;
  const double left = room - std::floor(room / each) * fixed;
  const double blocks = std::floor(left / (token * block));
  return static_cast<std::uint32_t>(std::min(blocks, 4e9));
}

}  // namespace

std::optional<std::string> no_play(const Case& c, const Plan& plan) {
  if (!c.engine) return "bare kernels have no scheduler: name an engine that has, as --engine vllm";
  if (!same_engine(c.engine->name, "vllm"))
    return fmt::format("the scheduler of {} is not played yet, that of vLLM is: --engine vllm",
                       c.engine->title);
  if (plan.dp > 1)
    return "its attention groups are engines of their own behind one barrier, which is not played yet";
  if (plan.pp > 1) return "its pipeline has several steps on their way at once, which is not played yet";
  if (!serves_prompts(c, plan.strategy)) return "it needs a pool of its own for prompts";
  for (const Attention& a : c.model.attentions) {
    if (a.reach.local() && !a.reach.slides())
      return "its layers attend to chunks, so that a step depends on where in its chunk each request is";
  }
  return std::nullopt;
}

VllmKnobs vllm_knobs(const Case& c, const Plan& asked, const std::vector<std::string>& overrides,
                     long long mean_tokens) {
  Plan plan = asked;
  plan.batch = 1;
  VllmKnobs knobs;
  const Device& device = c.system.device;
  knobs.max_num_batched_tokens = static_cast<std::uint32_t>(c.engine->tokens_of_step(device));
  // Of an API server: vllm/engine/arg_utils.py:2404-2423 at v0.24.0, as the profile's steps.tokens.
  const bool small =
      device.memory < Bytes(70.0 * (1 << 30)) || architecture_of(device) == Architecture::ampere;
  knobs.max_num_seqs = small ? 256 : 1024;
  knobs.num_gpu_blocks = 0;
  knobs.max_model_len = 0;
  for (const std::string& text : overrides) set_knob(knobs, text);
  // A block lies on all ranks that share its cache, in as many tokens each.
  int sharers = 1;
  for (const Attention& a : c.model.attentions) {
    if (!a.none()) sharers = std::max(sharers, cache_share(c, a, plan).sharers.size);
  }
  knobs.block_size *= static_cast<std::uint32_t>(sharers);
  if (kTraceBlock % knobs.block_size != 0)
    throw UserError(fmt::format(
        "a block of {} tokens{}: expected a divisor of {}, the blocks of traces", knobs.block_size,
        sharers > 1 ? fmt::format(" on {} ranks that share it", sharers) : "", kTraceBlock));
  if (knobs.num_gpu_blocks == 0) {
    knobs.num_gpu_blocks = blocks_of(c, plan, knobs.block_size, mean_tokens);
    if (knobs.num_gpu_blocks == 0) {
      Case one = c;
      one.batch = decode_batch(mean_tokens);
      const auto misfit = does_not_fit(one, memory_use(one, plan));
      throw UserError(fmt::format("{} does not fit {}: {}", to_string(plan), c.system.name,
                                  misfit ? *misfit : "no request has room for its KV"));
    }
  }
  // As launch files say it: the longest request that there may be, the model's own limit or what fits.
  const auto held = std::uint64_t{knobs.num_gpu_blocks} * knobs.block_size;
  if (knobs.max_model_len == 0)
    knobs.max_model_len = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        {held, static_cast<std::uint64_t>(std::max(c.model.max_context, c.any_context ? mean_tokens : 0LL)),
         1U << 30}));
  return knobs;
}

}  // namespace shardline
