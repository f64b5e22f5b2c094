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
    "--set speculative.acceptance=deepseek-v4-pro-mtp-thinking-on (of a model with a module that drafts; "
    "others: "
    "shardline list acceptance, or {p: 0.8, g: 0.9}, or a file)";

constexpr const char* kSplitCache = "--plan helix:kvp=8,tpf=8 (to decode with the cache split by sequence)";
constexpr const char* kCacheType = "--set precision.kv=fp8";
constexpr const char* kPercentiles =
    "--slo \"ttft p99 2 s, tpot p99 40 ms\" (targets by percentile, beside --rate or --trace)";
constexpr const char* kPercentilesOf =
    "targets by percentile are of plan and serve: --slo \"ttft p99 2 s, tpot p99 40 ms\" beside --rate";
constexpr const char* kMachine =
    "--set device.memory.bandwidth=\"4 TB/s\" (keys are those of the system's file in hardware/catalog)";
constexpr const char* kLinks =
    "--set fabric.nvlink.bandwidth=\"450 GB/s\" (keys are those of the system's file in hardware/catalog)";
constexpr const char* kColours =
    "there are colours on a terminal alone, and none with NO_COLOR=1 before the command";
constexpr const char* kMessages =
    "the answer is on standard output, warnings and progress are on standard error: 2> /dev/null is without";
constexpr const char* kPools =
    "pools of their own for prompts and answers are looked at wherever a workload is served; on how many "
    "GPUs "
    "together: --set constraints.pool_gpus=16";
constexpr const char* kPrefixes =
    "prefix caches are of requests that are played: shardline serve --trace FILE";
constexpr const char* kFiles = "files and pictures are of sweep, simulate and serve: -o FOLDER";
constexpr const char* kScenario =
    "a scenario is named without an option: shardline sweep helix_gb200_1m, or the path of a .yaml file";
constexpr const char* kAllGpus = "--gpus (of all copies: how many are started of a plan follows)";

// Why a command has no --set, and which have.
constexpr const char* kSetOfList =
    "it lists what is there, computed by no question: --set is of plan, explain, compare, sweep, simulate, "
    "serve, thresholds, partition, conversation, handoff and evaluate";
constexpr const char* kSetOfValidate =
    "it predicts published figures, each on the machine of its paper: --set is of questions, as plan, sweep, "
    "simulate and explain have, and of evaluate";
constexpr const char* kSetOfVerify =
    "tensors are computed here, on no system and of no scenario: --set is of questions, as plan, sweep, "
    "simulate and explain have";
constexpr const char* kSetOfCalibrate =
    "fits are of the machine that was measured: say what it is in a copy of its file, --system MINE.yaml; "
    "evaluate has --set, for measured rows on a changed machine, and so have plan, sweep, simulate and "
    "explain";
constexpr const char* kSetOfAccuracy =
    "errors are those of shipped calibrations on the machines that were measured: evaluate has --set, for "
    "measured rows on a changed machine, and so have plan, sweep, simulate and explain";

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
    {"--gpu", "--gpus (how many; which they are says --system h200-hgx)"},
    {"--gpu", "--set gpus=8 (a scenario says how many; MODEL and --gpus are of plan)"},
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
    {"--gpus", "--set gpus=8 (a scenario says how many; MODEL and --gpus are of plan)"},
    {"--system", "--set system=h200-hgx (a scenario names it; MODEL and --system are of plan)"},
    {"--dtype",
     "--set precision.weights=bf16, or fp8 (without it types are those of the checkpoint: name one as "
     "MODEL)"},
    {"--precision", kWeights},
    {"--quantization", kWeights},
    {"-q", kWeights},
    {"--quant", kWeights},
    {"--model-dtype", kWeights},
    {"--weight-dtype", kWeights},
    {"--kv-cache-dtype", kCacheType},
    {"--kv-dtype", kCacheType},
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
    {"--dry-run", kNothingRuns},
    {"--goodput", kPercentiles},
    {"--goodput", kPercentilesOf},
    {"--sla", kPercentiles},
    {"--sla", kPercentilesOf},
    {"--percentile", kPercentiles},
    {"--percentile", kPercentilesOf},
    {"--p99", kPercentiles},
    {"--p99", kPercentilesOf},
    {"--ttft-p99", kPercentiles},
    {"--ttft-p99", kPercentilesOf},
    {"--tpot-p99", kPercentiles},
    {"--tpot-p99", kPercentilesOf},
    {"--slo-ttft", "--ttft"},
    {"--max-ttft", "--ttft"},
    {"--target-ttft", "--ttft"},
    {"--ttft-slo", "--ttft"},
    {"--slo-tpot", "--ttl"},
    {"--max-tpot", "--ttl"},
    {"--target-tpot", "--ttl"},
    {"--tpot-slo", "--ttl"},
    {"--max-ttl", "--ttl"},
    {"--arrival-rate", "--rate"},
    {"--load", "--rate"},
    {"--users-per-gpu", "--users (of all GPUs together)"},
    {"--weights", kWeights},
    {"--weight", kWeights},
    {"--weight-type", kWeights},
    {"--fp8", kWeights},
    {"--fp4", kWeights},
    {"--nvfp4", kWeights},
    {"--bf16", kWeights},
    {"--int8", kWeights},
    {"--int4", kWeights},
    {"--kv", kCacheType},
    {"--kv-type", kCacheType},
    {"--kv-cache", kCacheType},
    {"--kv-cache-type", kCacheType},
    {"--kvp", kSearched},
    {"--kvp", kSplitCache},
    {"--kvp", "--set strategies=[helix] (and --set gpus=8: sizes are searched)"},
    {"--dcp", kSearched},
    {"--dcp", "--plan dcp:tpa=8,tpf=8,dcp=8 (of a model with fewer KV heads than ranks)"},
    {"--dcp", "--set strategies=[dcp] (and --set gpus=8: sizes are searched)"},
    {"--pcp", kSearched},
    {"--pcp", "--plan allgather_kv:cp=8 (of a prefill)"},
    {"--prefill-context-parallel-size", kSearched},
    {"--tpa", kSearched},
    {"--tpa", kTensor},
    {"--tpa", kTensorOfScenario},
    {"--tpf", kSearched},
    {"--tpf", kTensor},
    {"--tpf", kTensorOfScenario},
    {"--dense-tp", kSearched},
    {"--moe-tp", kSearched},
    {"--moe-tp-size", kSearched},
    {"--moe-ep", kSearched},
    {"--moe-ep-size", kSearched},
    {"--attention-dp", kSearched},
    {"--gpus-per-node", "the system says it: shardline list systems, or --nodes 2 for all GPUs of two"},
    {"--mtp", kDrafts},
    {"--mtp-num-layers", kDrafts},
    {"--num-nextn-predict-layers", kDrafts},
    {"--eagle", kDrafts},
    {"--drafts", kDrafts},
    {"--draft-model", kDrafts},
    {"--speculative", kDrafts},
    {"--acceptance", kDrafts},
    {"--acceptance-rate", kDrafts},
    {"--acceptance-length", kDrafts},
    {"--speculative-num-steps", kDrafts},
    {"--ctx", "--input"},
    {"--ctx", kContext},
    {"--ctx-len", "--input"},
    {"--ctx-len", kContext},
    {"--seqlen", "--input"},
    {"--seqlen", kContext},
    {"--seq-length", "--input"},
    {"--seq-length", kContext},
    {"--replicas", "--copies"},
    {"--replicas", kAllGpus},
    {"--num-replicas", "--replicas"},
    {"--num-replicas", "--copies"},
    {"--num-replicas", kAllGpus},
    {"--copies", "--replicas"},
    {"--copies", kAllGpus},
    {"--disaggregated", kPools},
    {"--disaggregation-mode", kPools},
    {"--disagg", kPools},
    {"--pd", kPools},
    {"--prefill-gpus", kPools},
    {"--decode-gpus", kPools},
    {"--prefix-cache", kPrefixes},
    {"--prefix-cache-hit-rate", kPrefixes},
    {"--cache-hit", kPrefixes},
    {"--cache-hit-rate", kPrefixes},
    {"--nvlink", kLinks},
    {"--bandwidth", kMachine},
    {"--hbm", kMachine},
    {"--flops", kMachine},
    {"--version", "--engine \"vllm 0.24.0\" (the engine's; shardline --version says the program's)"},
    {"--engine-version", "--engine \"vllm 0.24.0\" (its version stands behind its name)"},
    {"--framework-version", "--engine \"vllm 0.24.0\" (its version stands behind its name)"},
    {"--model-name", kModel},
    {"--model-id", kModel},
    {"--hf", kModel},
    {"--hf-model", kModel},
    {"--tokenizer", kModel},
    {"--scenario", kScenario},
    {"--config", kScenario},
    {"-c", kScenario},
    {"--no-color", kColours},
    {"--no-colour", kColours},
    {"--no-colors", kColours},
    {"--color", kColours},
    {"--colour", kColours},
    {"--quiet", kMessages},
    {"--silent", kMessages},
    {"--no-progress", kMessages},
    {"--progress", kMessages},
    {"--log-level", kMessages},
    {"--debug", kMessages},
    {"--verbose", "--json (all numbers of the answer)"},
    {"--csv", "--out (a folder for files, the frontier as CSV among them)"},
    {"--csv", "--json (the answer as a document; files are of sweep, simulate and serve)"},
    {"--yaml", "--save question.yaml (its question)"},
    {"--plot", "--out"},
    {"--plot", kFiles},
    {"--plots", "--out"},
    {"--plots", kFiles},
    {"--html", "--out"},
    {"--html", kFiles},
    {"--out-dir", "--out"},
    {"--out-dir", kFiles},
    {"--outdir", "--out"},
    {"--outdir", kFiles},
    {"--jobs", "--threads"},
    {"-j", "--threads"},
    {"--num-threads", "--threads"},
    {"--num-workers", "--threads"},
    {"--from", "--prefill"},
    {"--source", "--prefill"},
    {"--prefill-plan", "--prefill"},
    {"--to", "--decode"},
    {"--target", "--decode"},
    {"--decode-plan", "--decode"},
    {"list --set", kSetOfList},
    {"validate --set", kSetOfValidate},
    {"verify --set", kSetOfVerify},
    {"calibrate --set", kSetOfCalibrate},
    {"accuracy --set", kSetOfAccuracy},
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
