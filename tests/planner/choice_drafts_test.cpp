// [P29] Passes of a module that attend to what its first pass has chosen (GLM-5.2's
// index_share_for_mtp_iteration): who does that, and what of a pass is left.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/model/catalog.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/acceptance.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/launchable.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using testing::over_step;
using testing::plan_of;
using testing::profile;

constexpr int kScoring = 21, kDrafted = 5;  // GLM-5.2's layers that score; drafts of the plans below

Case glm(const std::string& engine = "", bool one_choice = true) {
  Case c = decode_case("glm-5.2", "h200-hgx", 1'000'000);
  c.precision = all_bf16();
  c.acceptance = std::make_shared<const AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
  c.model.drafts->one_choice = one_choice;
  if (!engine.empty()) c.engine = profile(engine);
  return c;
}

std::map<OpKind, double> counts(const Case& c, const std::string& plan) {
  std::map<OpKind, double> out;
  over_step(c, plan_of(c, plan), [&](const Block&, const Op& op, double times) { out[op.kind] += times; });
  return out;
}

// Each pass scores for itself, or the first alone; all attend.
TEST(ChoiceDrafts, P29OnePassScoresWhereTheModelAndTheEngineSayIt) {
  struct Row {
    const char* engine;
    bool asked, shares;
  };
  for (const Row& row : {Row{"", true, true},
                         {"vllm", true, true},
                         {"sglang", true, false},
                         {"trtllm", true, false},
                         {"", false, false},
                         {"vllm", false, false}}) {
    SCOPED_TRACE(::testing::Message() << row.engine << " " << row.asked);
    const Case c = glm(row.engine, row.asked);
    EXPECT_EQ(takes_first_choice(c), row.shares);
    const auto none = counts(c, "tensor:tpa=8,tpf=8,batch=1");
    const auto five = counts(c, "tensor:tpa=8,tpf=8,batch=1,drafts=5");
    EXPECT_EQ(none.at(OpKind::index_logits), kScoring);
    const int passes = row.shares ? 1 : kDrafted;
    EXPECT_EQ(five.at(OpKind::index_logits), kScoring + passes);
    EXPECT_EQ(five.at(OpKind::top_k), none.at(OpKind::top_k) + passes);
    EXPECT_EQ(five.at(OpKind::attend_sparse), none.at(OpKind::attend_sparse) + kDrafted);
    const auto one = counts(c, "tensor:tpa=8,tpf=8,batch=1,drafts=1");
    EXPECT_EQ(one.at(OpKind::index_logits), kScoring + 1);
  }
}

// Under every strategy that drafts; products of the index go with its scores, and nothing else does.
TEST(ChoiceDrafts, P29LaterPassesLackTheIndexAlone) {
  for (const char* degrees :
       {"tensor:tpa=8,tpf=8,batch=2", "pipeline:pp=2,tpa=4,tpf=4,batch=2", "dcp:tpa=8,tpf=8,dcp=4,batch=2",
        "helix:kvp=8,tpf=8,batch=2", "kv_shard:kvp=8,tpa=8,tpf=8,batch=2"}) {
    SCOPED_TRACE(degrees);
    const std::string plan = std::string(degrees) + ",drafts=5";
    const auto each = counts(glm("", false), plan), first = counts(glm("", true), plan);
    EXPECT_EQ(each.at(OpKind::index_logits) - first.at(OpKind::index_logits), kDrafted - 1);
    EXPECT_GE(each.at(OpKind::top_k) - first.at(OpKind::top_k), kDrafted - 1);  // and of candidates
    EXPECT_GT(each.at(OpKind::gemm), first.at(OpKind::gemm));
    for (const OpKind kind : {OpKind::attend_sparse, OpKind::grouped_gemm, OpKind::all_reduce}) {
      if (each.contains(kind)) {
        EXPECT_EQ(each.at(kind), first.at(kind)) << static_cast<int>(kind);
      }
    }
  }
}

// What of a million tokens' step the four passes' scores and choices take; memory holds the module's keys
// either way.
TEST(ChoiceDrafts, P29AStepWithOneChoiceIsShorter) {
  const auto time = [](const Case& c, int k) {
    const std::string drafts = k > 0 ? ",drafts=" + std::to_string(k) : "";
    const Plan p = plan_of(c, "tensor:tpa=8,ep=8,batch=1" + drafts);
    return Evaluator(c).simulate(p).value * tokens_per_step(c, p);  // of a step
  };
  const double each = time(glm("", false), kDrafted), first = time(glm("", true), kDrafted);
  std::printf("a step with %d drafts: %.2f ms, with one choice %.2f ms\n", kDrafted, 1e3 * each, 1e3 * first);
  EXPECT_LT(first, each);
  EXPECT_GT(first, 0.9 * each);  // four layers' index of a step that has 26
  EXPECT_EQ(time(glm("", false), 1), time(glm("", true), 1));
  EXPECT_EQ(time(glm("", false), 0), time(glm("", true), 0));
}

TEST(ChoiceDrafts, P29NoModuleTakesAChoiceItDoesNotMake) {
  Model m = glm().model;
  EXPECT_TRUE(check(m).empty());
  m.drafts->attention.index->shared = true;
  EXPECT_FALSE(check(m).empty());
  m = glm().model;
  m.drafts->attention.index.reset();
  EXPECT_FALSE(check(m).empty());
}

}  // namespace
}  // namespace shardline
