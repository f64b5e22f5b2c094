// Rows of served loops: which are used, and of which engine as it was started.
#include "calibrate/validate/served_rows.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/validate/served_fit.hpp"
#include "planner/scenario/shipped.hpp"
#include "tests/planner/served_rows.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ServedRows, AreReadWithTheirLayoutsAndLengths) {
  const ServedTable t = parse_served_rows(
      "x.csv",
      std::string(kServedHeader) +
          "h200_sxm,deepseek-ai/DeepSeek-R1,fp8,trtllm,,8192,1024,64,8,8,1,1,8,1,4995,48.3,2025-11-02,a.csv\n"
          "h200_sxm,deepseek-ai/DeepSeek-R1,fp8,trtllm,,1024,1024,8,8,8,1,1,8,1,290,16.4,2025-11-02,a.csv\n" +
          served_row("meta-llama/Llama-3.1-8B-Instruct", 4, 2, 40, 5));
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
      std::string(kServedHeader) +
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

// A header with a name twice has one name fewer than cells: of a row of as many cells as names, the last
// column would be read from behind its end.
TEST(ServedRows, OfColumnsThatStandTwiceAreRefused) {
  const std::string cells =
      "h200_sxm,deepseek-ai/DeepSeek-R1,fp8,trtllm,,8192,1024,64,8,8,1,1,8,1,4995,48.3,2025-11-02,a.csv\n";
  EXPECT_THAT([&] { parse_served_rows("x.csv", std::string("system,") + kServedHeader + cells); },
              ThrowsMessage<UserError>(HasSubstr("column system stands twice")));
}

// Products of the parts of a layout stay numbers.
TEST(ServedRows, OfMoreGpusThanThereAreAreRefused) {
  const std::string cells =
      "h200_sxm,deepseek-ai/DeepSeek-R1,fp8,trtllm,,8192,1024,64,8,99999,99999,99999,8,1,4995,48.3,,a.csv\n";
  EXPECT_THAT([&] { parse_served_rows("x.csv", kServedHeader + cells); },
              ThrowsMessage<UserError>(HasSubstr("tp: expected an integer from 1 to 10000, found 99999")));
}

// Versions and scripts that differ from what profiles say, as their sources have it.
TEST(ServedRows, AreOfEnginesAsTheyWereStarted) {
  const auto of = [](const char* engine, const char* version, const char* model, const char* source) {
    return parse_served_rows(
               "x.csv", std::string(kServedHeader) +
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
    return parse_served_rows("x.csv", std::string(kServedHeader) +
                                          fmt::format("h200_sxm,meta-llama/"
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
      parse_served_rows("x.csv", std::string(kServedHeader) +
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
    parse_served_rows("x.csv", std::string(kServedHeader) +
                                   served_row("meta-llama/Llama-3.1-8B-Instruct", 4, 2, 40, 5) +
                                   "h100_sxm,x,,vllm,1,many,2,3,4,5,6,7,8,9,10,11,12,13\nshort\n");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("x.csv:3:"));
    EXPECT_THAT(e.what(), HasSubstr("isl_tokens"));
    EXPECT_THAT(e.what(), HasSubstr("x.csv:4:"));
  }
  EXPECT_THROW(parse_served_rows("x.csv", "system,model\n"), UserError);
}

TEST(ServedRows, FiftyFaultsAreEnough) {
  std::string text(kServedHeader);
  for (int i = 0; i < 1000; ++i) text += "bad,row\n";
  try {
    parse_served_rows("x.csv", text);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.diagnostics().size(), 51u);
    EXPECT_THAT(e.what(), HasSubstr("x.csv: what follows line 51 was not read"));
  }
}

}  // namespace
}  // namespace shardline
