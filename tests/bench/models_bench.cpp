// Reading of configurations: a config.json of 3 MB, most of it names of matrices that stay as they are.
#include <benchmark/benchmark.h>

#include "models/model/hf_config.hpp"
#include "tests/bench/goals.hpp"

namespace shardline {
namespace {

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

void BM_ImportOf3MB(benchmark::State& state) {
  const std::string text = config(3'000'000);
  Goal goal = Goal::seconds(state, 0.05);
  for (auto _ : state) benchmark::DoNotOptimize(parse_hf_config("config.json", text));
}
BENCHMARK(BM_ImportOf3MB)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardline
