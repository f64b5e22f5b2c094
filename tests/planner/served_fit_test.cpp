// calibrate/validate/served_*: an engine's numbers from measured serving [F10].
#include "calibrate/validate/served_fit.hpp"
#include "calibrate/validate/served_tables.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/scenario/shipped.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

const char* const kHeader =
    "system,model,precision,backend,backend_version,isl_tokens,osl_tokens,concurrency,gpus,tp,pp,attn_dp,moe_"
    "tp,"
    "moe_ep,ttft_ms,tpot_ms,measured,source\n";

std::string row(const std::string& model, int users, int tp, double ttft, double tpot) {
  return fmt::format("h100_sxm,{},,vllm,0.24.0,1024,256,{},{},{},1,,1,1,{},{},,gap-analysis/x.csv\n", model,
                     users, tp, tp, ttft, tpot);
}

TEST(ServedRows, AreReadWithTheirLayoutsAndLengths) {
  const ServedTable t = parse_served_rows(
      "x.csv",
      std::string(kHeader) +
          "h200_sxm,deepseek-ai/DeepSeek-R1,fp8,trtllm,,8192,1024,64,8,8,1,1,8,1,4995,48.3,2025-11-02,a.csv\n"
          "h200_sxm,deepseek-ai/DeepSeek-R1,fp8,trtllm,,1024,1024,8,8,8,1,1,8,1,290,16.4,2025-11-02,a.csv\n" +
          row("meta-llama/Llama-3.1-8B-Instruct", 4, 2, 40, 5));
  ASSERT_EQ(t.rows.size(), 3u);
  EXPECT_EQ(t.rows[0].plan, "dp_ep:dp=8,ep=8,batch=1");
  EXPECT_EQ(t.rows[1].plan, "tensor:tpa=8,ep=8,batch=1");
  EXPECT_EQ(t.rows[2].plan, "tensor:tpa=2,tpf=2,batch=1");
  EXPECT_DOUBLE_EQ(t.rows[1].input, 1024 * 0.9);
  EXPECT_DOUBLE_EQ(t.rows[2].input, 1024);
  EXPECT_TRUE(t.rows[2].equal_lengths);
  EXPECT_EQ(t.rows[0].ttft, 0) << "servers that were not warm";
}

TEST(ServedRows, ThatSayNothingAreLeftOutWithAReason) {
  const ServedTable t = parse_served_rows(
      "x.csv",
      std::string(kHeader) +
          "h200_sxm,deepseek-ai/"
          "DeepSeek-R1,fp8,trtllm,1.1.0rc2.post2,1024,1024,4,8,8,1,1,1,8,494,8.6,2026-01-14,a.csv\n"
          "h100_sxm,openai/gpt-oss-120b,fp4,vllm,,1024,1024,512,8,8,1,1,8,1,22295,5.3,2025-12-05,a.csv\n"
          "h100_sxm,someone/Unknown-7B,,vllm,,1024,1024,512,8,8,1,1,8,1,22295,5.3,2025-12-05,a.csv\n"
          "h100_sxm,openai/gpt-oss-120b,fp4,vllm,$(touch "
          "ran),1024,1024,16,8,8,1,1,8,1,222,5.3,2025-12-05,a.csv\n");
  EXPECT_TRUE(t.rows.empty());
  ASSERT_EQ(t.left_out.size(), 4u);
  EXPECT_THAT(t.left_out[0].reason, HasSubstr("multi-token prediction"));
  EXPECT_THAT(t.left_out[1].reason, HasSubstr("wrong number of users"));
  EXPECT_THAT(t.left_out[2].reason, HasSubstr("someone/Unknown-7B"));
  EXPECT_THAT(t.left_out[3].reason, HasSubstr("is no version"));
  EXPECT_EQ(t.left_out[0].engine, "trtllm");
  EXPECT_EQ(t.left_out[2].engine, "vllm");
}

// Versions and scripts that differ from what profiles say, as their sources have it.
TEST(ServedRows, AreOfEnginesAsTheyWereStarted) {
  const auto of = [](const char* engine, const char* version, const char* model, const char* source) {
    return parse_served_rows(
               "x.csv", std::string(kHeader) +
                            fmt::format("h200_sxm,{},fp8,{},{},1024,1024,16,8,8,1,1,8,1,90,9,2025-10-29,{}\n",
                                        model, engine, version, source))
        .rows.at(0);
  };
  const char* const llama = "meta-llama/Llama-3.1-70B";
  const char* const gap = "gap-analysis/x.csv";
  // Whose kernels wait for the host, by the version of the row.
  const auto waits = [&](const char* engine, const char* version) {
    return as_started(load_engine(engine, "", shipped_catalogs().engines), of(engine, version, llama, gap))
        .host_waited_for;
  };
  EXPECT_TRUE(waits("vllm", "0.12.0"));
  EXPECT_TRUE(waits("vllm", "0.9.2"));
  EXPECT_FALSE(waits("vllm", "0.14.0"));
  EXPECT_FALSE(waits("vllm", "0.18.0"));
  EXPECT_FALSE(waits("vllm", ""));  // --async-scheduling
  EXPECT_TRUE(waits("sglang", "0.3.6"));
  EXPECT_FALSE(waits("sglang", "0.5.1.post1"));
  EXPECT_TRUE(waits("trtllm", "0.19.0"));
  EXPECT_FALSE(waits("trtllm", "1.0.0rc3"));
  EXPECT_FALSE(of("sglang", "0.5.1.post1", llama, gap).mixes_prompts);
  EXPECT_TRUE(of("sglang", "0.5.6.post2", llama, gap).mixes_prompts);
  EXPECT_FALSE(of("sglang", "0.5.9", "deepseek-ai/DeepSeek-R1", "a.csv").mixes_prompts);
  EXPECT_EQ(of("sglang", "0.5.9", "deepseek-ai/DeepSeek-R1", "a.csv").step_tokens, 32768);
  EXPECT_EQ(of("trtllm", "", "deepseek-ai/DeepSeek-R1", "a.csv").step_tokens, 1152);  // 16 + 1024 + 64
  EXPECT_EQ(of("trtllm", "", llama, "a.csv").step_tokens, 16384);
  // One prompt beside all users; TensorRT-LLM without chunks.
  EXPECT_EQ(of("trtllm", "1.0.0rc3", llama, gap).step_tokens, 1152);
  EXPECT_EQ(of("vllm", "0.12.0", llama, gap).step_tokens, 1152);
  EXPECT_TRUE(of("trtllm", "1.0.0rc3", llama, gap).whole_prompts);
  EXPECT_FALSE(of("trtllm", "", llama, "a.csv").whole_prompts);
  EXPECT_FALSE(of("vllm", "0.12.0", llama, gap).whole_prompts);
  EXPECT_EQ(of("sglang", "0.5.8", llama, gap).step_tokens, 0);
  EXPECT_EQ(of("sglang", "0.5.9", "deepseek-ai/DeepSeek-R1", "a.csv").memory, 0.82);
  EXPECT_EQ(of("trtllm", "", "deepseek-ai/DeepSeek-R1", "a.csv").memory, 0.75);
  EXPECT_EQ(of("vllm", "", llama, "a.csv").memory, 0.9);
  EXPECT_EQ(of("vllm", "0.12.0", llama, gap).memory, 0);
  // Experts by a kernel that was not measured on their shapes: no TTFT of it is used.
  EXPECT_EQ(of("vllm", "0.18.0", "openai/gpt-oss-120b", "a.csv").ttft, 0);
  EXPECT_GT(of("vllm", "0.11.2", "openai/gpt-oss-120b", "a.csv").ttft, 0);
  EXPECT_GT(of("trtllm", "1.3.0rc1", "openai/gpt-oss-120b", gap).ttft, 0);
  ServedRow row = of("sglang", "0.5.6.post2", llama, gap);
  row.step_tokens = 4096;
  const EngineProfile started = as_started(load_engine("sglang", "", shipped_catalogs().engines), row);
  EXPECT_EQ(started.prefill, PrefillPolicy::mixed);
  EXPECT_EQ(started.step_tokens.at(Architecture::hopper), 4096);
}

// Requests of a user: what the digits of AIConfigurator's means say, and ten by InferenceX's scripts.
TEST(ServedRows, HaveAsManyRequestsAsTheirMeansAreOf) {
  const auto rounds = [](const char* engine, const char* version, int users, const char* source) {
    return parse_served_rows(
               "x.csv", std::string(kHeader) + fmt::format("h200_sxm,meta-llama/"
                                                           "Llama-3.1-70B,fp8,{},{},1024,1024,{},8,8,1,1,8,1,"
                                                           "90,9,2025-10-29,{}\n",
                                                           engine, version, users, source))
        .rows.at(0)
        .rounds;
  };
  const char* const gap = "gap-analysis/x.csv";
  EXPECT_EQ(rounds("vllm", "0.12.0", 128, gap), 10);
  EXPECT_EQ(rounds("trtllm", "1.0.0rc3", 64, gap), 20);
  EXPECT_EQ(rounds("trtllm", "1.0.0rc3", 128, gap) * 128, 2000);
  EXPECT_EQ(rounds("sglang", "0.5.1.post1", 128, gap) * 128, 2000);
  EXPECT_EQ(rounds("sglang", "0.5.6.post2", 128, gap), 10) << "rounded: nothing is known";
  EXPECT_EQ(rounds("trtllm", "1.0.0rc3", 64, "a.csv"), 10);
}

// DeepSeek-R1 on 8 H200 with 0.82 of their memory: SGLang had room for 509,000 tokens
// (ai-dynamo/aisimulate#263).
TEST(ServedRows, RoomIsThatOfARealServer) {
  const std::vector<ServedRow> rows =
      parse_served_rows("x.csv", std::string(kHeader) +
                                     "h200_sxm,deepseek-ai/"
                                     "DeepSeek-R1,fp8,sglang,0.5.9,8192,1024,4096,8,8,1,1,8,1,"
                                     "1000,50,2026-03-25,a.csv\n")
          .rows;
  const std::vector<TimedRow> timed =
      time_rows(rows, load_engine("sglang", "", shipped_catalogs().engines), shipped_catalogs());
  ASSERT_EQ(timed.size(), 1u);
  const double held = rows[0].input + rows[0].output / 2;  // of a request, on average
  EXPECT_NEAR(timed[0].kernels.room * held, 509e3, 0.04 * 509e3);
}

TEST(ServedRows, FaultsAreLocated) {
  try {
    parse_served_rows("x.csv", std::string(kHeader) + row("meta-llama/Llama-3.1-8B-Instruct", 4, 2, 40, 5) +
                                   "h100_sxm,x,,vllm,1,many,2,3,4,5,6,7,8,9,10,11,12,13\nshort\n");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("x.csv:3:"));
    EXPECT_THAT(e.what(), HasSubstr("isl_tokens"));
    EXPECT_THAT(e.what(), HasSubstr("x.csv:4:"));
  }
  EXPECT_THROW(parse_served_rows("x.csv", "system,model\n"), UserError);
}

// What an engine with known host times serves: its numbers come back, also with models left out.
TEST(ServedFit, FindsTheNumbersThatMadeTheRows) {
  EngineProfile engine = load_engine("vllm", "", shipped_catalogs().engines);
  std::string text = kHeader;
  for (const char* model : {"meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B"}) {
    for (const int tp : {2, 4, 8}) {
      for (const int users : {1, 2, 4, 16, 64}) text += row(model, users, tp, 1, 1);
    }
  }
  std::vector<TimedRow> rows = time_rows(parse_served_rows("x.csv", text).rows, engine, shipped_catalogs());
  ASSERT_EQ(rows.size(), 30u);
  engine.host = {Seconds(4e-4), Seconds(2e-5), Seconds(0), Seconds(0.03)};
  for (TimedRow& r : rows) {
    const Served s = steady_serving(engine, r.load, with_host(r, engine));
    r.row.tpot = s.tpot.value;
    r.row.ttft = s.ttft.value;
  }
  const ServedFit fit = fit_engine(rows);
  EXPECT_NEAR(fit.host.step.value, 4e-4, 4e-6);
  EXPECT_NEAR(fit.host.request.value, 2e-5, 4e-7);
  EXPECT_EQ(fit.host.prompt_token, Seconds(0));
  EXPECT_NEAR(fit.host.path.value, 0.03, 3e-4);
  ASSERT_EQ(fit.models.size(), 2u);
  for (const LeftOutModel& m : fit.models) EXPECT_LT(served_error("", m.tpot).p90, 0.02) << m.label;
  // Of all users, though only few are fitted to; lengths were equal.
  EXPECT_EQ(fit.bands.equal.rows, 30);
  EXPECT_EQ(fit.bands.drawn.rows, 0);
  EXPECT_LT(fit.bands.equal.band.high, 0.05);
  // By users; of a few of them whatever the lengths, of others nothing that was not measured.
  EXPECT_EQ(fit.bands.ttft(true, 1).rows, 18);
  EXPECT_EQ(fit.bands.ttft(false, 4).rows, 18);
  EXPECT_EQ(fit.bands.ttft(true, 16).rows, 6);
  EXPECT_EQ(fit.bands.ttft(false, 16).rows, 0);
  EXPECT_EQ(fit.bands.ttft(true, 65).rows, 0);
}

// Three models under an engine with known host times.
std::vector<TimedRow> three_models() {
  EngineProfile engine = load_engine("vllm", "", shipped_catalogs().engines);
  std::string text = kHeader;
  for (const char* model :
       {"meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B-Instruct"}) {
    for (const int tp : {4, 8}) {
      for (const int users : {1, 4, 16, 32}) text += row(model, users, tp, 1, 1);
    }
  }
  std::vector<TimedRow> rows = time_rows(parse_served_rows("x.csv", text).rows, engine, shipped_catalogs());
  engine.host = {Seconds(4e-4), Seconds(2e-5), Seconds(0), Seconds(0.03)};
  for (TimedRow& r : rows) {
    const Served s = steady_serving(engine, r.load, with_host(r, engine));
    r.row.tpot = s.tpot.value;
    r.row.ttft = s.ttft.value;
  }
  return rows;
}

// Nothing of a model left out is in its prediction.
TEST(ServedFit, F10NothingOfAModelLeftOutIsInItsPrediction) {
  const std::vector<TimedRow> own = three_models();
  const ServedFit before = fit_engine(own);
  ASSERT_EQ(before.models.size(), 3u);
  for (const LeftOutModel& left : before.models) {
    std::vector<TimedRow> changed = own;
    for (TimedRow& r : changed) {
      if (r.row.label == left.label) r.row.tpot *= 1 + 0.02 * r.load.users, r.row.ttft *= 3;
    }
    const ServedFit after = fit_engine(changed);
    for (const LeftOutModel& m : after.models) {
      if (m.label != left.label) continue;
      EXPECT_EQ(m.host.step, left.host.step);
      EXPECT_EQ(m.host.request, left.host.request);
      EXPECT_EQ(m.host.path, left.host.path);
      for (std::size_t i = 0; i < m.rows.size(); ++i)
        EXPECT_NEAR(m.tpot[i] * m.rows[i]->row.tpot / (left.tpot[i] * left.rows[i]->row.tpot), 1, 1e-12);
    }
  }
}

// How many TTFT lie inside the band that the other models make, counted from the ratios themselves.
TEST(ServedFit, F10CoverageOfTtftIsThatOfModelsLeftOut) {
  std::vector<TimedRow> rows = three_models();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].row.label.starts_with("qwen")) rows[i].row.ttft *= 2;
    rows[i].row.ttft *= 1 + 0.01 * static_cast<double>(i % 5);
  }
  const ServedFit fit = fit_engine(rows);
  ASSERT_EQ(fit.ttft_covered.size(), 4u);  // of three numbers of users, and of all
  const ServedCoverage& few = fit.ttft_covered.front();
  EXPECT_EQ(few.of, "TTFT (any lengths) of at most 4 users");
  EXPECT_EQ(few.rows, 12);
  EXPECT_EQ(few.models, 3);
  int inside = 0;
  for (const LeftOutModel& m : fit.models) {
    std::vector<double> others;
    for (const LeftOutModel& o : fit.models) {
      for (std::size_t i = 0; i < o.rows.size(); ++i) {
        if (o.label != m.label && o.rows[i]->row.users <= 4) others.push_back(-std::log(o.ttft[i]));
      }
    }
    // Of eight rows 5 and 95 % are the least and the most; of two models they are widened by a half.
    const auto [low, high] = std::minmax_element(others.begin(), others.end());
    const ErrorBand band = ErrorBand{*low, *high}.widened(1.5);
    for (std::size_t i = 0; i < m.rows.size(); ++i)
      inside += m.rows[i]->row.users <= 4 && band.contains(-std::log(m.ttft[i])) ? 1 : 0;
  }
  EXPECT_NEAR(few.covered, inside / 12.0, 1e-9);
  EXPECT_LT(few.covered, 1) << "one model of three is twice as long";
  EXPECT_EQ(few.counted, 12);
  // Of more users each of two other models has two rows, which make no band.
  for (std::size_t i = 1; i + 1 < fit.ttft_covered.size(); ++i) {
    EXPECT_EQ(fit.ttft_covered[i].rows, 6);
    EXPECT_EQ(fit.ttft_covered[i].counted, 0);
    EXPECT_LT(fit.ttft_covered[i].covered, 0);
  }
  EXPECT_EQ(fit.ttft_covered.back().rows, 12);
  EXPECT_NEAR(fit.ttft_covered.back().covered, few.covered, 1e-9);
}

// Rows of which some users' caches are taken away make no band of TTFT, whatever their TTFT is, and are
// listed by themselves; a band names the models that it is of.
TEST(ServedFit, F10CappedRowsMakeNoBandOfTtft) {
  std::vector<TimedRow> rows = three_models();
  const ServedFit before = fit_engine(rows);
  int capped = 0;
  for (TimedRow& r : rows) {
    if (r.row.users != 16 || r.row.label != "qwen3-32b") continue;
    r.preempts = true;
    r.row.ttft *= 9;
    ++capped;
  }
  ASSERT_EQ(capped, 2);
  const ServedFit after = fit_engine(rows);
  const TtftBand *had = before.bands.ttft_band(true, 16), *has = after.bands.ttft_band(true, 16);
  ASSERT_NE(had, nullptr);
  ASSERT_NE(has, nullptr);
  EXPECT_EQ(had->measured.rows, 6);
  EXPECT_EQ(has->measured.rows, 4);
  EXPECT_EQ(had->models.size(), 3u);
  EXPECT_THAT(has->models, ::testing::UnorderedElementsAre("llama-3.1-8b", "llama-3.1-70b"));
  EXPECT_LT(has->measured.band.high, 0.1) << "ln 9 is 2.2";
  const auto listed = std::find_if(after.bands.tables.begin(), after.bands.tables.end(),
                                   [](const ServedError& e) { return e.of == "TTFT of memory-capped rows"; });
  ASSERT_NE(listed, after.bands.tables.end());
  EXPECT_EQ(listed->rows, 2);
  EXPECT_LT(listed->bias, -0.85);
}

// The kind of host is the one of the rows' engines, no matter which one errs less: of rows made by the other
// one it stays, and what the other would err is said beside it.
TEST(ServedFit, F10TheKindOfHostIsNotChosenByRows) {
  std::vector<TimedRow> rows = three_models();
  const ServedFit own = fit_engine(rows);
  EXPECT_EQ(own.other_host.rows, 24);
  const auto all = [](const ServedFit& fit) {
    return *std::find_if(fit.bands.tables.begin(), fit.bands.tables.end(),
                         [](const ServedError& e) { return e.of == "TPOT of all rows"; });
  };
  EXPECT_LT(all(own).p90, 0.01);
  EXPECT_GT(own.other_host.p90, 0.01);
  EngineProfile waits = *rows.front().engine;
  waits.host_waited_for = true;
  waits.host = {Seconds(4e-3), Seconds(2e-5), Seconds(0), Seconds(0.03)};
  for (TimedRow& r : rows) {
    const Served s = steady_serving(waits, r.load, with_host(r, waits));
    r.row.tpot = s.tpot.value;
    r.row.ttft = s.ttft.value;
  }
  const ServedFit other = fit_engine(rows);
  EXPECT_LT(other.other_host.p90, 0.01);
  EXPECT_GT(all(other).p90, 2 * other.other_host.p90);
  EXPECT_GT(all(other).p90, 0.02);
}

// The times that the fit adds by hand are those of lowered steps.
TEST(ServedFit, AddsHostTimesAsLoweringDoes) {
  struct Started {
    std::string name, version;
  };
  for (const auto& [name, version] : {Started{"vllm", "0.24.0"}, Started{"vllm", "0.12.0"},
                                      Started{"sglang", "0.5.1"}, Started{"sglang", "0.5.8"}}) {
    SCOPED_TRACE(name + version);
    EngineProfile engine = load_engine(name, "", shipped_catalogs().engines);
    engine.host = {Seconds(4e-4), Seconds(2e-5), Seconds(3e-6), Seconds(0.03)};
    std::string text = kHeader;
    for (const int users : {1, 16}) text += row("meta-llama/Llama-3.1-8B-Instruct", users, 2, 1, 1);
    const std::string given = ",vllm,0.24.0,", wanted = "," + name + "," + version + ",";
    for (std::size_t at = text.find(given); at != std::string::npos; at = text.find(given, at + 1))
      text.replace(at, given.size(), wanted);
    for (const TimedRow& r : time_rows(parse_served_rows("x.csv", text).rows, engine, shipped_catalogs())) {
      const EngineProfile started = as_started(engine, r.row);
      Case c = parse_scenario(
                   "s",
                   fmt::format("name: s\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\ncontext: 1024 tokens\n"
                               "precision: {}\nengine: {}\nstrategies: [tensor]\ngpus: [1]\nbatch: [1]\n",
                               r.row.precision, name),
                   shipped_catalogs())
                   .studies[0]
                   .study;
      c.engine = std::make_shared<const EngineProfile>(started);
      c.system.host = {engine.host.step, engine.host.request, engine.host.prompt_token,
                       engine.launch_time(c.system.device)};
      ServedEvaluator evaluator(c, AllReduceRule::fastest);
      const ServedPlan lowered =
          evaluator.of(parse_plan(r.row.plan), {1024, 256, static_cast<long long>(r.row.users), true, 0});
      const ServedTimes by_hand = with_host(r, started);
      EXPECT_NEAR(lowered.times.decode.value, by_hand.decode.value, 1e-9) << r.row.users;
      EXPECT_NEAR(lowered.times.prompt.value, by_hand.prompt.value, 1e-9) << r.row.users;
      EXPECT_NEAR(lowered.times.prompt_added.value, by_hand.prompt_added.value, 1e-9) << r.row.users;
    }
  }
}

}  // namespace
}  // namespace shardline
