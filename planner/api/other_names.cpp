#include "planner/api/other_names.hpp"

#include <optional>

#include "sim/base/error.hpp"

namespace shardline::api {

namespace {

// What several names are answered with.
constexpr const char* kSearched =
    "--gpus (of all ranks: how they are split among tensor, pipeline and other parallelism is searched)";
constexpr const char* kTensor = "--plan tensor:tpa=8,tpf=8";
constexpr const char* kTensorOfScenario =
    "--set gpus=8 (and --set strategies=[tensor] for tensor parallelism alone)";
constexpr const char* kPipeline = "--plan pipeline:pp=2,tpa=4,tpf=4";
constexpr const char* kExperts = "--plan dp_ep:dp=8,ep=8";
constexpr const char* kStrategies =
    "--set strategies=[tensor, pipeline] (and --set gpus=8: sizes are searched)";
constexpr const char* kWeights =
    "--set precision.weights=fp8 (without it types are those of the checkpoint: name one in fp8 as MODEL)";
constexpr const char* kContext = "--set context=\"128K tokens\" (the scenario says how long it is)";
constexpr const char* kMemory =
    "--set constraints.memory=\"120 GB\" (of each GPU, at most; without it what the engine takes)";
constexpr const char* kModel =
    "the model is named without an option: shardline plan llama-3.1-70b --system h200-hgx ...";
constexpr const char* kNothingRuns =
    "nothing is started or asked here: simulate -o and serve -o write the files that start a server";
constexpr const char* kDrafts =
    "--set 'speculative.acceptance={p: 0.8, g: 0.9}' (of a model with a module that drafts)";

// As vLLM, SGLang and TensorRT-LLM, their benchmarks and AIConfigurator call them, underscores as hyphens.
constexpr Meaning kOtherNames[] = {
    {"--model", kModel},
    {"--model-path", kModel},
    {"-m", kModel},
    {"--tpot", "--ttl"},
    {"--itl", "--ttl"},
    {"--latency", "--ttl"},
    {"--isl", "--input"},
    {"--input-len", "--input"},
    {"--input-length", "--input"},
    {"--input-tokens", "--input"},
    {"--random-input-len", "--input"},
    {"--max-input-len", "--input"},
    {"--prompt", "--input"},
    {"--prompt-len", "--input"},
    {"--prompt-tokens", "--input"},
    {"--seq-len", "--input"},
    {"--osl", "--output"},
    {"--output-len", "--output"},
    {"--output-length", "--output"},
    {"--output-tokens", "--output"},
    {"--random-output-len", "--output"},
    {"--max-tokens", "--output"},
    {"--max-new-tokens", "--output"},
    {"--concurrency", "--users"},
    {"--max-concurrency", "--users"},
    {"--batch", "--users"},
    {"--batch", "--set batch=4 (the scenario says which)"},
    {"--batch-size", "--users"},
    {"--batch-size", "--set batch=4 (the scenario says which)"},
    {"--bs", "--users"},
    {"--num-gpus", "--gpus"},
    {"--num-gpu", "--gpus"},
    {"--total-gpus", "--gpus"},
    {"--world-size", "--gpus"},
    {"--gpu", "--gpus"},
    {"--num-nodes", "--nodes"},
    {"--nnodes", "--nodes"},
    {"--gpu-type", "--system"},
    {"--gpu-name", "--system"},
    {"--device", "--system"},
    {"--hardware", "--system"},
    {"--cluster", "--system"},
    {"--rps", "--rate"},
    {"--qps", "--rate"},
    {"--request-rate", "--rate"},
    {"--throughput", "--rate (requests by time; tokens/s of a user are --tokens-per-user)"},
    {"--tps", "--tokens-per-user"},
    {"--tokens-per-second", "--tokens-per-user"},
    {"--num-prompts", "--requests"},
    {"--num-requests", "--requests"},
    {"--price", "--gpu-hour"},
    {"--cost", "--gpu-hour"},
    {"--backend", "--engine"},
    {"--framework", "--engine"},
    {"--runtime", "--engine"},
    {"--output-dir", "--out"},
    {"--output-file", "--json (the answer as a document: shardline ... --json > FILE)"},
    {"--format", "--json"},
    {"--output-format", "--json"},
    {"-o", "--save question.yaml (its question; answers as files are of sweep, simulate and serve)"},
    {"--out", "--save question.yaml (its question; answers as files are of sweep, simulate and serve)"},
    {"--tp", kSearched},
    {"--tp", kTensor},
    {"--tp", kTensorOfScenario},
    {"-tp", kSearched},
    {"-tp", kTensor},
    {"--tp-size", kSearched},
    {"--tp-size", kTensor},
    {"--tp-size", kTensorOfScenario},
    {"--tensor-parallel-size", kSearched},
    {"--tensor-parallel-size", kTensor},
    {"--tensor-parallel-size", kTensorOfScenario},
    {"--pp", kSearched},
    {"--pp", kPipeline},
    {"--pp", kStrategies},
    {"-pp", kSearched},
    {"--pp-size", kSearched},
    {"--pp-size", kPipeline},
    {"--pipeline-parallel-size", kSearched},
    {"--pipeline-parallel-size", kPipeline},
    {"--pipeline-parallel-size", kStrategies},
    {"--dp", kSearched},
    {"--dp", kExperts},
    {"--dp", kStrategies},
    {"--dp-size", kSearched},
    {"--data-parallel-size", kSearched},
    {"--data-parallel-size", kExperts},
    {"--enable-dp-attention", kSearched},
    {"--ep", kSearched},
    {"--ep", kExperts},
    {"--ep", kStrategies},
    {"--ep-size", kSearched},
    {"--expert-parallel-size", kSearched},
    {"--enable-expert-parallel", kSearched},
    {"--cp", kSearched},
    {"--dcp-size", kSearched},
    {"--decode-context-parallel-size", kSearched},
    {"--strategies", "--set strategies=[tensor] (the scenario names them)"},
    {"--strategy", "--set strategies=[tensor] (else all that fit are searched)"},
    {"--gpus", "--set gpus=8 (the scenario says how many)"},
    {"--system", "--set system=h200-hgx (the scenario names it)"},
    {"--dtype",
     "--set precision.weights=bf16 (without it types are those of the checkpoint: name one in fp8 as MODEL)"},
    {"--precision", kWeights},
    {"--quantization", kWeights},
    {"-q", kWeights},
    {"--quant", kWeights},
    {"--model-dtype", kWeights},
    {"--weight-dtype", kWeights},
    {"--kv-cache-dtype", "--set precision.kv=fp8"},
    {"--kv-dtype", "--set precision.kv=fp8"},
    {"--gpu-memory-utilization", kMemory},
    {"--mem-fraction-static", kMemory},
    {"--kv-cache-free-gpu-memory-fraction", kMemory},
    {"--free-gpu-memory-fraction", kMemory},
    {"--max-num-seqs", "--knob max_num_seqs=64 (of vLLM; of plan beside --slo: else the batch is searched)"},
    {"--max-running-requests",
     "--knob max_running_requests=64 (of SGLang; of plan beside --slo: else the batch is searched)"},
    {"--max-batch-size",
     "--knob max_batch_size=64 (of TensorRT-LLM; of plan beside --slo: else the batch is searched)"},
    {"--max-num-batched-tokens", "--knob max_num_batched_tokens=8192 (of vLLM)"},
    {"--chunked-prefill-size", "--knob chunked_prefill_size=8192 (of SGLang)"},
    {"--max-prefill-tokens", "--knob max_prefill_tokens=16384 (of SGLang)"},
    {"--max-num-tokens", "--knob max_num_tokens=8192 (of TensorRT-LLM)"},
    {"--enable-chunked-prefill", "--knob enable_chunked_prefill=true (of vLLM and TensorRT-LLM)"},
    {"--enable-prefix-caching", "--knob enable_prefix_caching=true (of vLLM)"},
    {"--disable-radix-cache", "--knob disable_radix_cache=true (of SGLang)"},
    {"--block-size", "--knob block_size=32 (of vLLM)"},
    {"--page-size", "--knob page_size=32 (of SGLang)"},
    {"--tokens-per-block", "--knob tokens_per_block=32 (of TensorRT-LLM)"},
    {"--speculative-config", kDrafts},
    {"--speculative-algorithm", kDrafts},
    {"--num-speculative-tokens", kDrafts},
    {"--context", "--input"},
    {"--context", kContext},
    {"--context-length", "--input"},
    {"--context-length", kContext},
    {"--max-model-len", "--input"},
    {"--max-model-len", kContext},
    {"--max-seq-len", "--input"},
    {"--max-seq-len", kContext},
    {"--host", kNothingRuns},
    {"--port", kNothingRuns},
    {"--base-url", kNothingRuns},
    {"--api-key", kNothingRuns},
    {"--trust-remote-code", kNothingRuns},
    {"--enforce-eager", kNothingRuns},
};

}  // namespace

std::span<const Meaning> other_names() { return kOtherNames; }

std::string meant_option(const std::string& found, const std::vector<std::string>& options) {
  const std::optional<std::string> here = name_here(kOtherNames, options, found);
  if (here && here->starts_with("its name here")) return *here;  // other sentences are of the command line
  // Two hyphens that all names have would count as letters in common.
  const auto bare = [](const std::string& option) { return option.substr(option.find_first_not_of('-')); };
  std::vector<std::string> names;
  for (const std::string& option : options) names.push_back(bare(option));
  return expected_one_of(bare(found), names).back();
}

}  // namespace shardline::api
