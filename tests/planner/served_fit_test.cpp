// calibrate/validate/served_*: an engine's numbers from measured serving [F10].
#include "calibrate/validate/served_fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
          "h100_sxm,someone/Unknown-7B,,vllm,,1024,1024,512,8,8,1,1,8,1,22295,5.3,2025-12-05,a.csv\n");
  EXPECT_TRUE(t.rows.empty());
  ASSERT_EQ(t.left_out.size(), 3u);
  EXPECT_THAT(t.left_out[0].reason, HasSubstr("multi-token prediction"));
  EXPECT_THAT(t.left_out[1].reason, HasSubstr("wrong number of users"));
  EXPECT_THAT(t.left_out[2].reason, HasSubstr("someone/Unknown-7B"));
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
  engine.host = {Seconds(4e-4), Seconds(2e-5), Seconds(3e-6), Seconds(0.03)};
  for (TimedRow& r : rows) {
    const Served s = steady_serving(engine, r.load, with_host(r, engine));
    r.row.tpot = s.tpot.value;
    r.row.ttft = s.ttft.value;
  }
  const ServedFit fit = fit_engine(rows, engine);
  EXPECT_NEAR(fit.host.step.value, 4e-4, 4e-6);
  EXPECT_NEAR(fit.host.request.value, 2e-5, 4e-7);
  EXPECT_NEAR(fit.host.prompt_token.value, 3e-6, 1e-7);
  EXPECT_NEAR(fit.host.path.value, 0.03, 3e-4);
  ASSERT_EQ(fit.models.size(), 2u);
  for (const LeftOutModel& m : fit.models) EXPECT_LT(served_error("", m.tpot).p90, 0.02) << m.label;
}

// The times that the fit adds by hand are those of lowered steps.
TEST(ServedFit, AddsHostTimesAsLoweringDoes) {
  for (const char* name : {"vllm", "sglang"}) {
    EngineProfile engine = load_engine(name, "", shipped_catalogs().engines);
    engine.host = {Seconds(4e-4), Seconds(2e-5), Seconds(3e-6), Seconds(0.03)};
    std::string text = kHeader;
    for (const int users : {1, 16}) text += row("meta-llama/Llama-3.1-8B-Instruct", users, 2, 1, 1);
    for (std::size_t at = text.find("vllm"); at != std::string::npos; at = text.find("vllm", at + 1))
      text.replace(at, 4, name);
    for (const TimedRow& r : time_rows(parse_served_rows("x.csv", text).rows, engine, shipped_catalogs())) {
      Case c = parse_scenario(
                   "s",
                   fmt::format("name: s\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\ncontext: 1024 tokens\n"
                               "precision: {}\nengine: {}\nstrategies: [tensor]\ngpus: [1]\nbatch: [1]\n",
                               r.row.precision, name),
                   shipped_catalogs())
                   .studies[0]
                   .study;
      c.engine = std::make_shared<const EngineProfile>(engine);
      c.system.host = {engine.host.step, engine.host.request, engine.host.prompt_token,
                       engine.launch_time(c.system.device)};
      ServedEvaluator evaluator(c, AllReduceRule::fastest);
      const ServedPlan lowered =
          evaluator.of(parse_plan(r.row.plan), {1024, 256, static_cast<long long>(r.row.users), true, 0});
      const ServedTimes by_hand = with_host(r, engine);
      EXPECT_NEAR(lowered.times.decode.value, by_hand.decode.value, 1e-9) << name << r.row.users;
      EXPECT_NEAR(lowered.times.prompt.value, by_hand.prompt.value, 1e-9) << name << r.row.users;
      EXPECT_NEAR(lowered.times.prompt_added.value, by_hand.prompt_added.value, 1e-9) << name << r.row.users;
    }
  }
}

}  // namespace
}  // namespace shardline
