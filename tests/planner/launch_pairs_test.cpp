// Launch files of pairs of pools, of every engine: what bash reads, and options that the engine has.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include "planner/engines/launch_server.hpp"
#include "tests/planner/engine_options.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::IsEmpty;
using Values = std::map<std::string, std::string>;

EngineProfile profile_of(const std::string& name) {
  return load_engine(name, "", source_path("planner/engines"));
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

// What stands in front of a pair, with the addresses that it asks for.
void check_front(const std::string& engine, const OptionTable& table, const Called& front) {
  const std::string version = profile_of(engine).version;
  Values v;
  if (engine == "trtllm") {
    ASSERT_EQ((std::vector(front.words.begin(), front.words.begin() + 2)),
              (std::vector<std::string>{"trtllm-serve", "disaggregated"}));
    EXPECT_THAT(table.yaml_faults("front_yaml", version, front.config, v), IsEmpty());
    return;
  }
  const bool vllm = engine == "vllm";
  EXPECT_THAT(table.faults(vllm ? "proxy" : "router", version,
                           {front.words.begin() + (vllm ? 2 : 3), front.words.end()}, v),
              IsEmpty());
}

// Every file of a launch, on the first machine: what bash reads, options and keys that the engine has.
void expect_valid(const std::string& engine, const Launch& launch, const ScriptRunner& runner) {
  const OptionTable table(engine);
  const std::string version = profile_of(engine).version;
  runner.write(launch.files);
  for (const LaunchFile& f : launch.files) {
    Values v;
    if (f.name.ends_with(".yaml")) {
      EXPECT_THAT(table.yaml_faults("yaml", version, f.text, v), IsEmpty());
      continue;
    }
    const Called called = runner.run(f.name, {{"MODEL", "m"},
                                              {"NODE_RANK", "0"},
                                              {"HEAD_ADDR", "head"},
                                              {"THIS_ADDR", "this"},
                                              {"HOSTS", "hosts"},
                                              {"CONTEXT_ADDR", "a"},
                                              {"GENERATION_ADDR", "b"},
                                              {"CONTEXT_URL", "http://a:1"},
                                              {"GENERATION_URL", "http://b:2"},
                                              {"VLLM_SOURCE", "/source"}});
    ASSERT_EQ(called.code, 0) << f.text;
    if (f.name.ends_with("_front.sh")) {
      check_front(engine, table, called);
      continue;
    }
    const auto serve = std::find(called.words.begin(), called.words.end(), "trtllm-serve");
    const auto options = engine == "trtllm" ? serve + 2 : called.words.begin() + 3;
    EXPECT_THAT(table.faults("serve", version, {options, called.words.end()}, v), IsEmpty()) << f.text;
  }
}

struct PairCase {
  Case decode;
  std::vector<std::string> prompts, answers;
};

std::vector<PairCase> pair_cases() {
  const Batch decode = decode_batch(30'000);
  return {{case_of("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::fp8, decode),
           {"tensor:tpa=8,ep=8,batch=1,prefill_chunk=8192", "dp_ep:dp=4,ep=4,batch=1",
            "pipeline:pp=4,tpa=4,ep=4,batch=1,prefill_chunk=8192"},
           {"dp_ep:dp=32,ep=32,batch=64", "tensor:tpa=8,tpf=8,batch=4",
            "pipeline:pp=4,tpa=4,ep=4,batch=8,in_flight=4"}},
          {case_of("deepseek-r1", "h200-hgx", Dtype::fp8_block, Dtype::bf16, decode),
           {"tensor:tpa=16,ep=16,batch=1,prefill_chunk=8192"},
           {"dcp:tpa=8,ep=8,batch=16,dcp=8", "dp_ep:dp=16,ep=16,batch=32"}},
          {case_of("gpt-oss-120b", "b200-hgx", Dtype::mxfp4, Dtype::fp8, decode),
           {"tensor:tpa=2,tpf=2,batch=1,prefill_chunk=8192", "dp_ep:dp=8,ep=8,batch=1"},
           {"tensor:tpa=4,ep=4,batch=64", "dp_ep:dp=16,ep=16,batch=64"}},
          {case_of("mimo-v2-flash", "h200-hgx", Dtype::fp8_block, Dtype::bf16, decode),
           {"tensor:tpa=4,ep=4,batch=1,prefill_chunk=8192"},
           {"dp_ep:dp=16,ep=16,batch=64", "tensor:tpa=8,ep=8,batch=16"}}};
}

// [P20] Pools of any two plans: one machine and several, stages, attention DP, DCP; every engine.
TEST(LaunchPairs, P20AreValidForEveryEngine) {
  const ScriptRunner runner;
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    int written = 0, on_several = 0;
    for (const PairCase& pair : pair_cases()) {
      Case prompts = pair.decode;
      prompts.batch = prefill_batch({{0, 30'000}});
      for (const std::string& first : pair.prompts) {
        for (const std::string& second : pair.answers) {
          SCOPED_TRACE(fmt::format("{} {} and {}", engine, first, second));
          const Plan context = parse_plan(first), generation = parse_plan(second);
          ASSERT_EQ(check_plan(prompts, context).value_or(""), "");
          ASSERT_EQ(check_plan(pair.decode, generation).value_or(""), "");
          const Launch launch =
              launch_pair({prompts, context}, {pair.decode, generation}, profile_of(engine), "p");
          EXPECT_EQ(launch.files.empty(), !launch.refused.empty());
          if (launch.files.empty()) continue;
          EXPECT_EQ(launch.servers.size(), 2u);
          ++written;
          on_several += generation.gpus() > launch::gpus_per_machine(pair.decode.system) ? 1 : 0;
          expect_valid(engine, launch, runner);
        }
      }
    }
    EXPECT_GE(written, 10) << engine;
    EXPECT_GE(on_several, 4) << engine;
  }
}

}  // namespace
}  // namespace shardline
