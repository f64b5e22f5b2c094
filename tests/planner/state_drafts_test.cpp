// [P29] Drafts over layers that keep a state: what is read, written, kept and copied to roll it back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/cost/kernel_list.hpp"
#include "hardware/machine/frameworks.hpp"
#include "models/model/cache.hpp"
#include "planner/engines/draft_rules.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/search/cache_sizes.hpp"
#include "planner/search/memory.hpp"
#include "planner/studies/service_knobs.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/launchable.hpp"
#include "tests/planner/priced_op.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr const char* kModels[] = {kQwen35, kNemotron};
constexpr const char* kPlan = "tensor:tpa=8,ep=8,batch=3";

std::string with(int drafts) {
  return std::string(kPlan) + (drafts > 0 ? ",drafts=" + std::to_string(drafts) : "");
}

Case bare(const char* model, const char* system = "h200-hgx") {
  Case c = decode_case(model, system, 32'768);
  c.precision = all_bf16();
  accepts_drafts(c);
  return c;
}

Case under(const std::string& engine, const char* model, const char* system = "h200-hgx") {
  return testing::case_of(engine, {model, system, "", accepts_drafts});
}

// Of the layers with a state, on the rank with most, one request.
struct States {
  double matrices = 0, row = 0, taps = 0;  // bytes; of one row of all convolutions
};

States states_of(const Case& c, const Plan& p) {
  States out;
  for (int i = 0; i < static_cast<int>(c.model.attentions.size()); ++i) {
    const Attention& a = c.model.attentions[static_cast<std::size_t>(i)];
    if (!a.recurrent()) continue;
    const double layers = layers_of_attention(c.model, i), one = rank_state_bytes(a, p, 1).value,
                 none = rank_state_bytes(a, p).value;
    out.taps = state_rule(a).conv;
    out.row += layers * (one - none);
    out.matrices += layers * (none - (out.taps - 1) * (one - none));
  }
  return out;
}

struct Sums {
  double state = 0, rows = 0, flops = 0, copied = 0;
  int copies = 0;
};

// Over a step, as often as each block runs.
Sums sums_of(const Case& c, const std::string& plan) {
  Sums out;
  over_step(c, plan_of(c, plan), [&](const Block&, const Op& op, double times) {
    if (op.kind == OpKind::recur) out.state += times * kv_bytes(op).value;
    if (op.kind == OpKind::recur) out.flops += times * flops(op).value;
    if (op.kind == OpKind::convolve) out.rows += times * kv_bytes(op).value;
    if (std::string_view(op.name) != "accepted states") return;
    out.copied += times * shape<ElementwiseShape>(op).bytes.value;
    out.copies += static_cast<int>(times);
  });
  return out;
}

// A state is read once and written behind each of 1 + k tokens; of the convolution's rows those that a token
// behind any of them reaches back to.
TEST(StateDrafts, P29StatesAreReadOnceAndWrittenBehindEachToken) {
  for (const char* model : kModels) {
    const Case c = bare(model);
    const Sums none = sums_of(c, with(0));
    const States one = states_of(c, plan_of(c, with(1)));
    for (const int k : {1, 2, 5}) {
      SCOPED_TRACE(std::string(model) + ", " + std::to_string(k));
      const Sums s = sums_of(c, with(k));
      EXPECT_PRED2(near, s.state, 3 * (2 + k) * one.matrices);
      EXPECT_PRED2(near, s.rows, 3 * (2 * (one.taps - 1) + k) * one.row);
      EXPECT_PRED2(near, s.flops, (1 + k) * none.flops);
      EXPECT_EQ(s.copies, 0) << "the next step reads the accepted one where it lies";
    }
  }
}

// The states that are not accepted are read by nobody: the accepted ones are copied once a step.
TEST(StateDrafts, P29AcceptedStatesAreCopiedWhereTheEngineDoes) {
  for (const char* engine : {"sglang", "trtllm", "vllm"}) {
    const Case c = under(engine, kQwen35);
    const Plan p = plan_of(c, with(2));
    const States one = states_of(c, p);
    const Sums s = sums_of(c, with(2));
    const bool copies = std::string_view(engine) != "vllm";
    EXPECT_EQ(s.copies, copies ? 1 : 0) << engine;
    EXPECT_PRED2(near, s.copied, copies ? 2 * 3 * (one.matrices + (one.taps - 1) * one.row) : 0.0) << engine;
    EXPECT_EQ(accepts_states(c, p), copies);
    Case prompts = c;
    prompts.batch = prefill_batch({{0, 1000}});
    EXPECT_FALSE(accepts_states(prompts, p)) << "nothing is verified";
  }
}

// Beside the keys and values of the module and of the drafts.
TEST(StateDrafts, P29MemoryHoldsTheStatesOfAllTokens) {
  const auto states_in = [](const Case& c, const std::string& plan) {
    Case without = c;
    for (Attention& a : without.model.attentions) {
      if (a.recurrent()) a.delta.reset(), a.mamba.reset(), a.kind = AttentionKind::none;
    }
    return (memory_use(c, plan_of(c, plan)).kv - memory_use(without, plan_of(without, plan)).kv).value;
  };
  for (const char* model : kModels) {
    const Case c = bare(model);
    const States one = states_of(c, plan_of(c, with(1)));
    for (const int k : {0, 1, 4})
      EXPECT_PRED2(near, states_in(c, with(k)), 3 * ((1 + k) * one.matrices + (one.taps - 1 + k) * one.row))
          << model << " " << k;
  }
  // SGLang: five places of each request, and beside them a state and a window for each of the 1 + k tokens.
  const Case c = under("sglang", kQwen35);
  const States one = states_of(c, plan_of(c, with(1)));
  const double place = one.matrices + (one.taps - 1) * one.row;
  EXPECT_PRED2(near, states_in(c, with(0)), 3 * 5 * place);
  for (const int k : {1, 3}) EXPECT_PRED2(near, states_in(c, with(k)), 3 * (5.0 + 1 + k) * place);
  // TensorRT-LLM: one.
  const Case other = under("trtllm", kQwen35);
  for (const int k : {1, 3}) EXPECT_PRED2(near, states_in(other, with(k)), 3 * (1.0 + 1 + k) * place);
}

// vLLM: 1 + k pages of each group for a request, of a size that holds the wider rows of the convolution.
TEST(StateDrafts, P29VllmsRequestsHaveAPlaceForEachToken) {
  const Case c = under("vllm", kQwen35);
  // Layers without a cache of tokens are three times as many: three groups.
  const auto pages = [&](int k) {
    const Plan p = plan_of(c, with(k));
    double state = 0, token = 0;
    for (const Attention& a : c.model.attentions)
      (a.recurrent() ? state : token) =
          a.recurrent() ? rank_state_bytes(a, p, k).value : kv_bytes_per_token(c, a, p);
    const double block = 16 * std::ceil(state / (16 * token)), length = 32'768.0 + k;
    // Of a model with a module one layer more attends: a group of sixteen.
    const double layers = 15 + (k > 0 ? 1 : 0);
    return block * token * layers * 3 * (3 * (1.0 + k) + std::ceil(length / block));
  };
  for (const int k : {0, 1, 3})
    EXPECT_PRED2(near, memory_use(c, plan_of(c, with(k))).kv.value, pages(k)) << k;
}

// Measured of Kimi Delta Attention alone: of other rules extrapolated. Where the framework has no rows of
// drafts, those of one token are. No kernel with the convolution inside is taken beside one.
TEST(StateDrafts, H76VerificationHasRowsOfItsOwn) {
  for (const std::string system : {"h100-hgx", "h200-hgx", "gb200-nvl72"}) {
    for (const std::string framework : {"vllm", "sglang", "trtllm"}) {
      for (const char* model : kModels) {
        SCOPED_TRACE(system + " " + framework + " " + model);
        Case c = bare(model, system.c_str());
        use_framework(c.system, framework, source_path("hardware/catalog"));
        const bool own = framework != "trtllm";
        for (const OpKind kind : {OpKind::recur, OpKind::convolve}) {
          const Priced p = priced(c, "tensor:tpa=8,ep=8,batch=64,drafts=3", kind);
          EXPECT_THAT(p.kernel, ::testing::Not(HasSubstr("fused_kda_decode")));
          if (p.kernel.empty()) {  // no convolution of TensorRT-LLM's was measured on Hopper
            EXPECT_EQ(p.basis, Basis::assumed);
            EXPECT_TRUE(framework == "trtllm" && kind == OpKind::convolve);
            continue;
          }
          EXPECT_EQ(p.basis, Basis::extrapolated);
          EXPECT_THAT(p.kernel, HasSubstr(own ? "verify" : "decode"));
          EXPECT_EQ(p.kernel.find("causal_conv1d") != std::string::npos, kind == OpKind::convolve)
              << p.kernel;
        }
      }
    }
  }
}

// One step that verifies k drafts takes longer than one that verifies none, and less than 1 + k such steps:
// it reads the states once.
TEST(StateDrafts, H76VerifyingIsCheaperThanUpdatingOneByOne) {
  for (const char* framework : {"vllm", "sglang"}) {
    for (const char* model : kModels) {
      Case c = bare(model);
      use_framework(c.system, framework, source_path("hardware/catalog"));
      for (const int batch : {64, 256}) {
        const std::string plan = "tensor:tpa=4,ep=4,batch=" + std::to_string(batch);
        const double alone = priced(c, plan, OpKind::recur).seconds;
        double before = alone;
        for (const int k : {1, 3, 7}) {
          SCOPED_TRACE(std::string(framework) + " " + model + " " + plan + " " + std::to_string(k));
          const double verified = priced(c, plan + ",drafts=" + std::to_string(k), OpKind::recur).seconds;
          EXPECT_GT(verified, before);
          EXPECT_LT(verified, (1 + k) * alone);
          before = verified;
        }
      }
    }
  }
}

TEST(StateDrafts, P29RefusalsSayWhatIsMissing) {
  const auto refusal = [](const Case& c, const std::string& plan) {
    return no_drafts(c, parse_plan(plan)).value_or("");
  };
  Case c = bare(kQwen35);
  EXPECT_EQ(refusal(c, with(2)), "");
  c = under("sglang", kQwen35);
  EXPECT_EQ(refusal(c, with(2)), "");
  EXPECT_EQ(refusal(c, "pipeline:pp=2,tpa=4,ep=4,drafts=2"),
            "SGLang copies accepted states in one stage: drafts over layers with a state are with pp=1");
  auto silent = std::make_shared<EngineProfile>(*c.engine);
  silent->drafts.states = DraftSteps::States::unsaid;
  c.engine = silent;
  EXPECT_EQ(refusal(c, with(2)),
            "the profile of SGLang does not say how it rolls back states where a draft is rejected");
  c = bare(kQwen35);
  for (const Attention& a : c.model.attentions) {
    if (a.recurrent()) c.model.drafts->attention = a;
  }
  EXPECT_EQ(refusal(c, with(2)),
            "the module that drafts for qwen3.5-397b-a17b keeps a state, which no engine rolls back");
  EXPECT_THAT(no_play(under("vllm", kQwen35), parse_plan("tensor:tpa=8,ep=8,drafts=2")).value_or(""),
              HasSubstr("its states are rolled back"));
}

// Files say drafts for these models, too; vLLM's NemotronHMTP runs in stages.
TEST(StateDrafts, P29LaunchFilesSayThem) {
  const auto told = [](const std::string& engine, const char* model, const std::string& plan) {
    return deployments(under(engine, model), parse_plan(plan)).front();
  };
  for (const char* model : kModels) {
    EXPECT_THAT(options_text(told("vllm", model, with(2))), HasSubstr("num_speculative_tokens\":2"));
    EXPECT_THAT(options_text(told("sglang", model, with(2))), HasSubstr("--speculative-num-draft-tokens 3"));
  }
  EXPECT_THAT(options_text(told("vllm", kNemotron, "pipeline:pp=2,tpa=4,ep=4,drafts=2")),
              HasSubstr("num_speculative_tokens\":2"));
  EXPECT_THAT(told("vllm", kQwen35, "pipeline:pp=2,tpa=4,ep=4,drafts=2").unsaid, HasSubstr("pp=1"));
  EXPECT_THAT(told("trtllm", kNemotron, with(2)).unsaid, HasSubstr("rolled back by computing"));
}

}  // namespace
}  // namespace shardline
