// What predictions rest on: shares of every strategy and plan, on systems with and without a calibration.
#include "planner/search/provenance.hpp"
#include "planner/strategies/strategy.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "planner/scenario/scenario.hpp"
#include "planner/search/search.hpp"
#include "planner/studies/conversation.hpp"
#include "planner/studies/ring_timing.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

void expect_sum_of_one(const Shares& s) {
  EXPECT_NEAR(s.measured + s.fitted + s.extrapolated + s.assumed, 1, 1e-12);
  for (const double part : {s.measured, s.fitted, s.extrapolated, s.assumed}) EXPECT_GE(part, 0);
}

Seconds sum(const auto& times) {
  Seconds all;
  for (const Seconds t : times) all += t;
  return all;
}

Case prefill_case(const std::string& system, std::vector<Segment> requests) {
  Case c = decode_case("llama-3.1-405b", system, 0);
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::fp8, Dtype::fp8};
  c.batch = prefill_batch(std::move(requests));
  cut_layers(c, 4, 4);
  return c;
}

// f(strategy, plan) for some plans of every strategy and GPU count: every seventh, and all of small counts.
template <class F>
void for_some_plans(const Case& c, F f) {
  SearchSpace space;
  space.duplicate_kv = true;
  with_hopb_chunks(space, {1, 4});
  for (const Strategy* s : strategies()) {
    for (const int gpus : {1, 4, 8, 48, 64}) {
      std::vector<Plan> plans;
      s->enumerate(c, gpus, space, plans);
      for (std::size_t i = 0; i<plans.size(); i += gpus> 8 ? 7 : 1) {
        Plan p = plans[i];
        p.batch = std::max(least_batch(c, p), 4);
        if (check_plan(c, p)) continue;
        SCOPED_TRACE(to_string(p));
        f(*s, p);
      }
    }
  }
}

std::set<std::string> every_kind(const Case& c, const std::function<void(const Breakdown&)>& check) {
  Evaluator e(c);
  std::set<std::string> seen;
  for_some_plans(c, [&](const Strategy& s, const Plan& p) {
    seen.insert(s.name);
    const Breakdown b = break_down(e, p);
    EXPECT_NEAR(sum(b.bases) / (b.time - b.waiting), 1, 1e-12);
    EXPECT_NEAR(sum(b.bases) / sum(b.parts), 1, 1e-12);
    EXPECT_EQ(b.bases[static_cast<std::size_t>(Basis::none)], Seconds(0));
    for (std::size_t i = 0; i < kBases; ++i)
      EXPECT_NEAR(sum(b.basis_parts[i]).value, b.bases[i].value, 1e-12 * b.time.value);
    for (std::size_t part = 0; part < b.parts.size(); ++part) {
      Seconds limits;
      for (std::size_t i = 0; i < kLimits; ++i) limits += b.limit_parts[i][part];
      EXPECT_NEAR(limits.value, b.parts[part].value, 1e-12 * b.time.value);
    }
    expect_sum_of_one(shares(b));
    check(b);
  });
  return seen;
}

TEST(Provenance, SharesOfEveryStrategySumToOne) {
  std::set<std::string> seen, all;
  for (const Strategy* s : strategies()) all.insert(s->name);
  for (const char* system : {"gb200-nvl72", "h100-gtt"}) {  // calibrated, and not
    SCOPED_TRACE(system);
    for (const char* model : {"deepseek-r1", "llama-3.1-405b"}) {
      Case c = decode_case(model, system, 100'000);
      if (c.system.device.achieved(Dtype::fp4) <= FlopsPerSecond(0))
        c.precision = {Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8, {}, {}};
      seen.merge(every_kind(c, [](const Breakdown&) {}));
    }
    // Even and uneven shards: folded, and one rank of each class.
    for (const auto& requests : std::vector<std::vector<Segment>>{{{0, 65'536}}, {{70'001, 5'003}}})
      seen.merge(every_kind(prefill_case(system, requests), [](const Breakdown&) {}));
  }
  EXPECT_EQ(seen, all);
}

TEST(Provenance, WithoutACalibrationAllIsAssumed) {
  for (const char* system : {"h100-gtt", "gb200-nvl72"}) {
    for (Case c : {decode_case("deepseek-r1", system, 100'000), prefill_case(system, {{70'001, 5'003}})}) {
      c.system.calibration = {};
      if (c.system.device.achieved(Dtype::fp4) <= FlopsPerSecond(0))
        c.precision = {Dtype::fp8, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8, {}, {}};
      every_kind(c, [](const Breakdown& b) { EXPECT_NEAR(shares(b).assumed, 1, 1e-12); });
    }
  }
}

TEST(Provenance, ABorrowedCalibrationMeasuresNothing) {
  double extrapolated = 0;
  for (const Case& c :
       {decode_case("deepseek-r1", "gb300-nvl72", 100'000), prefill_case("gb300-nvl72", {{0, 65'536}})}) {
    every_kind(c, [&](const Breakdown& b) {
      const Shares s = shares(b);
      EXPECT_EQ(s.measured, 0);
      EXPECT_EQ(s.fitted, 0);
      extrapolated = std::max(extrapolated, s.extrapolated);
    });
    EXPECT_NE(costs_text(c.system).find("from measurements of gb200-nvl72"), std::string::npos);
  }
  EXPECT_GT(extrapolated, 0.9);
}

Basis basis_of_attention(Evaluator& e, const char* plan) {
  e.simulate(parse_plan(plan));
  for (const Op& op : e.schedule().ops)
    if (is_attention(op.kind)) return e.cost().price(op).basis;
  return Basis::none;
}

// Decode attention was measured up to 131072 cached tokens.
TEST(Provenance, ALongCacheOnOneRankIsExtrapolatedAndItsShardsAreMeasured) {
  Case c = decode_case("deepseek-r1", "gb200-nvl72", 1 << 20);
  c.precision.kv = Dtype::fp8;
  Evaluator e(c);
  EXPECT_EQ(basis_of_attention(e, "tensor:tpa=8,tpf=8,batch=4"), Basis::extrapolated);
  EXPECT_EQ(basis_of_attention(e, "helix:kvp=32,tpf=32,batch=4,value_up=after"), Basis::measured);
  const Shares whole = shares(break_down(e, parse_plan("tensor:tpa=8,tpf=8,batch=4"))),
               shards = shares(break_down(e, parse_plan("helix:kvp=32,tpf=32,batch=4,value_up=after")));
  EXPECT_GT(whole.extrapolated, shards.extrapolated + 0.2);
  // No kernel was measured with a cache of FP4.
  c.precision.kv = Dtype::fp4;
  EXPECT_EQ(basis_of_attention(e, "helix:kvp=32,tpf=32,batch=4,value_up=after"), Basis::extrapolated);
}

// An option of the command line goes before the file; either way the text says so.
TEST(Provenance, ParametersAloneLeaveTheCalibrationOut) {
  const Catalogs catalogs{source_path("models/catalog"), source_path("hardware/catalog"),
                          source_path("scenarios")};
  const auto system_of = [&](const std::string& system, const std::string& line, std::optional<Costs> costs) {
    const std::string text = "name: t\nsystem: " + system + "\n" + line +
                             "models: [llama-3.1-8b]\ncontext: 128Ki tokens\n"
                             "precision: {weights: fp8, kv: fp8, math: fp8}\n"
                             "strategies: [tensor]\ngpus: [1]\nbatch: [1]\n";
    return parse_scenario("t.yaml", text, catalogs, {costs, ""}).studies.at(0).study.system;
  };
  const std::string parameters = "costs: parameters\n", calibrated = "costs: calibrated\n";
  for (const auto& [line, option, used] : std::vector<std::tuple<std::string, std::optional<Costs>, bool>>{
           {"", {}, true},
           {calibrated, {}, true},
           {parameters, {}, false},
           {parameters, Costs::calibrated, true},
           {calibrated, Costs::parameters, false},
           {"", Costs::parameters, false}}) {
    const System s = system_of("h200-hgx", line, option);
    EXPECT_EQ(s.calibration.empty(), !used) << line;
    if (used) {
      EXPECT_EQ(costs_text(s), "fitted to measurements of h200-hgx: " + s.calibration.source + " (" +
                                   s.calibration.date + "); kernels of trtllm 1.3.0rc20");
    } else {
      EXPECT_EQ(costs_text(s), "assumptions of the system file of h200-hgx, without its calibration");
    }
  }
  EXPECT_EQ(costs_text(system_of("h100-gtt", "", Costs::calibrated)),
            "assumptions of the system file of h100-gtt, which has no calibration");
}

// A copy of a catalogue system is that system until its device is another one.
TEST(Provenance, ACopyWithAnotherDeviceMeasuresNothing) {
  Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 100'000);
  c.precision = {Dtype::fp8_dynamic, Dtype::fp8, Dtype::fp8, Dtype::bf16, Dtype::fp8};
  c.system.name = "home-made";
  const Plan plan = parse_plan("tensor:tpa=8,tpf=8,batch=4");
  {
    Evaluator e(c);
    EXPECT_GT(rating_of(e, plan).shares.measured, 0.5);
    EXPECT_EQ(costs_text(c.system).find("fitted to measurements of gb200-nvl72: "), 0u);
  }
  c.system.device.memory_bandwidth *= 0.5;
  Evaluator e(c);
  EXPECT_EQ(rating_of(e, plan).shares.measured, 0);
  EXPECT_EQ(rating_of(e, plan).shares.fitted, 0);
  EXPECT_EQ(costs_text(c.system).find("extrapolated to home-made from measurements of gb200-nvl72, which has "
                                      "another device.memory.bandwidth: "),
            0u);
}

TEST(Provenance, SharesOfManyPlansAreThoseOfEach) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 1'000'000);
  std::vector<Plan> plans;
  strategy("helix").enumerate(c, 16, SearchSpace{}, plans);
  ASSERT_GT(plans.size(), 8u);
  const auto one = ratings_of(c, AllReduceRule::fastest, plans, 1),
             three = ratings_of(c, AllReduceRule::fastest, plans, 3);
  Evaluator e(c);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Shares s = shares(break_down(e, plans[i]));
    for (const auto part : {&Shares::measured, &Shares::fitted, &Shares::extrapolated, &Shares::assumed}) {
      EXPECT_EQ(one[i].shares.*part, three[i].shares.*part);
      EXPECT_EQ(one[i].shares.*part, s.*part);
    }
    EXPECT_EQ(one[i].errors, three[i].errors);
  }
}

TEST(Provenance, EveryPriceFromAFitNamesIt) {
  const Case c = decode_case("llama-3.1-405b", "gb200-nvl72", 100'000);
  Evaluator e(c);
  e.simulate(parse_plan("tensor:tpa=8,tpf=8,batch=4"));
  std::set<std::string> fits;
  for (const Op& op : e.schedule().ops) {
    const OpCost cost = e.cost().price(op);
    if (cost.basis == Basis::measured) {
      ASSERT_NE(cost.fit, nullptr) << op.name;
    }
    if (cost.fit) fits.insert(cost.fit->name());
  }
  EXPECT_TRUE(fits.contains("gemm nvfp4 flashinfer_cutedsl_nvfp4")) << fits.size();
}

// Both are of one implementation, and each names its own fit.
TEST(Provenance, DispatchAndCombineNameTheirFit) {
  const Case c = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
  Evaluator e(c);
  e.simulate(parse_plan("dp_ep:dp=16,tpa=2,ep=32,batch=2"));
  std::map<std::string, std::string> fits;
  for (const Op& op : e.schedule().ops) {
    if (op.kind != OpKind::dispatch && op.kind != OpKind::combine) continue;
    const OpCost cost = e.cost().price(op);
    ASSERT_NE(cost.fit, nullptr) << op.name;
    fits[op.name] = cost.fit->name();
  }
  ASSERT_EQ(fits.size(), 2u);
  EXPECT_TRUE(fits["dispatch"].starts_with("alltoall trtllm_nvlink_one_sided dispatch")) << fits["dispatch"];
  EXPECT_TRUE(fits["combine"].starts_with("alltoall trtllm_nvlink_one_sided combine")) << fits["combine"];
}

// [M13]: tokens of even routing stand for those of uneven routing, which nobody measured.
TEST(Provenance, UnevenRoutingIsNotMeasured) {
  const auto bases = [](const Routing& routing) {
    Case c = decode_case("deepseek-r1", "gb200-nvl72", 100'000);
    set_routing(c, routing);
    Evaluator e(c);
    e.simulate(parse_plan("dp_ep:dp=32,ep=32,batch=32"));
    std::vector<Basis> out;
    for (const Op& op : e.schedule().ops) {
      if (op.kind == OpKind::dispatch || op.kind == OpKind::combine) out.push_back(e.cost().price(op).basis);
    }
    return out;
  };
  const std::vector<Basis> measured(2, Basis::measured), fitted(2, Basis::fitted);
  EXPECT_EQ(bases({}), measured);
  EXPECT_EQ(bases({RoutingKind::zipf, 1, ExpertLoad::busiest}), fitted);
  EXPECT_EQ(bases({RoutingKind::zipf, 1, ExpertLoad::mean}), fitted);
}

TEST(Provenance, OfATurnWeighsPrefillAndAnswerByTime) {
  Study s;
  s.study = prefill_case("h200-hgx", {});
  s.study.persistent_kv = true;
  s.question = Conversation{4, 8, {{8'000, 0}, {2'000, 500}}};
  for (const TurnTime& turn : converse(s)) {
    expect_sum_of_one(turn.shares);
    EXPECT_LT(turn.shares.assumed, 1);
  }
  s.study.system.calibration = {};
  for (const TurnTime& turn : converse(s)) EXPECT_NEAR(turn.shares.assumed, 1, 1e-12);
}

TEST(Provenance, OfRingsIsAMeanOverBothVariants) {
  const Case c = prefill_case("h200-hgx", {});
  const std::vector<RingPoint> requests{{4, 8'192, 0, {}, {}}, {4, 1'024, 64'000, {}, {}}};
  Shares mean;
  for (const RingPoint& p : requests) {
    for (const char* plan : {"ring_pass_kv:cp=4,tpa=8,tpf=8", "ring_pass_q:cp=4,tpa=8,tpf=8"}) {
      Case one = c;
      one.batch = prefill_batch({{p.cached, p.fresh}});
      Evaluator e(one);
      mean += shares(break_down(e, parse_plan(plan))) * 0.25;
    }
  }
  const Shares s = ring_shares(c, 4, 8, requests, 16, 2);
  expect_sum_of_one(s);
  EXPECT_NEAR(s.measured, mean.measured, 1e-12);
  EXPECT_NEAR(s.assumed, mean.assumed, 1e-12);
}

}  // namespace
}  // namespace shardline
