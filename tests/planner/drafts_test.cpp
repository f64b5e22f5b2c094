// [P29] Steps that draft and verify: counted, against the model's own numbers; their yield; what refuses
// them.
#include "planner/layers/drafts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "planner/search/memory.hpp"
#include "planner/search/provenance.hpp"
#include "planner/search/search.hpp"
#include "planner/serving/acceptance.hpp"
#include "tests/planner/attention_ops.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

using testing::near;
using testing::over_step;
using testing::plan_of;

constexpr long long kContext = 10'000;

std::shared_ptr<const AcceptanceCurve> accepted(double p, double g) {
  return std::make_shared<const AcceptanceCurve>(AcceptanceForm{p, g});
}

// A dense model whose module has a layer as its last one.
Case dense_case(long long context = kContext) {
  Case c = decode_case("llama-3.1-8b", "h200-hgx", context);
  c.precision = all_bf16();
  c.model.drafts = DraftModules{1, c.model.attentions.front(), c.model.ffns.front()};
  c.acceptance = accepted(0.8, 0.9);
  return c;
}

Case r1_case() {
  Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  c.acceptance = accepted(0.8, 0.9);
  return c;
}

struct Sums {
  double products = 0, attention = 0, kv = 0;
};

Sums sums_of(const Case& c, const std::string& plan) {
  Sums out;
  over_step(c, plan_of(c, plan), [&](const Block&, const Op& op, double times) {
    (is_gemm(op.kind) ? out.products : out.attention) += times * flops(op).value;
    out.kv += times * kv_bytes(op).value;
  });
  return out;
}

// k drafts: the model over 1 + k tokens of a request; a module over as many, then k - 1 times over one; the
// head over all that are verified, and once for each draft.
TEST(Drafts, P29OneRankComputesWhatIsVerifiedAndDrafted) {
  const Case c = dense_case();
  const Model& m = c.model;
  const double h = m.hidden, table = h * m.vocab;
  const double layer = attention_matrices(m, m.attentions.front()) + 3 * h * m.ffns.front().inner;
  const double module = layer + 2 * h * h;
  const Attention& a = m.attentions.front();
  const double pair = 4.0 * a.q_heads * a.head_dim, row = 2.0 * a.kv_heads * a.head_dim * 2;
  for (const int k : {1, 2, 5}) {
    SCOPED_TRACE(k);
    const double verified = 1 + k, n = kContext;
    const Sums s = sums_of(c, "tensor:tpa=1,batch=3,drafts=" + std::to_string(k));
    EXPECT_PRED2(
        near, s.products,
        3 * 2 * (verified * (m.layers() * layer + table + module) + table + (k - 1) * (module + table)));
    // Token i of those verified sees n + i keys.
    const double seen = verified * n + k * (k + 1) / 2.0;
    EXPECT_PRED2(near, s.attention, 3 * pair * (seen * (m.layers() + 1) + (k - 1) * n));
    EXPECT_PRED2(near, s.kv, 3 * row * ((n + k) * (m.layers() + 1) + (k - 1) * n));
  }
}

// Beside prompts the model and the first pass of a module run over their tokens, too, and the later passes
// over one more of each.
TEST(Drafts, P29PromptsPassOnceAndAreDraftedFor) {
  Case c = dense_case();
  const double prompt = 100;
  c.batch.prefill = {{0, 100}};
  const Model& m = c.model;
  const double h = m.hidden, table = h * m.vocab;
  const double layer = attention_matrices(m, m.attentions.front()) + 3 * h * m.ffns.front().inner;
  const double module = layer + 2 * h * h;
  const Attention& a = m.attentions.front();
  const double pair = 4.0 * a.q_heads * a.head_dim;
  for (const int k : {1, 2, 5}) {
    SCOPED_TRACE(k);
    const double verified = 1 + k, n = kContext;
    const Sums s = sums_of(c, "tensor:tpa=1,batch=3,drafts=" + std::to_string(k));
    const double rows = verified + prompt, later = k - 1;
    EXPECT_PRED2(near, s.products,
                 3 * 2 *
                     (rows * (m.layers() * layer + module) + (verified + 1) * table + 2 * table +
                      later * 2 * (module + table)));
    const double seen = verified * n + k * (k + 1) / 2.0 + prompt * (prompt + 1) / 2;
    EXPECT_PRED2(near, s.attention, 3 * pair * (seen * (m.layers() + 1) + later * (n + prompt + 1)));
  }
}

// A step yields tokens of those that decode; one of prompts alone takes its own time.
TEST(Drafts, P29AStepOfPromptsYieldsNoMore) {
  Case c = dense_case();
  const Plan p = plan_of(c, "tensor:tpa=1,drafts=3");
  EXPECT_GT(tokens_per_step(c, p), 1);
  c.batch = prefill_batch({{0, 1000}});
  EXPECT_EQ(tokens_per_step(c, p), 1);
}

// Prompts beside a step are computed once a step, not once a token of it.
TEST(Drafts, P29PromptsAreCountedByStep) {
  Case c = dense_case();
  c.batch.prefill = {{0, 100}};
  const Plan p = plan_of(c, "tensor:tpa=1,drafts=3");
  const Seconds step(0.01), token = step / tokens_per_step(c, p);
  EXPECT_PRED2(near, decode_metrics(c, token, p).prefilled_per_s_gpu, 100 / 0.01);
}

TEST(Drafts, P29AModuleHasWeightsAndACacheOfItsOwn) {
  const Case c = dense_case();
  const Model& m = c.model;
  const double h = m.hidden;
  const double module =
      attention_matrices(m, m.attentions.front()) + 3 * h * m.ffns.front().inner + 2 * h * h;
  const MemoryUse none = memory_use(c, plan_of(c, "tensor:tpa=1,batch=3"));
  for (const int k : {1, 4}) {
    const MemoryUse use = memory_use(c, plan_of(c, "tensor:tpa=1,batch=3,drafts=" + std::to_string(k)));
    EXPECT_PRED2(near, use.weights.value - none.weights.value, 2 * module);
    const double layers = m.layers(), n = kContext;
    EXPECT_PRED2(near, use.kv.value / none.kv.value, (layers + 1) / layers * (n + k) / n);
    EXPECT_GT(use.activations, none.activations);
  }
}

// On the last of several stages, beside the embedding that it reads: the others have neither.
TEST(Drafts, P29TheModuleIsOnTheLastStage) {
  Case c = dense_case();
  const auto blocks = [&](const std::string& text) {
    Schedule s;
    lower(s, c, plan_of(c, text));
    std::vector<std::size_t> of_stage;
    for (const Stage& stage : s.stages) of_stage.push_back(stage.last - stage.first);
    return of_stage;
  };
  const auto plain = blocks("pipeline:pp=2,tpa=1"), drafting = blocks("pipeline:pp=2,tpa=1,drafts=2");
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(drafting[0], plain[0]);
  EXPECT_EQ(drafting[1], plain[1] + 2);
}

// The yield divides time, and nothing else does.
TEST(Drafts, P29TimeIsPerToken) {
  Case c = r1_case();
  const char* text = "helix:kvp=8,tpa=1,ep=8,value_up=after,batch=4,drafts=";
  for (const int k : {1, 3}) {
    const Plan p = plan_of(c, text + std::to_string(k));
    c.acceptance = accepted(0.8, 0.9);
    const double some = Evaluator(c).simulate(p).value * tokens_per_step(c, p);
    c.acceptance = accepted(1, 1);
    EXPECT_EQ(tokens_per_step(c, p), 1 + k);
    const double all = Evaluator(c).simulate(p).value * (1 + k);
    EXPECT_PRED2(near, some, all);
    c.acceptance = accepted(1e-6, 1);
    const Plan none = plan_of(c, "helix:kvp=8,tpa=1,ep=8,value_up=after,batch=4");
    EXPECT_GT(Evaluator(c).simulate(p), Evaluator(c).simulate(none)) << "drafts that nobody accepts";
    const Breakdown b = [&] {
      Evaluator e(c);
      return break_down(e, p);
    }();
    Seconds parts;
    for (const Seconds t : b.parts) parts += t;
    EXPECT_NEAR((parts + b.waiting) / b.time, 1, 1e-12);
  }
}

// A verification is cheaper than as many steps: caches and weights are read once.
TEST(Drafts, P29VerifyingIsCheaperThanDecodingOneByOne) {
  Case c = r1_case();
  c.acceptance = accepted(1, 1);
  for (const char* text : {"tensor:tpa=8,ep=8", "kv_shard:kvp=2,tpa=4,ep=4", "dp_ep:dp=8,ep=8,batch=1",
                           "helix:kvp=4,tpa=2,ep=8,value_up=before", "pipeline:pp=2,tpa=4,ep=4"}) {
    SCOPED_TRACE(text);
    Evaluator e(c);
    EXPECT_LT(e.simulate(plan_of(c, std::string(text) + ",drafts=1")), e.simulate(plan_of(c, text)));
  }
}

// Products and bytes of weights by the type that they are multiplied in and stored in.
std::map<Dtype, double> products_by_type(const Case& c, const std::string& plan) {
  Schedule s;
  lower(s, c, plan_of(c, plan));
  const std::vector<double> times = executions(s);
  std::map<Dtype, double> out;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    const Block& block = s.blocks[BlockIndex(static_cast<std::uint32_t>(b))];
    for (OpIndex i = block.first; i < block.last; ++i) {
      if (is_gemm(s.ops[i].kind)) out[s.ops[i].dtype] += times[b] * flops(s.ops[i]).value;
    }
  }
  return out;
}

DraftTypes all_of(Dtype type) {
  const ModuleType t{type, arithmetic_of(type)};
  return {t, t, t, t, t};
}

// Only the passes of a module have its types; what both share, the head and the projection of its input,
// stays.
TEST(Drafts, P29AModuleHasTypesOfItsOwn) {
  for (const bool prompts : {false, true}) {
    Case c = dense_case();
    if (prompts) c.batch.prefill = {{0, 100}};
    c.precision.weights = c.precision.math = Dtype::fp8;
    c.precision.head = Dtype::bf16;
    const Model& m = c.model;
    const double h = m.hidden;
    const double layer = attention_matrices(m, m.attentions.front()) + 3 * h * m.ffns.front().inner;
    for (const int k : {1, 4}) {
      const std::string plan = "tensor:tpa=1,batch=3,drafts=" + std::to_string(k);
      c.precision.drafts.reset();
      const auto same = products_by_type(c, plan);
      const MemoryUse use = memory_use(c, plan_of(c, plan));
      c.precision.drafts = all_of(Dtype::bf16);
      const auto own = products_by_type(c, plan);
      const double rows = 3 * (1 + k + (prompts ? 100.0 : 0)) + 3 * (prompts ? 2 : 1) * (k - 1);
      EXPECT_PRED2(near, same.at(Dtype::fp8) - own.at(Dtype::fp8), 2 * rows * layer);
      EXPECT_PRED2(near, own.at(Dtype::bf16) - same.at(Dtype::bf16), 2 * rows * layer);
      EXPECT_PRED2(near, memory_use(c, plan_of(c, plan)).weights.value - use.weights.value, layer);
      const Plan p = plan_of(c, plan);
      const Seconds wide = Evaluator(c).simulate(p);
      c.precision.drafts = all_of(Dtype::fp8);
      const Seconds narrow = Evaluator(c).simulate(p);
      c.precision.drafts.reset();
      EXPECT_EQ(narrow, Evaluator(c).simulate(p)) << "types of its own that are the model's";
      EXPECT_GT(wide, narrow);
    }
  }
}

// Experts that compute in BF16 are sent tokens in BF16.
TEST(Drafts, P29AModulesExpertsAreSentWhatTheyComputeIn) {
  Precision p;
  p.dispatch = Dtype::fp4;
  EXPECT_EQ(p.of_drafts().dispatch, Dtype::fp4);
  p.drafts = all_of(Dtype::bf16);
  EXPECT_EQ(p.of_drafts().dispatch, Dtype::bf16);
  EXPECT_EQ(p.of_drafts().of(Module::experts).math, Dtype::bf16);
  EXPECT_EQ(p.of_drafts().of(Module::head).weights, p.of(Module::head).weights);
  p.dispatch = Dtype::fp8;
  p.drafts = all_of(Dtype::fp4);
  EXPECT_EQ(p.of_drafts().dispatch, Dtype::fp8);
}

// Plans share blocks in a search: with types of its own a module's are not a layer's.
TEST(Drafts, P29SearchKeepsAModulesBlocksApart) {
  Case c = r1_case();
  c.precision.drafts = all_of(Dtype::bf16);
  SearchOptions o;
  o.strategies = {strategy_id("tensor"), strategy_id("dp_ep"), strategy_id("helix")};
  o.gpus = {8};
  o.batches = {1, 4};
  Evaluator e(c);
  int drafting = 0;
  for (const auto& [id, frontier] : search(c, o).frontiers) {
    for (const Point& point : frontier.points()) {
      EXPECT_EQ(point.time, e.simulate(point.plan)) << to_string(point.plan);
      drafting += point.plan[kDrafts] > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(drafting, 0);
}

// What a form of accepted drafts is off, all of a time per token is off, and a mean that is given is not.
TEST(Drafts, P28TimesErrAsTheAcceptanceDoes) {
  Case c = r1_case();
  Plan p = plan_of(c, "tensor:tpa=8,ep=8,batch=2");
  p.set(kDrafts, 3);
  const auto terms = [&] {
    Evaluator e(c);
    return rating_of(e, p).errors;
  };
  const auto of_acceptance = [](const ErrorTerms& all) {
    ErrorTerms rest = all.without(kAcceptanceSource);
    return all.all().size() - rest.all().size();
  };
  c.acceptance = std::make_shared<AcceptanceCurve>(AcceptanceForm{0.8, 0.9});
  const ErrorTerms form = terms();
  ASSERT_EQ(of_acceptance(form), 1u);
  const ErrorBand band = c.acceptance->at(3).band;
  for (const ErrorTerm& t : form.all()) {
    if (t.source != kAcceptanceSource) continue;
    EXPECT_DOUBLE_EQ(1 + t.low, std::exp(-band.high));
    EXPECT_DOUBLE_EQ(1 + t.high, std::exp(-band.low));
  }
  EXPECT_GT(time_error(form).high, time_error(form.without(kAcceptanceSource)).high);
  c.acceptance = std::make_shared<AcceptanceCurve>(
      std::vector<MeasuredAcceptance>{{1, 1.8}, {3, c.acceptance->at(3).mean}}, AcceptanceForm{0.8, 0.9});
  EXPECT_EQ(of_acceptance(terms()), 0u);
  EXPECT_EQ(terms(), form.without(kAcceptanceSource));
  p.set(kDrafts, 2);
  EXPECT_EQ(of_acceptance(terms()), 1u);
  p.set(kDrafts, 0);
  EXPECT_EQ(of_acceptance(terms()), 0u);
}

// The search finds, for each budget, what trying every number of drafts finds; and says the evaluator's
// times.
TEST(Drafts, P29SearchTriesEveryNumberOfDrafts) {
  const Case c = r1_case();
  SearchOptions o;
  o.strategies = {strategy_id("tensor")};
  o.gpus = {8};
  o.batches = {1, 2, 3, 4};
  const SearchResult found = search(c, o);
  const std::vector<Point> points = found.frontiers.at(strategy_id("tensor")).points();
  ASSERT_FALSE(points.empty());
  Seconds least = Seconds(1e9);
  Evaluator e(c);
  for (int ep : {1, 2, 4, 8}) {
    for (int k = 0; k <= 8; ++k) {
      Plan p = plan_of(
          c, "tensor:tpa=8,ep=" + std::to_string(ep) + (ep < 8 ? ",tpf=" + std::to_string(8 / ep) : ""));
      p.set(kDrafts, k);
      least = std::min(least, e.simulate(p));
    }
  }
  Seconds best = points.front().time;
  for (const Point& point : points) {
    best = std::min(best, point.time);
    EXPECT_EQ(point.time, e.simulate(point.plan)) << to_string(point.plan);
  }
  EXPECT_EQ(best, least);
  EXPECT_TRUE(std::any_of(points.begin(), points.end(), [](const Point& p) { return p.plan[kDrafts] > 0; }));
}

TEST(Drafts, P29RefusalsSayWhatIsMissing) {
  Case c = dense_case();
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"), "");
  EXPECT_NE(refusal(c, "tensor:tpa=1,drafts=0"), "");
  EXPECT_NE(refusal(c, "tensor:tpa=1,drafts=65"), "");
  EXPECT_EQ(refusal(c, "ring_decode:cp=2,tpa=1,drafts=2"),
            "drafts is for tensor or pipeline or dp_ep or kv_shard or helix or dcp, not ring_decode");
  c.acceptance = nullptr;
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"),
            "drafts need an acceptance: how many of them a step keeps (key speculative)");
  c = dense_case();
  c.model.drafts->ffn.inner += 8;
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"),
            "the module that drafts for llama-3.1-8b is of a kind that none of its layers has");
  c.model.drafts.reset();
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"),
            "llama-3.1-8b has no module of multi-token prediction: drafts need one");
  c = dense_case();
  c.batch.prefill = {{0, 100}};
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"), "") << "beside prompts";
  c.disaggregated = true;
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"), "") << "of a pair";
  c.disaggregated = false;
  EngineProfile silent;
  silent.title = "an engine";
  c.engine = std::make_shared<const EngineProfile>(silent);
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"),
            "the profile of an engine says nothing of steps with drafts");
  c.engine = nullptr;
  c.batch = prefill_batch({{0, 100}});
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"), "drafts is for decoding");
  c.disaggregated = true;
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2"), "") << "prompts for one that drafts";
  EXPECT_EQ(refusal(c, "tensor:tpa=1,drafts=2,prefill_chunk=50"),
            "drafts are not with prompts in several chunks of one step (prefill_chunk)");
}

}  // namespace
}  // namespace shardline
