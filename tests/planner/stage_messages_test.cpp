// What stages of a pipeline hand on: hidden states, residuals under engines, the choice of an index.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "planner/layers/stages.hpp"
#include "tests/planner/cache_pools.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

// Bytes of a rank's messages by name, of one pass of each block, and how often blocks of those names run.
struct Handed {
  std::map<std::string, double> bytes, runs;
};

Handed handed(const Case& c, const char* plan) {
  const Schedule s = lowered(c, plan);
  const std::vector<double> times = executions(s);
  Handed out;
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex op = s.blocks[b].first; op < s.blocks[b].last; ++op) {
      if (s.ops[op].part != Part::hop) continue;
      out.bytes[s.ops[op].name] = message_bytes(s.ops[op]).value;
      out.runs[s.ops[op].name] += times[b];
    }
  }
  return out;
}

Case glm(const char* engine) {
  Case c = decode_case("glm-5.2", "gb200-nvl72", 100'000);
  if (engine != nullptr) c.engine = engine_named(engine);
  return c;
}

// GLM-5.2 has 78 layers, of which 0, 1, 2 and every fourth from 6 on choose 2,048 tokens themselves: of two
// stages the second begins on layer 39, of six on 13, 26, 39, 52 and 65, of which 26 is one that chooses.
TEST(StageMessages, ChoicesGoWhereALayerTakesThem) {
  for (const char* engine : {static_cast<const char*>(nullptr), "sglang"}) {
    const Case c = glm(engine);
    const Handed two = handed(c, "pipeline:pp=2,tpa=8,ep=8,batch=8");
    const double choice = 8 * 2048 * 4.0 / 8;
    EXPECT_DOUBLE_EQ(two.bytes.at("hand-off choice"), choice);
    EXPECT_DOUBLE_EQ(two.bytes.at("gather choice"), choice);
    EXPECT_EQ(two.runs.at("hand-off choice"), 1);
    EXPECT_EQ(two.runs.at("gather choice"), 1);
    const Handed six = handed(c, "pipeline:pp=6,tpa=8,ep=8,batch=8");
    EXPECT_EQ(six.runs.at("hand-off choice"), 4);
    EXPECT_EQ(six.runs.at("gather choice"), 4);
    EXPECT_EQ(six.runs.at("gather hand-off"), 5);
  }
}

TEST(StageMessages, EnginesThatHandNoChoiceOnSendNone) {
  for (const char* engine : {"vllm", "trtllm"})
    EXPECT_EQ(handed(glm(engine), "pipeline:pp=2,tpa=8,ep=8,batch=8").bytes.count("hand-off choice"), 0);
  const Case v32 = decode_case("deepseek-v3.2", "gb200-nvl72", 100'000);
  EXPECT_EQ(handed(v32, "pipeline:pp=2,tpa=8,ep=8,batch=8").bytes.count("hand-off choice"), 0);
}

// A prompt in chunks hands on the choices of each chunk's tokens.
TEST(StageMessages, ChunksOfPromptsHandTheirOwnChoicesOn) {
  Case c = glm("sglang");
  c.batch = prefill_batch({{0, 8'192}});
  const Handed whole = handed(c, "pipeline:pp=2,tpa=8,ep=8,batch=1");
  EXPECT_DOUBLE_EQ(whole.bytes.at("hand-off choice") * 8, 8'192 * 2048 * 4.0);
  const Handed chunks = handed(c, "pipeline:pp=2,tpa=8,ep=8,batch=1,prefill_chunk=2048");
  EXPECT_DOUBLE_EQ(chunks.bytes.at("hand-off choice") * 8, 2'048 * 2048 * 4.0);
  EXPECT_EQ(chunks.runs.at("hand-off choice"), 4);
}

// Hidden states and residuals, each rank its slice or the whole: nothing is gathered of that.
TEST(StageMessages, EnginesHandResidualsOnAsTheirProfilesSay) {
  Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 100'000);
  const char* plan = "pipeline:pp=4,tpa=8,tpf=8,batch=8";
  const double whole = 8 * 16384.0 * 2;
  EXPECT_EQ(handed(c, plan).bytes.count("hand-off residual"), 0);
  for (const char* engine : {"vllm", "sglang"}) {
    c.engine = engine_named(engine);
    const Handed h = handed(c, plan);
    for (const char* name : {"hand-off", "hand-off residual", "gather hand-off", "gather residual"})
      EXPECT_DOUBLE_EQ(h.bytes.at(name) * 8, whole) << engine << " " << name;
  }
  c.engine = engine_named("trtllm");
  const Handed h = handed(c, plan);
  EXPECT_DOUBLE_EQ(h.bytes.at("hand-off"), whole);
  EXPECT_DOUBLE_EQ(h.bytes.at("hand-off residual"), whole);
  EXPECT_EQ(h.bytes.count("gather hand-off"), 0);
  EXPECT_EQ(h.bytes.count("gather residual"), 0);
}

// The streams of hyper-connections are the residual.
TEST(StageMessages, StreamsAreOneMessage) {
  Case c = decode_case("deepseek-v4-flash", "gb200-nvl72", 100'000);
  c.engine = engine_named("sglang");
  const Handed h = handed(c, "pipeline:pp=2,tpa=4,ep=4,batch=8");
  EXPECT_DOUBLE_EQ(h.bytes.at("hand-off") * 4, 8.0 * 4 * c.model.hidden * 2);
  EXPECT_EQ(h.bytes.count("hand-off residual"), 0);
}

std::vector<int> layers_of_stages(const Case& c, int stages) {
  std::vector<int> out;
  for (int s = 0; s < stages; ++s) {
    const auto [first, end] = layers_of_stage(c, stages, s);
    EXPECT_EQ(first, std::accumulate(out.begin(), out.end(), 0));
    out.push_back(end - first);
  }
  return out;
}

// 61 and 94 layers over 4 stages as vllm-project/vllm#46217 lists both splits, which engines have of them.
TEST(StageMessages, LayersThatAreLeftOverLieWhereTheEngineHasThem) {
  struct Split {
    const char* engine;
    std::vector<int> of_61, of_94;
  };
  for (const Split& split : {Split{nullptr, {16, 15, 15, 15}, {24, 24, 23, 23}},
                             Split{"trtllm", {16, 15, 15, 15}, {24, 24, 23, 23}},
                             Split{"vllm", {15, 15, 16, 15}, {23, 24, 24, 23}},
                             Split{"sglang", {15, 15, 15, 16}, {23, 23, 24, 24}}}) {
    Case r1 = decode_case("deepseek-r1", "gb200-nvl72", 1'000),
         qwen = decode_case("qwen3-235b-a22b", "gb200-nvl72", 1'000);
    if (split.engine != nullptr) r1.engine = qwen.engine = engine_named(split.engine);
    EXPECT_EQ(layers_of_stages(r1, 4), split.of_61);
    EXPECT_EQ(layers_of_stages(qwen, 4), split.of_94);
    for (int stages = 1; stages <= 61; ++stages) {
      const std::vector<int> all = layers_of_stages(r1, stages);
      EXPECT_EQ(std::accumulate(all.begin(), all.end(), 0), 61) << stages;
      EXPECT_LE(*std::max_element(all.begin(), all.end()), *std::min_element(all.begin(), all.end()) + 1);
    }
  }
}

}  // namespace
}  // namespace shardline
