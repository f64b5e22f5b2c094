#include "planner/scenario/everyday.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "planner/strategies/strategy.hpp"

namespace shardline::scenario_parts {

namespace {

/// A key of engines' options and of benchmarks; `_size` and `-` are taken off before it is looked up.
struct EngineKey {
  const char* name;
  const char* instead;
};
constexpr const char* kRanks = "strategies: [tensor], and degrees: {tpa: [8]} for one size alone";
constexpr const char* kStages = "strategies: [pipeline], and pipeline_stages: [2] for one number alone";
constexpr const char* kGroups = "strategies: [dp_ep], and degrees: {dp: [8]} for one size alone";
constexpr const char* kExperts = "strategies: [dp_ep], and degrees: {ep: [8]} for one size alone";
constexpr const char* kContext =
    "strategies of context parallelism (shardline list strategies), and degrees: {cp: [8]} for one size "
    "alone";
constexpr const char* kInput = "workload: {input: 32K tokens, output: 1K tokens}, with an engine";
constexpr const char* kUsers =
    "workload: {input: 32K tokens, output: 1K tokens, users: [64]}, or batch: [64]";
constexpr const char* kTimes = "constraints: {ttl: 20 ms, ttft: 2 s}, or the options --ttl and --ttft";
constexpr const char* kLength = "context: 32K tokens";
constexpr const char* kTypes = "precision: {weights: fp8, kv: fp8}";
constexpr std::array kKeys{
    EngineKey{"tp", kRanks},
    EngineKey{"tensor_parallel", kRanks},
    EngineKey{"pp", kStages},
    EngineKey{"pipeline_parallel", kStages},
    EngineKey{"dp", kGroups},
    EngineKey{"data_parallel", kGroups},
    EngineKey{"ep", kExperts},
    EngineKey{"moe_ep", kExperts},
    EngineKey{"expert_parallel", kExperts},
    EngineKey{"enable_expert_parallel", kExperts},
    EngineKey{"cp", kContext},
    EngineKey{"context_parallel", kContext},
    EngineKey{"model", "models: [llama-3.1-70b]"},
    EngineKey{"model_path", "models: [llama-3.1-70b]"},
    EngineKey{"input", kInput},
    EngineKey{"isl", kInput},
    EngineKey{"input_len", kInput},
    EngineKey{"output", kInput},
    EngineKey{"osl", kInput},
    EngineKey{"output_len", kInput},
    EngineKey{"users", kUsers},
    EngineKey{"concurrency", kUsers},
    EngineKey{"max_concurrency", kUsers},
    EngineKey{"max_num_seqs", kUsers},
    EngineKey{"max_running_requests", kUsers},
    EngineKey{"batch_size", "batch: [1, 2, 4, 8]"},
    EngineKey{"max_batch", "batch: [1, 2, 4, 8]"},
    EngineKey{"ttl", kTimes},
    EngineKey{"tpot", kTimes},
    EngineKey{"itl", kTimes},
    EngineKey{"ttft", kTimes},
    EngineKey{"max_model_len", kLength},
    EngineKey{"context_length", kLength},
    EngineKey{"context_len", kLength},
    EngineKey{"seq_len", kLength},
    EngineKey{"dtype", kTypes},
    EngineKey{"quantization", kTypes},
    EngineKey{"kv_cache_dtype", kTypes},
    EngineKey{"num_gpus", "gpus: [8]"},
    EngineKey{"gpu", "gpus: [8]"},
    EngineKey{"gpu_count", "gpus: [8]"},
    EngineKey{"hardware", "system: h200-hgx"},
    EngineKey{"device", "system: h200-hgx"},
    EngineKey{"framework", "engine: vllm, or kernels: {framework: vllm} for its kernels alone"},
    EngineKey{"backend", "engine: vllm"},
    EngineKey{"engine_version", "engine: \"vllm 0.24.0\""},
};

// Inside the mappings that a scenario has.
constexpr const char* kServe =
    "its users, who ask again as soon as they are answered; shardline serve --rate has rates";
constexpr std::array kWorkloadKeys{
    EngineKey{"prompt", "input: 32K tokens"},
    EngineKey{"prompt_len", "input: 32K tokens"},
    EngineKey{"isl", "input: 32K tokens"},
    EngineKey{"input_len", "input: 32K tokens"},
    EngineKey{"osl", "output: 1K tokens"},
    EngineKey{"output_len", "output: 1K tokens"},
    EngineKey{"answer", "output: 1K tokens"},
    EngineKey{"concurrency", "users: [64]"},
    EngineKey{"max_concurrency", "users: [64]"},
    EngineKey{"batch", "users: [64]"},
    EngineKey{"rate", kServe},
    EngineKey{"request_rate", kServe},
    EngineKey{"qps", kServe},
};
constexpr std::array kConstraintKeys{
    EngineKey{"tpot", "ttl: 20 ms, which is the TPOT of a workload"},
    EngineKey{"itl", "ttl: 20 ms, which is the TPOT of a workload"},
    EngineKey{"latency", "ttl: 20 ms of a token, and ttft: 2 s of the first"},
    EngineKey{"gpus", "gpus: [8] at the top"},
};
constexpr std::array kDegreeKeys{
    EngineKey{"tp", "tpa: [8] and tpf: [8], of attention and of the FFN"},
    EngineKey{"tensor_parallel", "tpa: [8] and tpf: [8], of attention and of the FFN"},
    EngineKey{"pipeline_parallel", "pp: [2]"},
    EngineKey{"data_parallel", "dp: [8]"},
    EngineKey{"expert_parallel", "ep: [8]"},
    EngineKey{"context_parallel", "cp: [8]"},
};
constexpr std::array kPrecisionKeys{
    EngineKey{"kv_cache", "kv: fp8"},
    EngineKey{"kv_cache_dtype", "kv: fp8"},
    EngineKey{"cache", "kv: fp8"},
    EngineKey{"weight", "weights: fp8"},
    EngineKey{"quantization", "weights: fp8"},
    EngineKey{"dtype", "weights: fp8"},
    EngineKey{"compute", "math: fp8"},
};

/// What engines call a strategy, by their feature that runs it.
struct EngineStrategy {
  const char* name;
  LaunchedAs feature;
};
constexpr std::array kStrategies{
    EngineStrategy{"tp", LaunchedAs::tensor},
    EngineStrategy{"tensor_parallel", LaunchedAs::tensor},
    EngineStrategy{"pp", LaunchedAs::pipeline},
    EngineStrategy{"pipeline_parallel", LaunchedAs::pipeline},
    EngineStrategy{"dp", LaunchedAs::attention_dp},
    EngineStrategy{"ep", LaunchedAs::attention_dp},
    EngineStrategy{"dp_attention", LaunchedAs::attention_dp},
    EngineStrategy{"expert_parallel", LaunchedAs::attention_dp},
    EngineStrategy{"expert", LaunchedAs::attention_dp},
    EngineStrategy{"data_parallel", LaunchedAs::attention_dp},
    EngineStrategy{"decode_context_parallel", LaunchedAs::dcp},
    EngineStrategy{"cp", LaunchedAs::prefill_cp},
    EngineStrategy{"context_parallel", LaunchedAs::prefill_cp},
};

// "--tensor-parallel-size" as "tensor_parallel".
std::string plain(std::string name) {
  while (name.starts_with('-')) name.erase(0, 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  for (const std::string_view end : {"_size", "_degree"}) {
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  }
  return name;
}

[[noreturn]] void other_document(const Reader& at, const char* what, const std::string& instead) {
  throw UserError({Diagnostic{at.location(), fmt::format("this is {}, not a scenario", what), {instead}}});
}

std::vector<std::string> said_as(std::span<const EngineKey> keys, std::string_view key, const char* who) {
  const std::string name = plain(std::string(key));
  if (name.find_first_not_of("0123456789") == std::string::npos)  // {users: 64,128} has a key 128
    return {"numbers of a list stand in brackets: [64, 128]"};
  const auto known =
      std::find_if(keys.begin(), keys.end(), [&](const EngineKey& k) { return name == k.name; });
  if (known == keys.end()) return {};
  return {fmt::format("{} that as {}", who, known->instead)};
}

}  // namespace

void refuse_other_documents(const Reader& root) {
  if (!root.is_map() || root.has("models") || root.has("strategies")) return;
  const std::string file = root.location().file;
  if (root.has("model_type") || root.has("architectures"))
    other_document(
        root, "a model's config.json",
        fmt::format(
            "shardline plan \"{}\" --system h200-hgx --gpus 8 --input 32K --output 1K, or models: [\"{}\"] "
            "in a scenario",
            file, file));
  if (root.has("hidden") && root.has("layers"))
    other_document(root, "a model", fmt::format("name it in a scenario: models: [{}]", file));
  if (root.has("fabric") || (root.has("device") && root.has("summary")))
    other_document(root, "a system", fmt::format("name it in a scenario: system: {}", file));
}

bool is_one_type(const Reader& precision) {
  if (!precision.is_scalar()) return false;
  precision.fault(fmt::format("precision: expected a mapping, found {}", precision.text()),
                  {"types are said for each part, for instance precision: {weights: fp8, kv: fp8}"});
  return true;
}

bool is_one_model(const Reader& models) {
  if (!models.is_map()) return false;
  models.fault("models: expected a sequence, found a mapping",
               {"models are a list of names: models: [llama-3.1-8b]"});
  return true;
}

std::vector<std::string> instead_of(std::string_view key) {
  std::vector<std::string> known = said_as(kKeys, key, "a scenario says");
  const std::string name = plain(std::string(key));
  if (known.empty() && find_strategy(name))
    return {fmt::format("a scenario says that as strategies: [{}]", name)};
  return known;
}

std::vector<std::string> instead_in_workload(std::string_view key) {
  return said_as(kWorkloadKeys, key, "a workload says");
}

std::vector<std::string> instead_in_constraints(std::string_view key) {
  return said_as(kConstraintKeys, key, "constraints say");
}

std::vector<std::string> instead_in_degrees(std::string_view key) {
  return said_as(kDegreeKeys, key, "degrees say");
}

std::vector<std::string> instead_in_precision(std::string_view key) {
  return said_as(kPrecisionKeys, key, "precision says");
}

std::string strategy_of_engines(const std::string& name) {
  const std::string sought = plain(name);
  const auto* const known = std::find_if(kStrategies.begin(), kStrategies.end(),
                                         [&](const EngineStrategy& s) { return sought == s.name; });
  if (known == kStrategies.end()) return "";
  for (const Strategy* s : strategies()) {
    if (s->exact && s->launched_as == known->feature) return s->name;
  }
  return "";
}

}  // namespace shardline::scenario_parts
