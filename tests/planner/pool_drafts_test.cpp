// Pools whose servers draft [P22], [P29]: what one for prompts computes and keeps for the drafts of another,
// what it hands over, and how fast a pair answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>

#include "planner/engines/launch_files.hpp"
#include "planner/handoff/transfer.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/memory.hpp"
#include "planner/serving/pools.hpp"
#include "planner/studies/handoff_study.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/launchable.hpp"
#include "tests/planner/pool_play.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using namespace testing;

constexpr int kOutput = 256;

// Drafts to try: a list, or nothing, for plans without any.
Study r1(const std::string& engine, const std::string& acceptance, const std::string& drafts) {
  const std::string asked =
      drafts.empty()
          ? ""
          : fmt::format("options: {{drafts: {}}}\nspeculative: {{acceptance: {}}}\n", drafts, acceptance);
  return parse_scenario("q.yaml",
                        fmt::format("name: q\nsystem: h200-hgx\nmodels: [deepseek-r1]\nengine: {}\n"
                                    "precision: {{weights: fp8_block, kv: bf16, math: fp8}}\n"
                                    "strategies: [tensor]\ngpus: [8]\nbatch: [4, 32]\n"
                                    "workload: {{input: 2Ki tokens, output: {} tokens}}\n{}",
                                    engine, kOutput, asked),
                        shipped_catalogs())
      .studies[0];
}

double operations(const Case& c, const Plan& plan) {
  Schedule s;
  lower(s, c, plan);
  const std::vector<double> times = executions(s);
  double out = 0;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[BlockIndex(static_cast<std::uint32_t>(b))];
    for (OpIndex i = block.first; i < block.last; ++i) out += times[b] * flops(s.ops[i]).value;
  }
  return out;
}

// Of a prompt the module passes once over all tokens; later passes, of engines that draft behind prompts,
// over one more token each.
TEST(PoolDrafts, P29PromptsOfAPairPassTheModuleOnce) {
  Case c = decode_case("llama-3.1-8b", "h200-hgx", 100);
  c.precision = all_bf16();
  c.model.drafts = DraftModules{1, c.model.attentions.front(), c.model.ffns.front()};
  accepts_drafts(c);
  c.batch = prefill_batch({{0, 100}});
  c.disaggregated = true;
  const Model& m = c.model;
  const Attention& a = m.attentions.front();
  const double h = m.hidden, table = h * m.vocab, prompt = 100;
  const double layer = attention_matrices(m, a) + 3 * h * m.ffns.front().inner, module = layer + 2 * h * h;
  const double pair = 4.0 * a.q_heads * a.head_dim, seen = prompt * (prompt + 1) / 2;
  for (const int k : {0, 1, 2, 5}) {
    for (const bool first : {false, true}) {
      SCOPED_TRACE(fmt::format("{} drafts, {}", k, first ? "the first pass alone" : "all passes"));
      c.engine = first ? profile("sglang") : nullptr;
      const Plan p = parse_plan(k == 0 ? "tensor:batch=3" : fmt::format("tensor:batch=3,drafts={}", k));
      ASSERT_EQ(check_plan(c, p), std::nullopt);
      EXPECT_EQ(tokens_per_step(c, p), 1);
      const double drafts = k > 0 ? 1 : 0, later = first ? 0 : std::max(0, k - 1);
      const double products =
          prompt * (m.layers() * layer + drafts * module) + (1 + drafts) * table + later * (module + table);
      const double attention = pair * (seen * (m.layers() + drafts) + later * (prompt + 1));
      EXPECT_NEAR(operations(c, p) / (3 * (2 * products + attention)), 1, 1e-12);
    }
  }
}

// The module's weights, and its cache of the prompts that the server has.
TEST(PoolDrafts, P29AServerForPromptsHoldsTheModule) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    Case c = case_of(engine, {kR1, "h200-hgx", "", accepts_drafts});
    c.precision.weights = Dtype::fp8_block;
    c.precision.math = Dtype::fp8;
    c.served = {2048, kOutput};
    const auto held = [&](const char* plan) {
      const ContextServer server = context_server(c, *c.engine, parse_plan(plan), 2048);
      EXPECT_TRUE(server.study.disaggregated);
      return memory_use(server.study, server.plan);
    };
    const MemoryUse none = held("tensor:tpa=8,tpf=8,batch=1"),
                    one = held("tensor:tpa=8,tpf=8,batch=1,drafts=1"),
                    three = held("tensor:tpa=8,tpf=8,batch=1,drafts=3");
    EXPECT_EQ(one.kv, three.kv);
    EXPECT_EQ(one.weights, three.weights);
    EXPECT_NEAR(one.kv / none.kv, 62.0 / 61, 1e-12);  // R1's 61 layers and a module's
    // 11.5 billion parameters in FP8 but for the product before it, shared by eight ranks.
    EXPECT_GT((one.weights - none.weights).value * 8, 11.0e9);
    EXPECT_LT((one.weights - none.weights).value * 8, 14.0e9);
    if (std::string_view(engine) == "trtllm") {  // its transceiver's buffers hold all layers
      EXPECT_NEAR((one.buffers - none.buffers).value,
                  2.0 * (2048 + 64) * kv_bytes_per_token(c, c.model.attentions.front(), parse_plan("tensor")),
                  1);
    }
  }
}

// R1: 62 layers of latents, 576 numbers a token, in place of 61.
TEST(PoolDrafts, P29ModulesCachesAreHandedOver) {
  const Study s = r1("sglang", "{p: 0.8, g: 0.9}", "[1, 3]");
  const auto bytes = [&](const std::string& drafts) {
    const HandoffStudy h = study_handoff(
        s, {"tensor:tpa=8,tpf=8,batch=1" + drafts, "tensor:tpa=8,tpf=8,batch=4" + drafts, 2048, 1});
    EXPECT_EQ(h.pairs.size(), 8u);
    return std::pair(h.handoff.bytes().value, h.by_links.value);
  };
  const auto without = bytes(""), with = bytes(",drafts=3");
  EXPECT_DOUBLE_EQ(without.first, 8.0 * 2048 * 576 * 2 * 61);
  EXPECT_DOUBLE_EQ(with.first, 8.0 * 2048 * 576 * 2 * 62);
  EXPECT_GT(with.second, without.second);
  // Layer by layer: the module's goes when all has been computed.
  const HandoffStudy h = study_handoff(
      s, {"tensor:tpa=8,tpf=8,batch=1,drafts=3", "tensor:tpa=8,tpf=8,batch=4,drafts=3", 2048, 1});
  EXPECT_GT(h.by_layer, Seconds(0));
  // A step of the plan that decodes is a whole one, whatever it yields.
  Case answers = s.study;
  answers.disaggregated = true;
  answers.batch = decode_batch(2049);
  const Plan decode = parse_plan("tensor:tpa=8,tpf=8,batch=4,drafts=3");
  EXPECT_NEAR(h.step_time / (Evaluator(answers).simulate(decode) * answers.acceptance->at(3).mean), 1, 1e-12);
  try {
    study_handoff(s, {"tensor:tpa=8,tpf=8,batch=1", "tensor:tpa=8,tpf=8,batch=4,drafts=3", 2048, 1});
    ADD_FAILURE();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("drafts are of both servers of a pair, or of neither"),
              std::string::npos)
        << e.what();
  }
}

// How many drafts are in a hand-off's plans makes no difference, whether there are any does.
TEST(PoolDrafts, P29AHandOffIsThatOfTheModulesToo) {
  const Study s = r1("sglang", "{p: 0.8, g: 0.9}", "[1, 3]");
  HandoffTimes times(s.study, 16, 2048);
  const auto of = [&](const std::string& drafts) {
    return times.of(parse_plan("tensor:tpa=8,tpf=8,batch=1" + drafts),
                    parse_plan("tensor:tpa=8,tpf=8,batch=4" + drafts));
  };
  EXPECT_EQ(of(",drafts=1"), of(",drafts=3"));
  EXPECT_GT(of(",drafts=1"), of(""));
  EXPECT_LT(of(",drafts=1"), of("") * (62.0 / 61 + 1e-9));
}

// Time of the pair's whole step, as the evaluator of its pool has it.
Seconds step_of(const Study& s, const Plan& decode) {
  Case answers = s.study;
  answers.disaggregated = true;
  Evaluator e(answers, s.sweep().search.all_reduce);
  return e.simulate(decode) * tokens_per_step(answers, decode);
}

TEST(PoolDrafts, P29PairsDraftOnBothSides) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    const Study s = r1(engine, "{p: 0.8, g: 0.9}", "[1, 3]");
    const std::vector<PoolPair> pairs = pool_pairs(s, 2);
    ASSERT_FALSE(pairs.empty());
    int drafting = 0;
    for (const PoolPair& p : pairs) {
      const int k = p.decode.plan[kDrafts];
      SCOPED_TRACE(to_string(p.decode.plan));
      EXPECT_EQ(p.prefill.plan[kDrafts], k);
      drafting += k > 0 ? 1 : 0;
      EXPECT_NEAR(p.answer.step / step_of(s, p.decode.plan), 1, 1e-12);
      const double steps = k == 0 ? kOutput - 1 : steps_of_answer(s.study.acceptance->at(k), kOutput - 1);
      EXPECT_DOUBLE_EQ(p.answer.steps, 1 + steps);
      EXPECT_NEAR(p.decode.time.value, p.answer.step.value * steps / (kOutput - 1), 1e-15);
      EXPECT_GE(p.loop.ttft, p.path + p.prefill.server.prompt(1) + p.handoff + p.answer.step);
      // A cycle of the loop: Little's law, where prompts do not take all that their server can.
      const double beside = (p.path + p.loop.response + p.loop.room + p.handoff + p.answer.step).value;
      const double cycle = p.users / p.loop.requests_per_s;
      EXPECT_GE(cycle, (p.path + p.handoff).value + (1 + steps) * p.answer.step.value);
      if (p.loop.prefill_busy < 0.9) {
        EXPECT_NEAR(cycle, beside + steps * p.answer.step.value, p.answer.step.value);
      }
      EXPECT_LE(p.output_per_s_gpu * (1 + p.prefill_gpus) * p.decode.plan.gpus(),
                static_cast<double>(p.decode.plan.users() * kOutput) / steps / p.answer.step.value);
    }
    EXPECT_GT(drafting, 0);
  }
}

// Drafts that nobody keeps: as many steps as tokens. Drafts that all are kept: every step yields 1 + k.
TEST(PoolDrafts, P29NobodyAndEverybodyAccepts) {
  const Study vain = r1("sglang", "{p: 1.0e-6, g: 1}", "[3]"), sure = r1("sglang", "{p: 1, g: 1}", "[3]");
  const std::vector<PoolPair> none = pool_pairs(vain, 2), all = pool_pairs(sure, 2);
  ASSERT_FALSE(none.empty());
  ASSERT_EQ(none.size(), all.size());
  for (std::size_t i = 0; i < none.size(); ++i) {
    const PoolPair &few = none[i], &many = all[i];
    ASSERT_EQ(few.decode.plan, many.decode.plan);
    EXPECT_NEAR(few.answer.steps, kOutput, 1e-3);
    EXPECT_NEAR(few.decode.time / few.answer.step, 1, 1e-5);
    EXPECT_NEAR(few.answer.step / many.answer.step, 1, 1e-9);  // the same step
    EXPECT_DOUBLE_EQ(many.answer.steps, 1 + std::ceil((kOutput - 1) / 4.0));
    EXPECT_NEAR(many.decode.time / many.answer.step, 64.0 / 255, 1e-12);
    EXPECT_NEAR(few.prefill.server.prompt(1) / many.prefill.server.prompt(1), 1, 1e-12);
  }
}

// Against a play of every step of both pools, in which answers take the steps that their drafts leave.
TEST(PoolDrafts, P29PoolsThatDraftAreAPlayOfTheirLoop) {
  const AcceptanceCurve curve(AcceptanceForm{0.8, 0.9});
  for (const int k : {1, 3, 7}) {
    for (const int users : {1, 4, 24}) {
      SCOPED_TRACE(fmt::format("{} drafts, {} users", k, users));
      const AcceptedLength length = curve.at(k);
      PromptServer prefill;
      prefill.times = {{1, Seconds(0.03)}, {4, Seconds(0.09)}};
      const double n = users;
      const AnswerServer answers{n, n, Seconds(0.012), 1 + steps_of_answer(length, kOutput - 1)};
      const PoolLoad load{n, Seconds(0.02), Seconds(0.01), 0};
      const PoolLoop loop = pool_loop(prefill, answers, load);
      PoolPlay play(prefill, answers, load);
      play.draw_steps([&](std::mt19937_64& random) {
        std::uniform_real_distribution<double> part;
        int steps = 1, left = kOutput - 1;
        for (; left > 0; ++steps) {
          const double drawn = part(random);
          int tokens = 1;
          while (tokens <= k && drawn < length.survival[static_cast<std::size_t>(tokens - 1)]) ++tokens;
          left -= tokens;
        }
        return steps;
      });
      play.steady(4000, n / loop.requests_per_s);
      EXPECT_NEAR(loop.requests_per_s / play.requests_per_s(), 1, 0.02);
      EXPECT_NEAR(loop.ttft.value / play.ttft(), 1, 0.09);
    }
  }
}

// The fastest pair that drafts is faster than the fastest that does not, where drafts are kept.
TEST(PoolDrafts, P29DraftsPayInPools) {
  const std::vector<PoolPair> with = pool_pairs(r1("trtllm", "{p: 0.8, g: 0.9}", "[1, 3]"), 2),
                              without = pool_pairs(r1("trtllm", "", ""), 2);
  ASSERT_FALSE(with.empty() || without.empty());
  EXPECT_LT(with.front().decode.time, without.front().decode.time * 0.7);
  EXPECT_EQ(with.front().decode.plan[kDrafts], 3);
}

// Launch files: the same drafts on both servers.
TEST(PoolDrafts, P29BothServersAreToldOfDrafts) {
  for (const char* engine : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(engine);
    Case c = case_of(engine, {kR1, "h200-hgx", "", accepts_drafts});
    c.precision.weights = Dtype::fp8_block;
    c.precision.math = Dtype::fp8;
    c.served = {2048, kOutput};
    const auto files = [&](const char* first, const char* second) {
      const ContextServer prompts = context_server(c, *c.engine, parse_plan(first), 2048);
      return launch_pair({prompts.study, prompts.plan}, {c, parse_plan(second)}, *c.engine, "p");
    };
    const Launch launch = files("tensor:tpa=8,tpf=8,batch=1,drafts=3", "tensor:tpa=8,tpf=8,batch=4,drafts=3");
    EXPECT_EQ(launch.refused, "");
    for (const char* side : {"p_context", "p_generation"}) {
      const bool yaml = std::string_view(engine) == "trtllm";
      const auto file = std::find_if(launch.files.begin(), launch.files.end(), [&](const LaunchFile& f) {
        return f.name == std::string(side) + (yaml ? ".yaml" : ".sh");
      });
      ASSERT_NE(file, launch.files.end()) << side;
      const char* told = yaml                                   ? "max_draft_len: 3"
                         : std::string_view(engine) == "sglang" ? "--speculative-num-draft-tokens 4"
                                                                : "\"num_speculative_tokens\":3";
      EXPECT_NE(file->text.find(told), std::string::npos) << file->text;
    }
    const Launch alone = files("tensor:tpa=8,tpf=8,batch=1", "tensor:tpa=8,tpf=8,batch=4,drafts=3");
    EXPECT_NE(alone.refused.find("drafts=0 where prompts are computed, 3 where answers are: 3 for both"),
              std::string::npos)
        << alone.refused;
  }
}

}  // namespace
}  // namespace shardline
