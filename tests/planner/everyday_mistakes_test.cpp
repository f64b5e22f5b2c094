// What people write on their first day, and what they read of it: each a line of the table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/scenario/asked_amounts.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/scenario/titles.hpp"
#include "planner/studies/plan_question.hpp"
#include "planner/studies/sweep.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// A scenario without fault, in which a mistake replaces the line of its key or is a line more.
struct Lines {
  std::string name = "name: q", system = "system: h100-hgx", models = "models: [llama-3.1-8b]",
              tokens = "context: 8K tokens", strategies = "strategies: [tensor]", gpus = "gpus: [8]",
              batch = "batch: [4]", more = "";
  std::string text() const {
    std::string out;
    for (const std::string& line : {name, system, models, tokens, strategies, gpus, batch, more})
      out += line.empty() ? "" : line + "\n";
    return out;
  }
};

struct Mistake {
  const char* what;
  std::string Lines::*line;
  const char* written;
  std::vector<const char*> says;  // empty: it is no mistake
};

const std::vector<Mistake> kMistakes{
    {"a repository as model", &Lines::models, "models: [meta-llama/Llama-3.1-8B-Instruct]", {}},
    {"a quantised sibling as model", &Lines::models, "models: [nvidia/Llama-3.1-8B-Instruct-FP8]", {}},
    {"a repository that is not known",
     &Lines::models,
     "models: [meta-llama/Llama-3.1-9B-Instruct]",
     {"q.yaml:3:10: unknown model meta-llama/Llama-3.1-9B-Instruct: no such folder, and no configuration of "
      "such a "
      "repository is known here",
      "did you mean meta-llama/Llama-3.1-8B-Instruct?",
      "or give its files: hf download meta-llama/Llama-3.1-9B-Instruct config.json"}},
    {"a quantised sibling that nobody here has read",
     &Lines::models,
     "models: [nvidia/Qwen3-235B-A22B-FP4]",
     {"which matrices of nvidia/Qwen3-235B-A22B-FP4 are in fp4 is not known here", "or give its files"}},
    {"a name without the version", &Lines::models, "models: [llama3-70b]", {"did you mean llama-3.1-70b?"}},
    {"the size alone", &Lines::models, "models: [llama-70b]", {"did you mean llama-3.1-70b?"}},
    {"capitals", &Lines::models, "models: [Llama-3.1-8B]", {}},
    {"a system in capitals", &Lines::system, "system: H100-HGX", {}},
    {"a GPU whose letters are another's",
     &Lines::system,
     "system: H20",
     {"unknown system H20", "GPUs that are none of these need a .yaml file"}},
    {"a superchip's GPU", &Lines::system, "system: B300", {"did you mean gb300-nvl72?"}},
    {"a shipped system as a file",
     &Lines::system,
     "system: h200-hgx.yaml",
     {"no such file", "did you mean h200-hgx, a system of the catalogue?"}},
    {"a former name of a repository", &Lines::models, "models: [meta-llama/Meta-Llama-3.1-8B-Instruct]", {}},
    {"a mapping for models", &Lines::models, "models: {name: llama-3.1-8b}", {"models are a list of names"}},
    {"another family's spelling", &Lines::models, "models: [qwen2.5-14b]", {"did you mean qwen-2.5-14b?"}},
    {"model for models",
     &Lines::more,
     "model: llama-3.1-70b",
     {"q.yaml:8:1: unknown key model", "a scenario says that as models: [llama-3.1-70b]"}},
    {"tokens without a unit",
     &Lines::tokens,
     "context: 32768",
     {"q.yaml:4:10: context: expected a count of tokens such as \"128Ki tokens\", found a number without a "
      "unit: "
      "write \"32768 tokens\""}},
    {"K without tokens", &Lines::tokens, "context: 32K", {"found the unit \"K\": write \"32K tokens\""}},
    {"K of two kinds", &Lines::tokens, "context: 32k tokens", {}},
    {"vLLM's length",
     &Lines::more,
     "max_model_len: 32768",
     {"unknown key max_model_len", "a scenario says that as context: 32K tokens"}},
    {"tp as a key",
     &Lines::more,
     "tp: 8",
     {"q.yaml:8:1: unknown key tp",
      "a scenario says that as strategies: [tensor], and degrees: {tpa: [8]} for one size alone"}},
    {"tensor as a key", &Lines::more, "tensor: 8", {"unknown key tensor", "as strategies: [tensor]"}},
    {"an engine's option as a key", &Lines::more, "tensor-parallel-size: 8", {"as strategies: [tensor]"}},
    {"pp as a key", &Lines::more, "pp: 2", {"as strategies: [pipeline], and pipeline_stages: [2]"}},
    {"ep as a key", &Lines::more, "enable_expert_parallel: true", {"as strategies: [dp_ep]"}},
    {"a benchmark's lengths",
     &Lines::more,
     "isl: 8192",
     {"unknown key isl", "as workload: {input: 32K tokens, output: 1K tokens}, with an engine"}},
    {"users at the top", &Lines::more, "users: 64", {"unknown key users", "users: [64]}, or batch: [64]"}},
    {"a target at the top",
     &Lines::more,
     "ttl: 20 ms",
     {"unknown key ttl", "as constraints: {ttl: 20 ms, ttft: 2 s}, or the options --ttl and --ttft"}},
    {"a type at the top", &Lines::more, "dtype: fp8", {"as precision: {weights: fp8, kv: fp8}"}},
    {"one type for all",
     &Lines::more,
     "precision: fp8",
     {"precision: expected a mapping, found fp8", "for instance precision: {weights: fp8, kv: fp8}"}},
    {"batches from to",
     &Lines::batch,
     "batch: 1-64",
     {"found 1-64",
      "a range is written {from: 1, to: 64}, its powers of two {from: 1, to: 64, step: double}"}},
    {"GPUs from to", &Lines::gpus, "gpus: 8..64", {"a range is written {from: 8, to: 64}"}},
    {"all GPUs", &Lines::gpus, "gpus: all", {"found all", "step: double}"}},
    {"half a range", &Lines::gpus, "gpus: 8-", {"gpus: expected an integer, found 8-"}},
    {"a decimal comma",
     &Lines::more,
     "constraints: {ttl: \"20,5 ms\"}",
     {"found a comma: write \"20.5 ms\""}},
    {"an engine by the beginning of its title", &Lines::more, "engine: tensorrt", {"did you mean trtllm?"}},
    {"a number of GPUs by another name", &Lines::more, "num_gpus: 8", {"as gpus: [8]"}},
    {"GPUs with a unit", &Lines::gpus, "gpus: 8 GPUs", {"gpus: expected an integer, found 8 GPUs"}},
    {"batches without brackets",
     &Lines::batch,
     "batch: 64,128",
     {"q.yaml:7:8: batch: expected an integer or a list of them, found 64,128",
      "a list is written [64, 128], and one number 64128"}},
    {"batches with blanks", &Lines::batch, "batch: 64, 128 256", {"a list is written [64, 128, 256]"}},
    {"batches in quotes", &Lines::batch, "batch: \"64,128\"", {"a list is written [64, 128]"}},
    {"GPUs without brackets", &Lines::gpus, "gpus: 4,8", {"a list is written [4, 8]"}},
    {"users without brackets",
     &Lines::more,
     "workload: {users: 64,128}",
     {"unknown key workload.128", "numbers of a list stand in brackets: [64, 128]"}},
    {"more GPUs than there are", &Lines::gpus, "gpus: [100000]", {"gpus"}},
    {"a strategy without brackets",
     &Lines::strategies,
     "strategies: tensor",
     {"q.yaml:5:13: strategies: expected a sequence, found tensor", "write [tensor]"}},
    {"a model without brackets", &Lines::models, "models: llama-3.1-8b", {"write [llama-3.1-8b]"}},
    {"data parallelism as a strategy",
     &Lines::strategies,
     "strategies: [data_parallel]",
     {"unknown name data_parallel", "did you mean dp_ep?"}},
    {"experts as a strategy", &Lines::strategies, "strategies: [expert]", {"did you mean dp_ep?"}},
    {"the engine's version", &Lines::more, "engine_version: 0.24.0", {"as engine: \"vllm 0.24.0\""}},
    {"TPOT as a constraint",
     &Lines::more,
     "constraints: {tpot: 20 ms}",
     {"q.yaml:8:15: unknown key constraints.tpot",
      "constraints say that as ttl: 20 ms, which is the TPOT of a workload"}},
    {"tp as a degree",
     &Lines::more,
     "degrees: {tp: [8]}",
     {"degrees say that as tpa: [8] and tpf: [8], of attention and of the FFN"}},
    {"a cache's type by the engine's name",
     &Lines::more,
     "precision: {weights: fp8, kv_cache_dtype: fp8}",
     {"unknown key precision.kv_cache_dtype", "precision says that as kv: fp8"}},
    {"a rate in a workload",
     &Lines::tokens,
     "engine: vllm\nworkload: {input: 8K tokens, output: 1K tokens, rate: 5}",
     {"unknown key workload.rate", "shardline serve --rate has rates"}},
    {"a benchmark's lengths in a workload",
     &Lines::tokens,
     "engine: vllm\nworkload: {isl: 8K tokens, osl: 1K tokens}",
     {"a workload says that as input: 32K tokens", "a workload says that as output: 1K tokens"}},
    {"tp as a strategy", &Lines::strategies, "strategies: [tp]", {"unknown name tp", "did you mean tensor?"}},
    {"ring attention to decode",
     &Lines::strategies,
     "strategies: [ring_pass_kv]",
     {"q.yaml:5:14: ring_pass_kv is for phase: prefill, the phase here is decode",
      "expected one of: tensor"}},
    {"time without a unit",
     &Lines::more,
     "constraints: {ttl: 20}",
     {"constraints.ttl: expected a time such as \"4 us\", found a number without a unit"}},
    {"time without quotes", &Lines::more, "constraints: {ttl: 20 ms}", {}},
    {"an engine in its own spelling", &Lines::more, "engine: vLLM", {}},
    {"an engine and its version as of a package", &Lines::more, "engine: tensorrt-llm==1.3.0rc20", {}},
    {"an engine that nearly has the name", &Lines::more, "engine: vlm", {"did you mean vllm"}},
    {"tokens as counts are printed", &Lines::tokens, "context: 32,768 tokens", {}},
    {"a workload of bare kernels",
     &Lines::tokens,
     "workload: {input: 8K tokens, output: 1K tokens}",
     {"a workload is served by an engine", "expected engine: trtllm, vllm or sglang"}},
    {"a request beyond the model's maximum",
     &Lines::tokens,
     "engine: vllm\nworkload: {input: 200K tokens, output: 1K tokens}",
     {"input and output are 205824 tokens, llama-3.1-8b is for 131072 at most",
      "expected an input of at most 130048 tokens", "any_context: true lifts that"}},
    {"a context beyond the model's maximum",
     &Lines::tokens,
     "engine: vllm\ncontext: 256K tokens",
     {"vLLM 0.24.0 does not start: 262144 tokens are more than the 131072 of llama-3.1-8b"}},
};

std::string says(const std::string& text) {
  try {
    parse_scenario("q.yaml", text, shipped_catalogs());
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(EverydayMistakes, AreAnswered) {
  ASSERT_EQ(says(Lines{}.text()), "");
  for (const Mistake& m : kMistakes) {
    SCOPED_TRACE(m.what);
    Lines lines;
    lines.*m.line = m.written;
    const std::string said = says(lines.text());
    if (m.says.empty()) {
      EXPECT_EQ(said, "");
    }
    for (const char* part : m.says) EXPECT_THAT(said, HasSubstr(part));
  }
}

// A key that was explained is none of the expected ones.
TEST(EverydayMistakes, ExplainedKeysAreNotExpected) {
  Lines lines;
  lines.more = "tp: 8\nbtach: 4";
  const std::string said = says(lines.text());
  EXPECT_THAT(said, HasSubstr("unknown key btach\n"));
  EXPECT_THAT(said, HasSubstr("did you mean batch?"));
  EXPECT_EQ(said.find(", tp"), std::string::npos);
}

TEST(EverydayMistakes, OtherFilesThanScenarios) {
  EXPECT_THAT(says("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\"}"),
              HasSubstr("q.yaml:1:1: this is a model's config.json, not a scenario"));
  EXPECT_THAT(says("name: m\nlayers: 2\nhidden: 64\n"), HasSubstr("this is a model, not a scenario"));
  EXPECT_THAT(says("name: s\nsummary: x\ndevice: {}\nfabric: {}\n"),
              HasSubstr("this is a system, not a scenario"));
}

TEST(EverydayMistakes, StrategiesOfDecodingToPrefill) {
  EXPECT_THAT(
      says("name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nphase: prefill\nrequests: [{new: 8K tokens}]\n"
           "strategies: [helix]\ngpus: [8]\nbatch: [1]\n"),
      HasSubstr("q.yaml:6:14: helix is for phase: decode, the phase here is prefill"));
}

// Scenarios and what they name: each fault has the path of its key; plans' texts have theirs.
TEST(EverydayMistakes, NameTheirKey) {
  const auto keys = [](const auto& read) {
    std::vector<std::string> out;
    try {
      read();
    } catch (const UserError& e) {
      for (const Diagnostic& d : e.diagnostics()) out.push_back(d.where.key);
    }
    return out;
  };
  using ::testing::ElementsAre;
  const auto of_line = [&](std::string Lines::*line, const char* written) {
    Lines lines;
    lines.*line = written;
    return keys([&] { parse_scenario("q.yaml", lines.text(), shipped_catalogs()); });
  };
  EXPECT_THAT(of_line(&Lines::models, "models: [llama3-70b]"), ElementsAre("models[0]"));
  EXPECT_THAT(of_line(&Lines::tokens, "context: 32768"), ElementsAre("context"));
  EXPECT_THAT(of_line(&Lines::tokens, "engine: vllm\nworkload: {input: 200, output: 1K tokens}"),
              ElementsAre("workload.input"));
  EXPECT_THAT(of_line(&Lines::more, "tp: 8"), ElementsAre("tp"));
  EXPECT_THAT(of_line(&Lines::gpus, "gpus: [100000]"), ElementsAre("gpus[0]"));
  EXPECT_THAT(of_line(&Lines::batch, ""), ElementsAre("batch"));
  const auto of_plan = [&](const char* text) { return keys([&] { parse_plan(text); }); };
  EXPECT_THAT(of_plan("tensor:tpa=0"), ElementsAre("tpa"));
  EXPECT_THAT(of_plan("tensor:tq=1"), ElementsAre("tq"));
  EXPECT_THAT(of_plan("tenser"), ElementsAre("strategy"));
  EXPECT_THAT(of_plan("tensor:tpa=1,tpa=1"), ElementsAre("tpa"));
  EXPECT_THAT(of_plan("tensor:"), ElementsAre(""));
}

// An engine is not given 7 of a node's 8 GPUs: the rule that says so, and what lifts it.
TEST(EverydayMistakes, OddNumbersOfGpus) {
  Lines lines;
  lines.gpus = "gpus: [7]";
  lines.more = "engine: vllm";
  const Scenario scenario = parse_scenario("q.yaml", lines.text(), shipped_catalogs());
  const SweepAnswer a = answer_sweep(
      scenario.studies[0], {}, [](std::uint64_t, std::uint64_t) {}, [] { return true; });
  EXPECT_FALSE(a.any());
  ASSERT_TRUE(a.found.not_started.contains("gpus"));
  EXPECT_THAT(a.found.not_started.at("gpus").first.text, HasSubstr("7 GPUs"));
  lines.more += "\nany_gpus: true";
  const Scenario lifted = parse_scenario("q.yaml", lines.text(), shipped_catalogs());
  EXPECT_FALSE(answer_sweep(
                   lifted.studies[0], {}, [](std::uint64_t, std::uint64_t) {}, [] { return true; })
                   .found.not_started.contains("gpus"));
}

TEST(EverydayMistakes, PlansAsEnginesSayThem) {
  const auto said_of = [](const char* text) -> std::string {
    try {
      parse_plan(text);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_THAT(said_of("tpa=8"), HasSubstr("a plan begins with its strategy, for instance tensor:tpa=8"));
  EXPECT_THAT(said_of("tensor:tp=8"), HasSubstr("tp of engines is tpa=8,tpf=8 here"));
  EXPECT_THAT(said_of("tensr:tpa=8"), HasSubstr("did you mean tensor?"));
  const std::vector<std::pair<const char*, const char*>> others{
      {"tp8", "tp8 of engines is tensor:tpa=8,tpf=8 here"},
      {"tp=8", "tp=8 of engines is tensor:tpa=8,tpf=8 here"},
      {"TP4-PP2", "is pipeline:pp=2,tpa=4,tpf=4 here"},
      {"tp8ep8", "tp8ep8 of engines is tensor:tpa=8,ep=8 here"},
      {"tp8ep4", "is tensor:tpa=8,ep=4,tpf=2 here"},
      {"TEP8", "is tensor:tpa=8,ep=8 here"},
      {"ep8", "is tensor:tpa=8,ep=8 here"},
      {"pp2tp8ep8", "is pipeline:pp=2,tpa=8,ep=8 here"},
      {"dp8ep8", "is dp_ep:dp=8,ep=8 here"},
      {"DEP8", "is dp_ep:dp=8,ep=8 here"},
      {"dp4tp2ep8", "is dp_ep:dp=4,tpa=2,ep=8 here"},
      {"tp8dp8ep8", "is dp_ep:dp=8,ep=8 here"},  // SGLang's TP is of all groups
      {"dp8", "is dp_ep:dp=8,ep=8 here"},
      {"tensor tpa 8 tpf 8", "did you mean tensor:tpa=8,tpf=8?"},
      {"tensor-tpa8-tpf8", "did you mean tensor:tpa=8,tpf=8?"},
      {"tensor,tpa=8,tpf=8", "did you mean tensor:tpa=8,tpf=8?"},
      {"helix/kvp8/tpa8/tpf64/batch4", "did you mean helix:kvp=8,tpa=8,tpf=64,batch=4?"},
      {"ring_pass_kv cp 4 tpa 2 tpf 2", "did you mean ring_pass_kv:cp=4,tpa=2,tpf=2?"},
      {"tensor:tpa8,tpf8", "did you mean tpa=8?"},
      {"tensor:tp8ep8", "tp8ep8 of engines is tensor:tpa=8,ep=8 here"}};
  for (const auto& [text, says] : others) EXPECT_THAT(said_of(text), HasSubstr(says)) << text;
  // What no plan is meant by is answered by what plans are.
  for (const char* text : {"tp8ep3", "tp0", "xp8", "tp8tp4", "tensor tpq 8", "tensor tpa"})
    EXPECT_THAT(said_of(text),
                ::testing::AnyOf(HasSubstr("expected one of: tensor"), HasSubstr("did you mean tensor?")))
        << text;
  // What is proposed is a plan.
  for (const auto& [text, says] : others) {
    const std::string all = said_of(text);
    for (const char* before : {" of engines is ", "did you mean "}) {
      const auto at = all.find(before);
      if (at == std::string::npos) continue;
      std::string proposed = all.substr(at + std::string(before).size());
      proposed = proposed.substr(0, proposed.find_first_of(" ?"));
      if (proposed.find(':') != std::string::npos) {
        EXPECT_EQ(said_of(proposed.c_str()), "accepted") << proposed;
      }
    }
  }
}

TEST(EverydayMistakes, RatesInAnyUnitOfTime) {
  EXPECT_DOUBLE_EQ(asked_rate("--rate", "5"), 5);
  EXPECT_DOUBLE_EQ(asked_rate("--rate", "5/s"), 5);
  EXPECT_DOUBLE_EQ(asked_rate("--rate", "300/min"), 5);
  for (const char* const said : {"5 requests/s", "5 req/s", "5/sec"})
    EXPECT_DOUBLE_EQ(asked_rate("--rate", said), 5);
  EXPECT_DOUBLE_EQ(asked_rate("--rate", "1.8e4/h"), 5);
  // And said again as they were given, in the first unit that has few digits for it.
  const auto again = [](const char* rate) {
    const double per_s = asked_rate("--rate", rate);
    EXPECT_DOUBLE_EQ(asked_rate("--rate", rate_argument(per_s)), per_s) << rate;
    return rate_text(per_s) + ", " + rate_argument(per_s);
  };
  EXPECT_EQ(again("5/h"), "5 requests/h, 5/h");
  EXPECT_EQ(again("1/h"), "1 request/h, 1/h");
  EXPECT_EQ(again("2000/h"), "2000 requests/h, 2000/h");
  EXPECT_EQ(again("7/min"), "7 requests/min, 7/min");
  EXPECT_EQ(again("30/min"), "0.5 requests/s, 0.5/s");
  EXPECT_EQ(again("5/s"), "5 requests/s, 5/s");
  EXPECT_EQ(again("1.23456789/s"), "1.235 requests/s, 1.23456789/s");
  for (const char* bad : {"", "/s", "0/s", "-1/s", "5/d", "5 s", "5/s/s", "nan", "inf", "5rps"})
    EXPECT_THROW(asked_rate("--rate", bad), UserError) << bad;
}

TEST(Titles, CountsInFullWhereKAndMWouldMislead) {
  const auto title = [](long long tokens) { return scenario_parts::workload_text(decode_batch(tokens)); };
  EXPECT_EQ(title(1'000'000), ", 1,000,000 tokens");
  EXPECT_EQ(title(128'000), ", 128,000 tokens");
  EXPECT_EQ(title(131'072), ", 128Ki tokens");
  EXPECT_EQ(title(1 << 20), ", 1Mi tokens");
  EXPECT_EQ(title(999), ", 999 tokens");
  EXPECT_EQ(scenario_parts::grouped(0), "0");
  EXPECT_EQ(scenario_parts::grouped(1'234'567), "1,234,567");
}

}  // namespace
}  // namespace shardline
