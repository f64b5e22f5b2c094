// [H73] Scores of an index in steps that decode: DeepSeek-V4's of several requests, and of rows that verify
// drafts; DSA's of such rows.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "hardware/cost/calibrated_cost.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/studies/sweep.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using testing::over_step;
using testing::plan_of;

// As a scenario asks for a framework's kernels.
Case case_of(const std::string& model, const std::string& system, const std::string& framework,
             long long context) {
  Case c = parse_scenario(
               "q.yaml",
               "name: q\nsystem: " + system + "\nmodels: [" + model + "]\nkernels: {framework: " + framework +
                   "}\nprecision: {weights: fp8_block, kv: fp8, math: fp8, activations: bf16}\n"
                   "context: " +
                   std::to_string(context) + " tokens\nstrategies: [tensor]\ngpus: [8]\nbatch: [1]\n",
               shipped_catalogs())
               .studies[0]
               .study;
  c.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{1, 1});
  return c;
}

Case flash(const std::string& system, const std::string& framework, long long context) {
  return case_of("deepseek-v4-flash", system, framework, context);
}

// Microseconds of one layer with an index.
double scores(const Case& c, int requests, int drafts, Pricing pricing = Pricing::exact) {
  CalibratedCost cost(c.system, pricing);
  double sum = 0, layers = 0;
  const std::string plan = "tensor:tpa=8,ep=8,batch=" + std::to_string(requests) +
                           (drafts > 0 ? ",drafts=" + std::to_string(drafts) : "");
  over_step(c, plan_of(c, plan), [&](const Block&, const Op& op, double times) {
    if (op.kind != OpKind::index_logits) return;
    sum += times * cost.price(op, nullptr)->time.value * 1e6;
    layers += times;
  });
  return sum / layers;
}

// Kernels timed alone (AIConfigurator 095f58a51, sparse_kernel, v4_index_logits) are what a layer takes at
// least, less what of their keys stays in an L2 that no layer finds again; and no more than 1.8 times that
// with what a block of one request takes beyond them. They were 3 to 7 times that.
TEST(IndexScores, H73SeveralRowsTakeWhatTheirKernelTakes) {
  struct Row {
    const char *system, *framework;
    int requests, rows;
    long long cached;
    double measured;  // us
  };
  for (const Row& r : {Row{"gb200-nvl72", "sglang", 1, 4, 1'000'000, 14.2},
                       {"gb200-nvl72", "sglang", 2, 8, 262'144, 14.7},
                       {"h200-hgx", "sglang", 1, 4, 1'000'000, 24.5},
                       {"h200-hgx", "sglang", 1, 8, 1'000'000, 44.3},
                       {"h200-hgx", "sglang", 8, 8, 65'536, 26.0},
                       {"gb200-nvl72", "vllm", 1, 8, 524'288, 17.9},
                       {"gb200-nvl72", "vllm", 8, 8, 65'536, 18.1},
                       {"h200-hgx", "vllm", 1, 8, 524'288, 23.2},
                       {"h200-hgx", "vllm", 4, 8, 131'072, 23.8}}) {
    SCOPED_TRACE(::testing::Message()
                 << r.system << " " << r.framework << " " << r.requests << " x " << r.rows);
    const double priced = scores(flash(r.system, r.framework, r.cached), r.requests, r.rows - 1);
    EXPECT_GT(priced, 0.9 * r.measured);
    EXPECT_LT(priced, 1.8 * r.measured);
  }
}

// Of requests beyond those that blocks were measured with each adds its keys, at the memory's rate or less.
TEST(IndexScores, H73KeysOfEveryRequestAreRead) {
  for (const char* framework : {"sglang", "vllm", "trtllm"}) {
    const Case c = flash("gb200-nvl72", framework, 1'000'000);
    const double bytes = 250'000.0 * 132, rate = c.system.device.memory_bandwidth.value;
    const double few = scores(c, 16, 0), many = scores(c, 64, 0);
    EXPECT_GT(many - few, 0.94 * 48 * bytes / rate * 1e6) << framework;
    EXPECT_LT(many - few, 3 * 48 * bytes / rate * 1e6) << framework;
  }
}

// More requests, more rows and longer caches take no less, but for what corrections of the fits fall by from
// one measured place to the next; a floor is below all of them.
TEST(IndexScores, H73RiseWithAllThatTheyRead) {
  std::mt19937_64 random(1);
  for (const char* framework : {"sglang", "vllm", "trtllm"}) {
    for (int i = 0; i < 20; ++i) {
      const int requests = 1 << random() % 6, drafts = static_cast<int>(random() % 5);
      const long long context = 4096LL << random() % 9;
      SCOPED_TRACE(::testing::Message() << framework << " " << requests << " " << drafts << " " << context);
      const Case c = flash("gb200-nvl72", framework, context),
                 longer = flash("gb200-nvl72", framework, 2 * context);
      const double one = scores(c, requests, drafts);
      EXPECT_GE(scores(c, requests, drafts + 1), 0.97 * one);
      EXPECT_GE(scores(c, 2 * requests, drafts), 0.9 * one);
      EXPECT_GE(scores(longer, requests, drafts), 0.9 * one);
      EXPECT_LE(scores(c, requests, drafts, Pricing::floor), one);
    }
  }
}

// Passes over the keys of a request that verifies k drafts, by what its framework hands to the kernel at
// once: a pass has two rows at most. 160,000 tokens, so that the keys are what takes time.
TEST(IndexScores, H73RowsThatAreScoredTogetherReadKeysOnce) {
  struct Row {
    const char *system, *framework;
    int drafts, passes;
  };
  for (const Row& r : {Row{"h200-hgx", "sglang", 1, 2},
                       {"h200-hgx", "sglang", 3, 4},
                       {"gb200-nvl72", "sglang", 1, 2},
                       {"h200-hgx", "vllm", 1, 1},
                       {"h200-hgx", "vllm", 2, 3},
                       {"h200-hgx", "vllm", 3, 4},
                       {"gb200-nvl72", "vllm", 1, 1},
                       {"gb200-nvl72", "vllm", 2, 2},
                       {"gb200-nvl72", "vllm", 3, 2},
                       {"h200-hgx", "trtllm", 1, 1},
                       {"h200-hgx", "trtllm", 3, 4},
                       {"gb200-nvl72", "trtllm", 1, 1},
                       {"gb200-nvl72", "trtllm", 2, 3},
                       {"gb200-nvl72", "trtllm", 3, 2}}) {
    SCOPED_TRACE(::testing::Message() << r.system << " " << r.framework << " " << r.drafts);
    const Case c = case_of("deepseek-v3.2", r.system, r.framework, 160'000);
    // As many passes as requests of one row each have, up to the correction of the measured block at fewer
    // requests.
    const double passes = scores(c, 8, r.drafts) / scores(c, 8, 0);
    EXPECT_NEAR(passes, r.passes, 0.12 * r.passes);
  }
}

}  // namespace
}  // namespace shardline
