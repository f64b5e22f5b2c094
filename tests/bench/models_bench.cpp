// Reading of configurations: a config.json of 3 MB, most of it names of matrices: of none that is known, of
// DeepSeek-R1's experts one by one, and patterns of them.
#include <benchmark/benchmark.h>

#include <string>

#include "models/model/hf_config.hpp"
#include "tests/bench/goals.hpp"

namespace shardline {
namespace {

constexpr std::size_t kBytes = 3'000'000;

std::string config(std::size_t bytes) {
  std::string text =
      R"({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
"num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 28672, "max_position_embeddings": 131072,
"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head")";
  for (int i = 0; text.size() < bytes; ++i)
    text +=
        ",\n\"model.layers." + std::to_string(i % 80) + ".self_attn.part_" + std::to_string(i) + ".weight\"";
  return text + "]}}";
}

/// DeepSeek-R1, whose checkpoint is described so.
std::string deepseek(const std::string& quantisation) {
  return R"({"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
"num_hidden_layers": 61, "num_attention_heads": 128, "vocab_size": 129280, "intermediate_size": 18432,
"max_position_embeddings": 163840, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
"qk_nope_head_dim": 128, "v_head_dim": 128, "first_k_dense_replace": 3, "n_routed_experts": 256,
"n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "num_nextn_predict_layers": 1,
"quantization_config": {"quant_method": "modelopt", )" +
         quantisation + "}}";
}

/// Names of its experts' matrices below `root`, layer by layer and again from the first, each with what
/// stands `behind` it, until they are so long.
std::string experts(const std::string& root, const std::string& behind, std::size_t bytes) {
  const char* matrices[] = {"gate_proj", "up_proj", "down_proj"};
  std::string out;
  for (int i = 0; out.size() < bytes; ++i) {
    const int layer = 3 + i / 768 % 58, round = i / 768 / 58;
    out += (out.empty() ? "\"" : ", \"") + root + std::to_string(layer) + ".mlp.experts." +
           std::to_string(i / 3 % 256 + 256 * round) + "." + matrices[i % 3] + "\"" + behind;
  }
  return out;
}

void import(benchmark::State& state, const std::string& text) {
  Goal goal = Goal::seconds(state, 0.05);
  for (auto _ : state) benchmark::DoNotOptimize(parse_hf_config("config.json", text));
}

void BM_ImportOf3MB(benchmark::State& state) { import(state, config(kBytes)); }
BENCHMARK(BM_ImportOf3MB)->Unit(benchmark::kMillisecond);

void BM_ImportOfListedTypes(benchmark::State& state) {
  import(state,
         deepseek(R"("quant_algo": "MIXED_PRECISION", "quantized_layers": {)" +
                  experts("model.layers.", R"(: {"quant_algo": "NVFP4", "group_size": 16})", kBytes) + "}"));
}
BENCHMARK(BM_ImportOfListedTypes)->Unit(benchmark::kMillisecond);

void BM_ImportOfLeftOutNames(benchmark::State& state) {
  import(state,
         deepseek(R"("quant_algo": "NVFP4", "ignore": [)" + experts("model.layers.", "", kBytes) + "]"));
}
BENCHMARK(BM_ImportOfLeftOutNames)->Unit(benchmark::kMillisecond);

void BM_ImportOfLeftOutPatterns(benchmark::State& state) {
  import(state,
         deepseek(R"("quant_algo": "NVFP4", "ignore": [)" + experts("model.layers*.", "", kBytes) + "]"));
}
BENCHMARK(BM_ImportOfLeftOutPatterns)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardline
