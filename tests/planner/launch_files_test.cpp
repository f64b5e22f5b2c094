// Every launch file of some hundred plans, run with stand-ins for the engines' programs: what they are called
// with stands in the tables of options, with values of its type, and its numbers agree with each other and
// with the plan.
#include "planner/engines/launch_files.hpp"

#include <fmt/core.h>
#include <gmock/gmock.h>

#include <set>

#include "planner/engines/launch_server.hpp"
#include "tests/planner/engine_options.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty;
using Values = std::map<std::string, std::string>;

EngineProfile profile_of(const std::string& name) {
  return load_engine(name, "", source_path("planner/engines"));
}

// What one file of a plan is checked against.
struct Checked {
  const Case& study;
  const Plan& plan;
  const EngineProfile& engine;
  const OptionTable& table;
  std::set<std::string>& emitted;
  int machines = 1, rank = 0;
  bool pair = false;  // of the halves of a pair, the plan is of the generation server
};

long long number(const Values& v, const std::string& name, long long absent = 1) {
  const auto at = v.find(name);
  return at == v.end() ? absent : std::stoll(at->second);
}

void note(const Checked& k, const Values& v) {
  for (const auto& [name, value] : v) k.emitted.insert(name);
}

void expect_length(const Checked& k, const Values& v, const std::string& name) {
  EXPECT_GE(number(v, name, 0), k.study.longest());
  EXPECT_LE(number(v, name, 0), k.study.model.max_context);
}

// World size: pp x tp x dp (config/parallel.py:793-801); dcp adds no ranks.
void check_vllm(const Checked& k, const Called& called) {
  ASSERT_GE(called.words.size(), 3u);
  EXPECT_EQ((std::vector(called.words.begin(), called.words.begin() + 3)),
            (std::vector<std::string>{"vllm", "serve", "a model's name"}));
  Values v;
  EXPECT_THAT(k.table.faults("serve", k.engine.version, {called.words.begin() + 3, called.words.end()}, v),
              IsEmpty());
  note(k, v);
  const long long tp = number(v, "--tensor-parallel-size"), dp = number(v, "--data-parallel-size");
  EXPECT_EQ(tp * dp * number(v, "--pipeline-parallel-size"), k.plan.gpus());
  EXPECT_EQ(tp % number(v, "--decode-context-parallel-size"), 0);
  EXPECT_GE(number(v, "--max-num-batched-tokens", 0), number(v, "--max-num-seqs", 1 << 30));
  EXPECT_EQ(number(v, "--max-num-seqs"), sequences(k.study, k.plan));
  EXPECT_GE(number(v, "--max-cudagraph-capture-size"), sequences_of_step(k.study, k.plan));
  EXPECT_LE(number(v, "--max-cudagraph-capture-size"), number(v, "--max-num-batched-tokens"));
  EXPECT_EQ(v.count("--enable-expert-parallel") == 1, k.plan.ep > 1);
  // It asserts one of these backends (config/vllm.py:1427-1442), and asks thresholds
  // (v1/worker/ubatch_utils.py:38).
  const bool halves = k.plan[kOverlap] == Overlap::two_batch;
  EXPECT_EQ(v.contains("--enable-dbo"), halves);
  if (halves) {
    EXPECT_TRUE(v["--all2all-backend"].starts_with("deepep_"));
    const bool prompts = k.study.batch.prefills();
    EXPECT_LE(prompts ? number(v, "--dbo-prefill-token-threshold", 512)
                      : number(v, "--dbo-decode-token-threshold", 32),
              step_tokens(k.study, k.plan));
  }
  EXPECT_TRUE(v.contains("--gpu-memory-utilization") && v.contains("--kv-cache-dtype"));
  expect_length(k, v, "--max-model-len");
  EXPECT_EQ(v.contains("--headless"), k.rank > 0);
  EXPECT_EQ(v.contains("--port") && v.contains("--host"), k.rank == 0);
  EXPECT_EQ(v.contains("--kv-transfer-config"), k.pair);
  if (k.machines == 1) return;
  if (v.contains("--nnodes")) {
    EXPECT_EQ(number(v, "--nnodes"), k.machines);
    EXPECT_EQ(number(v, "--node-rank", -1), k.rank);
  } else {
    EXPECT_EQ(number(v, "--data-parallel-size-local") * k.machines, dp);
    EXPECT_EQ(number(v, "--data-parallel-start-rank", 0), k.rank * dp / k.machines);
    EXPECT_EQ(v.at("--data-parallel-address"), "head");
  }
}

// World size: tp x pp; dp and ep are carved out of tp (distributed/parallel_state.py:1914, 2034).
void check_sglang(const Checked& k, const Called& called) {
  ASSERT_GE(called.words.size(), 5u);
  EXPECT_EQ((std::vector(called.words.begin(), called.words.begin() + 3)),
            (std::vector<std::string>{"python3", "-m", "sglang.launch_server"}));
  Values v;
  EXPECT_THAT(k.table.faults("serve", k.engine.version, {called.words.begin() + 3, called.words.end()}, v),
              IsEmpty());
  note(k, v);
  EXPECT_EQ(v["--model-path"], "a model's name");
  const long long tp = number(v, "--tp-size"), dp = number(v, "--dp-size");
  EXPECT_EQ(tp * number(v, "--pp-size"), k.plan.gpus());
  EXPECT_EQ(tp % dp, 0);
  EXPECT_EQ(dp > 1, v.contains("--enable-dp-attention"));
  EXPECT_EQ(tp % number(v, "--ep-size"), 0);
  EXPECT_EQ(number(v, "--max-running-requests", 0), sequences(k.study, k.plan) * k.plan.dp);
  if (k.study.batch.decodes()) {
    EXPECT_EQ(number(v, "--cuda-graph-max-bs-decode", 0), sequences_of_step(k.study, k.plan));
  }
  const long long chunk = number(v, "--chunked-prefill-size", 0);
  if (!k.study.batch.prefills()) {
    EXPECT_EQ(chunk / dp % 128, 0);  // any backend's page (server_args.py:6689)
    EXPECT_EQ(chunk, k.engine.tokens_of_step(k.study.system.device));
  }
  EXPECT_EQ(v.contains("--enable-two-batch-overlap"), k.plan[kOverlap] == Overlap::two_batch);
  if (v.contains("--enable-two-batch-overlap")) {
    EXPECT_EQ(v["--moe-a2a-backend"], "deepep");  // not none (server_args.py:6778)
  }
  EXPECT_EQ(v.contains("--enable-mixed-chunk"), k.study.batch.kind() == StepKind::mixed);
  expect_length(k, v, "--context-length");
  EXPECT_TRUE(v.contains("--mem-fraction-static") && v.contains("--kv-cache-dtype"));
  EXPECT_EQ(number(v, "--nnodes"), k.machines);
  EXPECT_EQ(number(v, "--node-rank", 0), k.rank);
  EXPECT_EQ(v.contains("--dist-init-addr"), k.machines > 1);
}

// World size: tp x pp x cp, experts over tp x cp (tensorrt_llm/mapping.py, MappingBase).
void check_trtllm(const Checked& k, const Called& called, const std::string& yaml) {
  const auto serve = std::find(called.words.begin(), called.words.end(), "trtllm-serve");
  ASSERT_TRUE(serve != called.words.end() && serve + 1 != called.words.end());
  EXPECT_EQ(*(serve + 1), "a model's name");
  EXPECT_EQ(serve == called.words.begin(), k.machines == 1);
  const std::string ranks = std::to_string(k.plan.gpus());
  if (k.machines > 1) {
    EXPECT_THAT(called.words, ::testing::Contains(k.rank == 0 ? "--ntasks=" + ranks : ranks));
  }
  Values v, command;
  EXPECT_THAT(k.table.faults("serve", k.engine.version, {serve + 2, called.words.end()}, command), IsEmpty());
  EXPECT_TRUE(command.contains("--config") && command.contains("--port") && command.contains("--host"));
  EXPECT_THAT(k.table.yaml_faults("yaml", k.engine.version, yaml, v), IsEmpty());
  note(k, v);
  note(k, command);
  const long long tp = number(v, "tensor_parallel_size"), cp = number(v, "context_parallel_size");
  EXPECT_EQ(tp * cp * number(v, "pipeline_parallel_size"), k.plan.gpus());
  if (has_experts(k.study.model)) {
    EXPECT_EQ(number(v, "moe_expert_parallel_size", 0) * number(v, "moe_tensor_parallel_size", 0), tp * cp);
  }
  EXPECT_GE(number(v, "max_num_tokens", 0), number(v, "max_batch_size", 1 << 30));
  EXPECT_GE(number(v, "max_seq_len", 0), k.study.longest());
  EXPECT_EQ(v.contains("cp_config.cp_type"), cp > 1);
  if (cp > 1) {
    EXPECT_EQ(v["cp_config.cp_type"], "HELIX");
    EXPECT_EQ(v["cp_config.tokens_per_block"], v["kv_cache_config.tokens_per_block"]);
  }
  EXPECT_EQ(v.contains("cache_transceiver_config.backend"), k.pair);
  EXPECT_EQ(v.contains("gpus_per_node"), k.machines > 1);
  EXPECT_TRUE(v.contains("kv_cache_config.dtype") && v.contains("enable_chunked_prefill") != (cp > 1));
  if (v.contains("cuda_graph_config")) return;  // a context server
  EXPECT_EQ(v["cuda_graph_config.enable_padding"], "true");
  EXPECT_EQ(number(v, "cuda_graph_config.max_batch_size", 0), number(v, "max_batch_size", -1));
}

const LaunchFile* file_named(const Launch& launch, const std::string& name) {
  for (const LaunchFile& f : launch.files) {
    if (f.name == name) return &f;
  }
  return nullptr;
}

// What differs between machines, which the typed command of a server leaves out.
const std::set<std::string> kAddresses{"--host",
                                       "--port",
                                       "--nnodes",
                                       "--node-rank",
                                       "--headless",
                                       "--data-parallel-size-local",
                                       "--master-addr",
                                       "--master-port",
                                       "--data-parallel-address",
                                       "--data-parallel-rpc-port",
                                       "--data-parallel-start-rank",
                                       "--dist-init-addr"};

Values without_addresses(Values v) {
  for (const std::string& name : kAddresses) v.erase(name);
  return v;
}

// The command that `simulate` prints, run: the same options as those of the script that was called so.
void expect_typed_alike(const Checked& k, const LaunchedServer& server, const Called& called,
                        const LaunchFile* yaml, const ScriptRunner& runner) {
  ASSERT_FALSE(server.lines.empty());
  if (k.engine.name == "trtllm") {
    std::string keys;
    for (std::size_t i = 1; i < server.lines.size(); ++i) keys += server.lines[i].substr(2) + "\n";
    ASSERT_NE(yaml, nullptr);
    EXPECT_EQ(yaml->text.substr(yaml->text.find('\n') + 1), keys);
    EXPECT_THAT(server.lines.front(), HasSubstr("trtllm-serve "));
    return;
  }
  ASSERT_EQ(server.lines.size(), 1u);
  runner.write({{"typed.sh", server.lines.front() + "\n", true}});
  const Called typed = runner.run("typed.sh", {});
  ASSERT_EQ(typed.code, 0) << server.lines.front();
  const auto values = [&](const Called& c) {
    Values v;
    k.table.faults("serve", k.engine.version, {c.words.begin() + 3, c.words.end()}, v);
    v.erase("--model-path");
    return without_addresses(v);
  };
  EXPECT_EQ(values(typed), values(called));
}

// Runs the scripts of a launch as the first and as the last machine; under Slurm and by MPI.
void check(Checked k, const Launch& launch, const ScriptRunner& runner) {
  SCOPED_TRACE(k.study.model.name + " " + k.engine.name + " " + to_string(k.plan));
  k.machines = (k.plan.gpus() + gpus_per_machine(k.study.system) - 1) / gpus_per_machine(k.study.system);
  runner.write(launch.files);
  auto server = launch.servers.begin();
  for (const LaunchFile& f : launch.files) {
    EXPECT_EQ(f.executable, f.name.ends_with(".sh")) << f.name;
    if (!f.name.ends_with(".sh") || f.name.ends_with("_front.sh")) continue;
    k.pair = f.name.ends_with("_context.sh") || f.name.ends_with("_generation.sh");
    for (const int rank : std::set<int>{0, k.machines - 1}) {
      k.rank = rank;
      Values variables{{"MODEL", "a model's name"},
                       {"NODE_RANK", std::to_string(rank)},
                       {"HEAD_ADDR", "head"},
                       {"THIS_ADDR", "this"},
                       {"HOSTS", "hosts"}};
      if (rank == 0) variables["SLURM_JOB_ID"] = "1";
      const Called called = runner.run(f.name, variables);
      ASSERT_EQ(called.code, 0) << f.text;
      const LaunchFile* yaml = file_named(launch, f.name.substr(0, f.name.size() - 3) + ".yaml");
      ASSERT_NE(server, launch.servers.end());
      if (rank == 0) expect_typed_alike(k, *server, called, yaml, runner);
      if (k.engine.name == "vllm") check_vllm(k, called);
      if (k.engine.name == "sglang") check_sglang(k, called);
      if (k.engine.name != "trtllm") continue;
      ASSERT_NE(yaml, nullptr);
      check_trtllm(k, called, yaml->text);
    }
    ++server;
  }
  EXPECT_EQ(server, launch.servers.end());
}

Case case_of(const std::string& model, const std::string& system, Dtype weights, Dtype kv, Batch batch) {
  Case c = decode_case(model, system, 4096);
  c.precision = Precision{};
  c.precision.weights = weights;
  c.precision.math = arithmetic_of(weights);
  c.precision.kv = kv;
  c.batch = std::move(batch);
  return c;
}

// Some of the plans that the strategies have for these GPUs, spread over all of them.
std::vector<Plan> some_plans(const Case& c, const std::vector<int>& gpus, std::size_t most) {
  std::vector<Plan> all, out;
  for (const char* name : {"tensor", "pipeline", "dp_ep", "dcp", "helix", "allgather_kv", "kv_shard"}) {
    const Strategy& s = strategy(std::string(name));
    if (!s.takes(c)) continue;
    std::vector<Plan> of_strategy;
    for (const int n : gpus) s.enumerate(c, n, SearchSpace{}, of_strategy);
    const std::size_t step = std::max<std::size_t>(1, of_strategy.size() / most);
    for (std::size_t i = 0; i < of_strategy.size(); i += step) {
      out.push_back(of_strategy[i]);
      Plan halves = of_strategy[i];
      if (!strategy(halves.strategy).reads(kOverlap)) continue;
      halves.set(kOverlap, Overlap::two_batch);
      halves.batch = 2;
      if (!check_plan(c, halves)) out.push_back(halves);
    }
  }
  int i = 0;
  for (Plan& p : out) p.batch *= std::vector{1, 3, 40, 700}[static_cast<std::size_t>(i++ % 4)];
  return out;
}

std::vector<Case> cases() {
  const Batch decode = decode_batch(60'000), chunk = prefill_batch({{8192, 4096, 2}}),
              whole = prefill_batch({{0, 30'000}}), mixed{{{30'000, 1, 5}}, {{2048, 2048}}};
  return {case_of("llama-3.1-70b", "h200-hgx", Dtype::fp8, Dtype::fp8, decode),
          case_of("llama-3.1-405b", "gb200-nvl72", Dtype::fp4, Dtype::bf16, decode),
          case_of("deepseek-r1", "h200-hgx", Dtype::fp8_block, Dtype::bf16, decode),
          case_of("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::fp8, decode),
          case_of("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::bf16, decode),
          case_of("qwen3-235b-a22b", "b200-hgx", Dtype::fp8_block, Dtype::bf16, decode_batch(30'000)),
          case_of("gpt-oss-120b", "b200-hgx", Dtype::mxfp4, Dtype::fp8, decode),
          case_of("gpt-oss-20b", "h100-hgx", Dtype::mxfp4, Dtype::bf16, decode),
          case_of("mimo-v2-flash", "h200-hgx", Dtype::fp8_block, Dtype::bf16, decode),
          case_of("mimo-v2-flash", "gb200-nvl72", Dtype::fp8_block, Dtype::fp8, mixed),
          case_of("llama-3.1-70b", "h100-hgx", Dtype::bf16, Dtype::bf16, mixed),
          case_of("deepseek-r1", "b200-hgx", Dtype::fp4, Dtype::fp8, mixed),
          case_of("llama-3.1-8b", "h100-hgx", Dtype::bf16, Dtype::bf16, whole),
          case_of("llama-3.1-70b", "b200-hgx", Dtype::fp4, Dtype::fp4, chunk)};
}

// Plans of all cases under one engine.
void expect_options_of(const std::string& name) {
  const ScriptRunner runner;
  const EngineProfile engine = profile_of(name);
  const OptionTable table(name);
  std::set<std::string> emitted, reasons;
  int written = 0;
  for (const Case& c : cases()) {
    for (const Plan& p : some_plans(c, {1, 4, 8, 16, 32}, 4)) {
      const Launch launch = launch_files(c, p, engine, "serve");
      EXPECT_EQ(launch.files.empty(), !launch.refused.empty()) << to_string(p);
      reasons.insert(launch.refused);
      if (launch.files.empty()) continue;
      ++written;
      check({c, p, engine, table, emitted}, launch, runner);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(written, 150);
  fmt::print("{} plans, {} of {} options emitted, {} reasons to write none\n", written, emitted.size(),
             table.size(), reasons.size() - 1);
}

// [P20]
TEST(LaunchFiles, P20OptionsAreThoseOfVllm) { expect_options_of("vllm"); }
TEST(LaunchFiles, P20OptionsAreThoseOfSglang) { expect_options_of("sglang"); }
TEST(LaunchFiles, P20OptionsAreThoseOfTensorRtLlm) { expect_options_of("trtllm"); }

// What the tests above would miss if it could not fail.
TEST(LaunchFiles, P20WrongOptionsAreFound) {
  const OptionTable vllm("vllm"), trtllm("trtllm");
  const auto wrong = [&](const std::vector<std::string>& words) {
    Values v;
    return vllm.faults("serve", "0.24.0", words, v);
  };
  EXPECT_THAT(wrong({"--tensor-parallel-size", "8", "--headless"}), IsEmpty());
  EXPECT_THAT(wrong({"--tensor-parallel-size", "eight"}), ::testing::SizeIs(1));
  EXPECT_THAT(wrong({"--tensor-paralel-size", "8"}), ::testing::SizeIs(2));
  EXPECT_THAT(wrong({"--headless", "--headless"}), ::testing::SizeIs(1));
  EXPECT_THAT(wrong({"--kv-cache-dtype", "fp9"}), ::testing::SizeIs(1));
  Values v;
  EXPECT_THAT(vllm.faults("serve", "0.10.2", {"--dcp-comm-backend", "a2a"}, v), ::testing::SizeIs(1));
  EXPECT_THAT(trtllm.yaml_faults("yaml", "1.3.0rc20", "kv_cache_config:\n  dtype: bf16\n", v),
              ::testing::SizeIs(1));
  EXPECT_THAT(trtllm.yaml_faults("yaml", "1.3.0rc20", "max_seq_len: 1\nmax_seq_length: 2\n", v),
              ::testing::SizeIs(1));
}

TEST(LaunchFiles, P20TablesHaveSources) {
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    const OptionTable table(name);
    EXPECT_GT(table.size(), 50u);
    for (const auto& [option, row] : table.rows()) {
      EXPECT_THAT(row.source, ::testing::AnyOf(HasSubstr("@"), HasSubstr("(1.3.0rc"))) << option;
      EXPECT_FALSE(row.type.empty() || row.since.empty()) << option;
    }
  }
}

}  // namespace
}  // namespace shardline
