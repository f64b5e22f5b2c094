// planner/engines: profiles [P18].
#include "planner/engines/profile.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "calibrate/validate/served_tables.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory.hpp"
#include "planner/search/provenance.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/served.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

const char* const kQuestion =
    "name: q\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\ncontext: 4Ki tokens\n"
    "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: [tensor]\ngpus: [1, 2]\nbatch: [1, 8]\n";

Study study(const std::string& more, const Overrides& overrides = {}) {
  return parse_scenario("q.yaml", kQuestion + more, shipped_catalogs(), overrides).studies[0];
}

std::string message(const std::string& more) {
  try {
    study(more);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(EngineProfile, EveryShippedOneIsWhole) {
  for (const char* name : {"trtllm", "vllm", "sglang"}) {
    const EngineProfile p = load_engine(name, "", shipped_catalogs().engines);
    EXPECT_EQ(p.name, name);
    EXPECT_FALSE(p.assumes.empty()) << name;
    EXPECT_GT(p.error.rows, 100) << name;
    EXPECT_LT(p.error.tpot.low, 0) << name;
    EXPECT_GT(p.error.tpot.high, 0) << name;
    EXPECT_GT(p.host.request.value, 0) << name;
    // Every measured row is used, or left out for a reason.
    int dropped = 0, laid_out = 0;
    const ServedDetails details = load_served_details(shipped_catalogs().engines / (p.name + ".yaml"));
    for (const ServedLeftOut& l : details.left_out) dropped += l.ttft_alone ? 0 : l.rows;
    for (const ServedError& e : details.layouts) laid_out += e.of.starts_with("TPOT with ") ? e.rows : 0;
    EXPECT_EQ(details.measured, p.error.rows + dropped) << name;
    EXPECT_EQ(laid_out, p.error.rows) << name;
    EXPECT_TRUE(std::is_sorted(p.graphs.begin(), p.graphs.end())) << name;
  }
}

// What the page of errors says of them is what the profiles have: one source, rounded once.
TEST(EngineProfile, ThePageOfErrorsHasTheirs) {
  const std::string page = testing::read_file(SHARDLINE_SOURCE_DIR "/reports/trust.md");
  for (const char* name : {"trtllm", "vllm", "sglang"}) {
    const EngineProfile p = load_engine(name, "", shipped_catalogs().engines);
    const auto all = std::find_if(p.error.tables.begin(), p.error.tables.end(),
                                  [](const ServedError& e) { return e.of == "TPOT of all rows"; });
    ASSERT_NE(all, p.error.tables.end()) << name;
    const std::size_t of = p.source.find(" rows of "), end = p.source.find(" models");
    const std::string models = p.source.substr(of + 9, end - of - 9);
    EXPECT_THAT(page,
                HasSubstr(fmt::format("| {} {} | {}, {} | {:.1f} / {:.1f} % | {:+.1f} % | {:+.0f} to {:+.0f} "
                                      "%; {:.0f} % |",
                                      p.title, p.version, p.error.rows, models, 100 * all->median,
                                      100 * all->p90, 100 * all->bias, 100 * std::expm1(p.error.tpot.low),
                                      100 * std::expm1(p.error.tpot.high), 100 * p.error.covered)));
  }
}

// An engine loads what is published: nobody asked for a cache in FP4 that none of them has.
TEST(EngineProfile, LoadsTheMakersCheckpointWhereNobodyNamesOne) {
  const auto asked = [](const std::string& system, const std::string& model, const std::string& more) {
    return parse_scenario("q.yaml",
                          "name: q\nsystem: " + system + "\nmodels: [" + model +
                              "]\ncontext: 4Ki tokens\nstrategies: [tensor]\ngpus: [8]\nbatch: [1]\n" + more,
                          shipped_catalogs())
        .studies[0]
        .study;
  };
  const Case r1 = asked("gb200-nvl72", "deepseek-r1", "engine: vllm\n");
  EXPECT_EQ(r1.precision.of(Module::experts).weights, Dtype::fp8_block);
  EXPECT_EQ(r1.precision.of(Module::attention).weights, Dtype::fp8_block);
  EXPECT_EQ(r1.precision.of(Module::head).weights, Dtype::bf16);
  EXPECT_EQ(r1.precision.kv, Dtype::bf16);
  EXPECT_THAT(precision_text(r1), HasSubstr("weights fp8_block, KV cache bf16 (precision does not say: the "
                                            "checkpoint is deepseek-ai/DeepSeek-R1)"));
  const Case oss = asked("h100-hgx", "gpt-oss-120b", "engine: vllm\n");
  EXPECT_EQ(oss.precision.of(Module::experts).weights, Dtype::mxfp4);
  EXPECT_EQ(oss.precision.of(Module::attention).weights, Dtype::bf16);
  const Case llama = asked("h200-hgx", "llama-3.1-70b", "engine: sglang\n");
  EXPECT_EQ(llama.precision.of(Module::dense_ffn).weights, Dtype::bf16);
  EXPECT_EQ(llama.precision.kv, Dtype::bf16);
  // What a scenario says goes before it, what it leaves open is the checkpoint's.
  const Case kv = asked("h200-hgx", "llama-3.1-70b", "engine: sglang\nprecision: {kv: fp8}\n");
  EXPECT_EQ(kv.precision.of(Module::dense_ffn).weights, Dtype::bf16);
  EXPECT_EQ(kv.precision.kv, Dtype::fp8);
  const Case fp8 = asked("h200-hgx", "llama-3.1-70b", "engine: sglang\nprecision: {weights: fp8, kv: fp8}\n");
  EXPECT_EQ(fp8.precision.of(Module::attention).math, Dtype::fp8);
  EXPECT_EQ(precision_text(fp8), "");
  EXPECT_EQ(checkpoint_text(fp8), "");
  // Without an engine the device's narrowest types stand, as before.
  EXPECT_EQ(asked("h200-hgx", "llama-3.1-70b", "").precision.weights, Dtype::fp8);
  EXPECT_EQ(asked("gb200-nvl72", "deepseek-r1", "").precision.kv, Dtype::fp4);
}

TEST(EngineProfile, BatchesArePaddedToTheNextGraph) {
  EngineProfile p;
  p.graphs = {1, 2, 4, 8, 16};
  EXPECT_EQ(p.padded(1), 1);
  EXPECT_EQ(p.padded(3), 4);
  EXPECT_EQ(p.padded(16), 16);
  EXPECT_EQ(p.padded(17), 17);  // no graph: eager
}

TEST(EngineProfile, PaddedStepsTakeTheTimeOfTheLargerBatchBesideAttention) {
  Case c = study("engine: vllm\n").study;
  Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=5");
  const Seconds five = Evaluator(c).simulate(plan);
  plan.batch = 8;
  const Seconds eight = Evaluator(c).simulate(plan);
  auto bare = std::make_shared<EngineProfile>(*c.engine);
  bare->graphs.clear();
  c.engine = bare;
  plan.batch = 5;
  const Seconds unpadded = Evaluator(c).simulate(plan);
  EXPECT_LT(unpadded, five);
  EXPECT_LT(five, eight);
}

TEST(EngineProfile, AHostBesideKernelsIsInEveryStepAndItsBound) {
  Case c = study("engine: vllm\n").study;
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=8");
  const StepHost host{Seconds(2e-3), Seconds(5e-4), Seconds(1e-6), Seconds(0)};
  const auto beside = [](Seconds kernels, double work) { return std::hypot(kernels.value, work); };
  c.system.host = host;
  const Seconds with = Evaluator(c).simulate(plan), bound = Evaluator(c).bound(plan);
  const auto rated = [&] {
    Evaluator e(c);
    return break_down(e, plan);
  };
  const Breakdown b = rated();
  c.system.host = {};
  const Seconds kernels = Evaluator(c).simulate(plan);
  EXPECT_NEAR(with.value, beside(kernels, 6e-3), 1e-12);
  EXPECT_NEAR(bound.value, beside(Evaluator(c).bound(plan), 6e-3), 1e-12);
  // What it adds is the host's part; the errors of kernels count the less for it.
  const Breakdown bare = rated();
  EXPECT_NEAR((b.parts[static_cast<std::size_t>(Part::host)]).value, (with - kernels).value, 1e-12);
  EXPECT_NEAR(b.waiting.value, 0, 1e-12);
  EXPECT_LT(time_error(b.errors).high, time_error(bare.errors).high);
  EXPECT_GT(time_error(b.errors).high, 0);
  c.batch = prefill_batch({{0, 1000}});
  const Plan one = parse_plan("tensor:tpa=2,tpf=2,batch=1");
  const Seconds prefill = Evaluator(c).simulate(one);
  c.system.host = host;
  EXPECT_NEAR(Evaluator(c).simulate(one).value, beside(prefill, 3e-3), 1e-12);
}

// A search that adds up blocks finds the same.
TEST(EngineProfile, AHostBesideKernelsIsInSweeps) {
  const Study s = study("engine: vllm\n");
  SearchOptions options = s.sweep().search;
  options.keep_all = true;
  const SearchResult found = search(s.study, options);
  ASSERT_FALSE(found.all.empty());
  for (const Point& p : found.all)
    EXPECT_EQ(p.time, Evaluator(s.study, options.all_reduce).simulate(p.plan)) << to_string(p.plan);
}

TEST(EngineProfile, AHostBetweenStepsIsInEveryStepAndItsBound) {
  Case c = study("engine: vllm\n").study;
  auto waited_for = std::make_shared<EngineProfile>(*c.engine);
  waited_for->host_waited_for = true;
  c.engine = waited_for;
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=8");
  const Seconds with = Evaluator(c).simulate(plan), bound = Evaluator(c).bound(plan);
  const StepHost host = c.system.host;
  c.system.host = {};
  EXPECT_NEAR((with - Evaluator(c).simulate(plan)).value, (host.step + host.request * 8).value, 1e-12);
  EXPECT_NEAR((bound - Evaluator(c).bound(plan)).value, (host.step + host.request * 8).value, 1e-12);
  c.batch = prefill_batch({{0, 1000}});
  const Seconds prefill = Evaluator(c).simulate(parse_plan("tensor:tpa=2,tpf=2,batch=1"));
  c.system.host = host;
  EXPECT_NEAR((Evaluator(c).simulate(parse_plan("tensor:tpa=2,tpf=2,batch=1")) - prefill).value,
              (host.step + host.prompt_token * 1000).value, 1e-12);
}

// [P18] Its host is off as its profile was on models left out, no matter whose costs its kernels have.
void expect_band_of_host(bool calibrated, bool waited_for) {
  Case c = study("engine: vllm\n", {calibrated ? Costs::calibrated : Costs::parameters, ""}).study;
  auto engine = std::make_shared<EngineProfile>(*c.engine);
  engine->host_waited_for = waited_for;
  c.engine = engine;
  const Plan plan = parse_plan("tensor:tpa=2,tpf=2,batch=8");
  Evaluator e(c);
  const Rating rating = rating_of(e, plan);
  const auto terms = rating.errors.all();
  const auto of_host =
      std::find_if(terms.begin(), terms.end(), [](const ErrorTerm& t) { return t.source == kHostSource; });
  ASSERT_NE(of_host, terms.end());
  const double all = e.simulate(plan).value, host = (c.system.host.step + c.system.host.request * 8).value;
  const double kernels = waited_for ? all - host : std::sqrt(all * all - host * host);
  const auto changed = [&](double ln) {
    const double moved = host * std::exp(ln);
    return (waited_for ? kernels + moved : std::hypot(kernels, moved)) / all - 1;
  };
  EXPECT_NEAR(of_host->low, changed(c.engine->error.tpot.low), 1e-9);
  EXPECT_NEAR(of_host->high, changed(c.engine->error.tpot.high), 1e-9);
  EXPECT_EQ(source_name(c.system, kHostSource), "fitted host times of vLLM 0.24.0");
  // What is served has the profile's band on all of it, once.
  const ErrorRange served = served_time_error(*c.engine, rating.errors);
  const ErrorRange prices = time_error(rating.errors.without(kHostSource));
  EXPECT_NEAR(served.high, std::expm1(std::hypot(std::log1p(prices.high), c.engine->error.tpot.high)), 1e-12);
}
TEST(EngineProfile, ItsHostHasTheBandOfItsProfile) {
  for (const bool waited_for : {true, false}) {
    for (const bool calibrated : {true, false}) expect_band_of_host(calibrated, waited_for);
  }
}

// Every group has a scheduler of its own; so the fit counts them (calibrate/validate/served_fit.cpp).
TEST(EngineProfile, ItsHostIsThatOfOneAttentionGroup) {
  Case c = parse_scenario("q.yaml",
                          "name: q\nsystem: h200-hgx\nmodels: [deepseek-r1]\ncontext: 4Ki tokens\n"
                          "precision: {weights: fp8_block, kv: bf16, math: fp8}\nstrategies: [dp_ep]\n"
                          "gpus: [8]\nbatch: [1]\nengine: vllm\n",
                          shipped_catalogs())
               .studies[0]
               .study;
  const Plan plan = parse_plan("dp_ep:dp=8,ep=8,batch=6");
  const StepHost host = c.system.host;
  const auto added = [&](const Plan& p) {
    Case bare = c;
    bare.system.host = {Seconds(0), Seconds(0), Seconds(0), host.launch};
    // Of a step of kernels and host beside each other, squared: what the host adds.
    const auto beside = [](Seconds with, Seconds kernels) {
      return std::sqrt((with.value - kernels.value) * (with.value + kernels.value));
    };
    const double work = beside(Evaluator(c).simulate(p), Evaluator(bare).simulate(p));
    EXPECT_NEAR(beside(Evaluator(c).bound(p), Evaluator(bare).bound(p)), work, 1e-9);
    return work;
  };
  EXPECT_NEAR(added(plan), (host.step + host.request * 6).value, 1e-9);
  // Padded in each group: 8 rows of the head for 6.
  Evaluator e(c);
  e.simulate(plan);
  bool seen = false;
  for (const Op& op : e.schedule().ops) {
    if (std::string_view(op.name) != "lm head") continue;
    EXPECT_EQ(shape<GemmShape>(op).rows, 64);
    seen = true;
  }
  EXPECT_TRUE(seen);
  c.batch = prefill_batch({{0, 1000}});
  EXPECT_NEAR(added(parse_plan("dp_ep:dp=8,ep=8,batch=1")), (host.step + host.prompt_token * 1000).value,
              1e-9);
}

TEST(EngineProfile, TakesTheKernelsOfItsFramework) {
  EXPECT_EQ(study("engine: vllm\n").study.system.kernels.framework, "vllm");
  EXPECT_THAT(message("engine: vllm\nkernels: {framework: sglang}\n"),
              HasSubstr("the kernels are those of engine: vllm"));
  EXPECT_EQ(study("engine: vllm 0.24.0\n").study.engine->version, "0.24.0");
  EXPECT_THAT(message("engine: ideal 3\n"), HasSubstr("ideal has no versions"));
  EXPECT_EQ(study("engine: {name: sglang, version: \"0.5.14\"}\n").study.engine->title, "SGLang");
  EXPECT_EQ(study("engine: ideal\n").study.engine, nullptr);
  EXPECT_EQ(study("engine: vllm\n", {{}, "ideal"}).study.engine, nullptr);
  EXPECT_EQ(study("", {{}, "trtllm 1.3.0rc20"}).study.engine->version, "1.3.0rc20");
}

TEST(EngineProfile, MemoryIsAPartOfAllOrOfWhatIsLeft) {
  EngineProfile p;
  Device d;
  d.memory = Bytes(80e9);
  p.step_tokens = {{architecture_of(d), 1000}};
  p.memory = 0.9;
  p.kept.fixed = Bytes(3e9);
  p.kept.step_token = Bytes(1e6);
  KeptOf of;
  of.step_tokens = 1000;
  const auto room = [&] { return p.room_for_kv(d, Bytes(16e9), Bytes(1e9), of).value; };
  EXPECT_NEAR(room(), 80e9 * 0.9 - 21e9, 1);
  p.memory_rule = MemoryRule::free;
  EXPECT_NEAR(room(), (80e9 - 21e9) * 0.9, 1);
  p.kept.context_of_one = Bytes(5e8);
  EXPECT_NEAR(room(), (80e9 - 21.5e9) * 0.9, 1);
  p.kept.holds_activations = true;  // 4e9 of them hold 1e9
  EXPECT_NEAR(room(), (80e9 - 20.5e9) * 0.9, 1);
}

// SGLang's formula (server_args.py:3276-3315) by hand, in MiB.
TEST(EngineProfile, KeepsWhatItsFormulaSays) {
  const KeptMemory kept = load_engine("sglang", "", shipped_catalogs().engines).kept;
  const auto mib = [&](const KeptOf& of) { return kept.set_aside(of).value / (1 << 20); };
  KeptOf of{1, 1, 8192, 16, false, true};
  EXPECT_NEAR(mib(of), 512 + 1.5 * 8192 + 2 * 16 + 128 + 8 * 58, 1e-6);
  of = {8, 8, 16384, 16, true, false};
  EXPECT_NEAR(mib(of), 512 + 1.5 * 16384 + 2 * 16 + 1024 + 3 * 16 * 8, 1e-6);
  of.requests = 400;
  EXPECT_NEAR(mib(of), 512 + 1.5 * 16384 + 2 * 400 + 1024 + 4.5 * 400 * 8, 1e-6);
  of = {8, 1, 8192, 16, true, true};
  EXPECT_NEAR(mib(of), 512 + 1.5 * 8192 + 2 * 16 + 1024 + 1536, 1e-6);
  of = {1, 1, 100, 1, false, false};
  EXPECT_NEAR(mib(of), 10 * 1024, 1e-6);  // never less
  EXPECT_NEAR(kept.context({}).value, 0.65 * (1 << 30), 1);
}

// Weights of 65.5 GB on an H100 of 84.9: about 17,000 tokens are left, where one number for 8 GPUs left none.
TEST(EngineProfile, SglangServesA32bModelOnOneGpu) {
  Case c =
      parse_scenario("q.yaml",
                     "name: q\nsystem: h100-hgx\nmodels: [qwen3-32b]\ncontext: 1Ki tokens\nengine: sglang\n"
                     "precision: {weights: bf16, kv: bf16, math: bf16}\nstrategies: [tensor]\ngpus: [1]\n"
                     "batch: [1]\n",
                     shipped_catalogs())
          .studies[0]
          .study;
  const int requests = largest_batch(c, parse_plan("tensor:batch=1"), 64);
  EXPECT_GE(requests, 14);
  EXPECT_LE(requests, 18);
}

TEST(EngineProfile, NamesThatNoProfileHas) {
  EXPECT_THAT(message("engine: vlm\n"), HasSubstr("unknown engine vlm"));
  EXPECT_THAT(message("engine: vlm\n"), HasSubstr("did you mean vllm?"));
  EXPECT_THAT(message("engine: {name: vllm, version: \"0.23.0\"}\n"), HasSubstr("no profile of vllm 0.23.0"));
  EXPECT_THAT(message("engine: {name: vllm, release: 1}\n"), HasSubstr("release"));
  // With a workload an engine that nobody named was an error of the program, without one bare kernels.
  for (const char* blank : {"engine: \"\"\n", "engine: \" \"\n", "engine: {name: \"\"}\n",
                            "engine: {name: \" \", version: \"0.24.0\"}\n"})
    EXPECT_THAT(message(blank), HasSubstr("expected the name of an engine, found an empty text")) << blank;
  EXPECT_THAT(message("engine: {name: vllm, version: \" \"}\n"), HasSubstr("expected the name of a version"));
}

TEST(EngineProfile, IsNamedAlikeOnCommandLinesAndInFiles) {
  for (const char* text : {"vllm 0.24.0", "  vllm   0.24.0 ", "vllm\t0.24.0"}) {
    EXPECT_EQ(engine_name(text).name, "vllm") << text;
    EXPECT_EQ(engine_name(text).version, "0.24.0") << text;
    EXPECT_EQ(load_engine(engine_name(text), shipped_catalogs().engines).title, "vLLM") << text;
  }
  for (const char* text : {"vLLM 0.24.0", "vllm==0.24.0", "VLLM/v0.24.0", "vllm:v0.24.0", "vllm@0.24.0"}) {
    EXPECT_EQ(engine_name(text).version, "0.24.0") << text;
    EXPECT_EQ(load_engine(engine_name(text), shipped_catalogs().engines).title, "vLLM") << text;
  }
  for (const char* text : {"trtllm", "TensorRT-LLM", "tensorrt_llm", "TRT-LLM 1.3.0rc20", "TensorRTLLM"})
    EXPECT_EQ(load_engine(engine_name(text), shipped_catalogs().engines).title, "TensorRT-LLM") << text;
  EXPECT_THAT(message("engine: TensorRT-LLM 0.9\n"), HasSubstr("no profile of TensorRT-LLM 0.9"));
  EXPECT_THAT(message("engine: Ideal 2\n"), HasSubstr("ideal has no versions"));
  EXPECT_FALSE(same_engine("vllm", "vllm2"));
  EXPECT_EQ(engine_name("vllm v").version, "v");
  EXPECT_EQ(engine_name(" vllm ").name, "vllm");
  EXPECT_EQ(engine_name(" vllm ").version, "");
  EXPECT_EQ(engine_name("  ").name, "");
}

TEST(EngineProfile, FaultsOfAFileAreLocated) {
  std::string text = "name: x\nversion: \"1\"\ntitle: X\nkernels: vllm\n";
  try {
    parse_engine("x.yaml", text);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("x.yaml"));
    EXPECT_THAT(e.what(), HasSubstr("steps"));
    EXPECT_THAT(e.what(), HasSubstr("memory"));
  }
}

TEST(EngineProfile, AWorkloadNeedsAnEngineAndAModelThatIsLongEnough) {
  std::string q(kQuestion);
  q.erase(q.find("context: 4Ki tokens\n"), std::string("context: 4Ki tokens\n").size());
  const auto said = [&](const std::string& more) -> std::string {
    try {
      parse_scenario("q.yaml", q + more, shipped_catalogs());
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(said("engine: vllm\nworkload: {input: 1Ki tokens, output: 1Ki tokens}\n"), "");
  EXPECT_THAT(said("workload: {input: 1Ki tokens, output: 1Ki tokens}\n"), HasSubstr("served by an engine"));
  EXPECT_THAT(said("engine: vllm\nworkload: {input: 128Ki tokens, output: 1Ki tokens}\n"),
              HasSubstr("llama-3.1-8b is for 131072 at most"));
  EXPECT_THAT(message("engine: vllm\nworkload: {input: 1Ki tokens, output: 1Ki tokens}\n"),
              HasSubstr("context follows from the workload"));
}

}  // namespace
}  // namespace shardline
