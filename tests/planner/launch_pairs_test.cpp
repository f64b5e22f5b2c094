// Launch files of pairs of pools, of every engine: what bash reads, and options that the engine has.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include "planner/engines/launch_server.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/serving/served_plan.hpp"
#include "tests/planner/engine_options.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
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
                                              {"CONTEXT_ADDRS", "a"},
                                              {"GENERATION_ADDRS", "b"},
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
          on_several += generation.gpus() > gpus_per_machine(pair.decode.system) ? 1 : 0;
          expect_valid(engine, launch, runner);
        }
      }
    }
    EXPECT_GE(written, 10) << engine;
    EXPECT_GE(on_several, 4) << engine;
  }
}

// What a server for prompts is told, by its engine's own arithmetic: the step of a group that has as many
// prompts of one length as it takes.
PromptStep told_step(const std::string& engine, const Launch& launch, const Plan& plan, long long input,
                     const ScriptRunner& runner) {
  const OptionTable table(engine);
  const std::string version = profile_of(engine).version;
  runner.write(launch.files);
  Values v;
  if (engine == "trtllm") {
    for (const LaunchFile& f : launch.files) {
      if (f.name != "p_context.yaml") continue;
      EXPECT_THAT(table.yaml_faults("yaml", version, f.text, v), IsEmpty());
    }
  } else {
    const Called called = runner.run(
        "p_context.sh", {{"MODEL", "m"}, {"NODE_RANK", "0"}, {"HEAD_ADDR", "head"}, {"THIS_ADDR", "this"}});
    EXPECT_EQ(called.code, 0);
    EXPECT_THAT(table.faults("serve", version, {called.words.begin() + 3, called.words.end()}, v), IsEmpty());
  }
  const auto number = [&](const char* name) { return v.contains(name) ? std::stoll(v[name]) : -1; };
  // Requests that begin in one step, and tokens of it; a stage has its own.
  long long requests = 0, tokens = 0, each = input;
  if (engine == "vllm") {
    requests = number("--max-num-seqs") / plan.in_flight;
    tokens = number("--max-num-batched-tokens");
  } else if (engine == "sglang") {
    requests = number("--prefill-max-requests");
    tokens = number("--chunked-prefill-size") / plan.dp;
    each = (input + 63) / 64 * 64;  // a prompt counts with whole pages
    EXPECT_EQ(number("--page-size"), 64);
    EXPECT_EQ(tokens % 64, 0);
    // Places for those of a step, of the next one, and of those that are handed over.
    EXPECT_GE(number("--max-running-requests"), 3 * requests * plan.dp * plan.in_flight);
    EXPECT_LE(tokens, std::max(16384LL, number("--max-prefill-tokens")));
  } else {
    EXPECT_EQ(v["enable_chunked_prefill"], "true");
    requests = number("max_batch_size");
    tokens = number("max_num_tokens");
  }
  if (input > tokens) {
    EXPECT_EQ(requests, 1);  // else the rest of a prompt shares a step with the next one
    return {1, tokens};
  }
  return {std::min(requests, tokens / each), input};
}

// The time of all steps of prompts that share them, each of them lowered and timed by itself.
Seconds time_of(const Case& c, const Plan& plan, const PromptStep& step, long long input) {
  Case own = c;
  own.disaggregated = true;
  Seconds sum{0};
  for (long long done = 0; done < input; done += step.chunk) {
    own.batch = prefill_batch({{done, std::min(step.chunk, input - done), static_cast<int>(step.prompts)}});
    sum += Evaluator(own, AllReduceRule::fastest).simulate(plan);
  }
  return sum;
}

struct PromptCase {
  const char *model, *system;
  Dtype weights, kv;
  std::vector<const char*> plans;
};

// [P22] What a pool is priced by is what its files say: options, step and time, of every engine.
TEST(LaunchPairs, P22ThePricedStepIsTheLaunchedOne) {
  const ScriptRunner runner;
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    const auto engine = std::make_shared<const EngineProfile>(profile_of(name));
    int cut = 0, shared = 0, groups = 0;
    for (const PromptCase& x :
         {PromptCase{"llama-3.1-8b",
                     "h100-hgx",
                     Dtype::bf16,
                     Dtype::bf16,
                     {"tensor:batch=1", "tensor:tpa=2,tpf=2,batch=1", "pipeline:pp=2,batch=1"}},
          PromptCase{"deepseek-r1",
                     "gb200-nvl72",
                     Dtype::fp4,
                     Dtype::fp8,
                     {"dp_ep:dp=8,ep=8,batch=1", "dp_ep:dp=12,ep=12,batch=1"}},
          PromptCase{"deepseek-v3.2",
                     "h200-hgx",
                     Dtype::fp8,
                     Dtype::bf16,
                     {"allgather_kv:cp=8,ep=8,batch=1", "allgather_kv:pp=2,cp=4,ep=4,batch=1"}}}) {
      for (const long long input : {100LL, 1000LL, 1024LL, 3000LL, 8192LL, 20'000LL}) {
        Case c = case_of(x.model, x.system, x.weights, x.kv, decode_batch(input));
        c.engine = engine;
        c.served = {input, 512};
        const Plan answers = parse_plan("tensor:tpa=8,tpf=8,batch=8");
        for (const char* text : x.plans) {
          SCOPED_TRACE(fmt::format("{} {} {} tokens", name, text, input));
          const Plan plan = parse_plan(text);
          const ContextServer server = context_server(c, *engine, plan, input);
          const Launch launch = launch_pair({server.study, server.plan}, {c, answers}, *engine, "p");
          if (!launch.refused.empty()) continue;  // vLLM has no stages in pairs
          const PromptStep told = told_step(name, launch, plan, input, runner);
          const PromptStep priced = prompt_step(c, *engine, plan, input);
          EXPECT_EQ(told.prompts, priced.prompts);
          EXPECT_EQ(told.chunk, priced.chunk);
          Case prompts = c;
          prompts.disaggregated = true;
          ServedEvaluator evaluator(prompts, AllReduceRule::fastest);
          EXPECT_EQ(evaluator.prompts_of_step(plan, input), told.prompts);
          const Seconds price = evaluator.prompt_alone(plan, input, told.prompts);
          EXPECT_NEAR(price / time_of(c, plan, told, input), 1, 0.01);
          cut += told.chunk < input;
          shared += told.prompts > 1;
          groups += plan.dp > 1;
          if (plan.cp > 1) {
            EXPECT_EQ(told.prompts, 1);
            EXPECT_STREQ(name, "sglang");
          }
        }
      }
    }
    EXPECT_GT(std::min({cut, shared, groups}), 0) << name;
  }
}

// Files say what of their prompts was taken for granted.
TEST(LaunchPairs, P22FilesSayThatGroupsPrefillTogether) {
  Case c = case_of("deepseek-r1", "gb200-nvl72", Dtype::fp4, Dtype::fp8, decode_batch(1024));
  c.served = {1024, 512};
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    const EngineProfile engine = profile_of(name);
    const auto context = [&](const char* plan) {
      const ContextServer s = context_server(c, engine, parse_plan(plan), 1024);
      const Launch launch =
          launch_pair({s.study, s.plan}, {c, parse_plan("dp_ep:dp=8,ep=8,batch=8")}, engine, "p");
      EXPECT_EQ(launch.refused, "");
      std::string all;
      for (const LaunchFile& f : launch.files) {
        if (f.name == "p_context.sh") all += f.text;
        if (f.name == "p_generation.sh") {
          EXPECT_THAT(f.text, Not(HasSubstr("prefill in the same steps")));
        }
      }
      for (const std::string& note : launch.servers.at(1).notes) EXPECT_THAT(all, HasSubstr("# " + note));
      return all;
    };
    EXPECT_THAT(context("dp_ep:dp=8,ep=8,batch=1"),
                AllOf(HasSubstr("The 8 attention groups are taken to prefill in the same steps"),
                      HasSubstr(fmt::format("at most {} prompts of 1024 tokens of each attention group",
                                            engine.shared_budget ? 2 : 8))));
    EXPECT_THAT(context("tensor:tpa=8,ep=8,batch=1"),
                AllOf(Not(HasSubstr("attention groups")), HasSubstr("prompts of 1024 tokens.")));
    // A server for both, of a workload.
    const Launch whole = launch_files(c, parse_plan("dp_ep:dp=8,ep=8,batch=8"), engine, "p");
    EXPECT_THAT(whole.files.front().text, AllOf(HasSubstr("The 8 attention groups step together"),
                                                Not(HasSubstr("prefill in the same steps"))));
  }
}

}  // namespace
}  // namespace shardline
