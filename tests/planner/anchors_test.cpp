// Agreement with an independent implementation: 180 decode steps computed by a closed-form Python prototype
// from the equations of planner/README.md (tests/published/helix_anchors.csv). They test the equations'
// coding, not the paper.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "models/model/catalog.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

struct Anchor {
  std::string setting, model;
  Plan plan;
  long long context = 0;
  double ttl_ms = 0;
  bool fits = false;
  double weights = 0, kv_per_request = 0;
  std::string text;
};

std::vector<Anchor> anchors() {
  std::ifstream file(source_path("tests/published/helix_anchors.csv"));
  std::string line;
  std::getline(file, line);
  std::vector<Anchor> out;
  while (std::getline(file, line)) {
    std::vector<std::string> f;
    std::stringstream s(line);
    for (std::string cell; std::getline(s, cell, ',');) f.push_back(cell);
    Anchor a;
    a.text = line.substr(0, 80);
    a.setting = f[0];
    a.model = f[1];
    a.plan.strategy = id_of(strategy(f[2]));
    a.plan.pp = a.plan.in_flight = std::stoi(f[4]);
    a.plan.tpa = std::stoi(f[5]);
    a.plan.kvp = std::stoi(f[6]);
    a.plan.dp = std::stoi(f[7]);
    a.plan.tpf = std::stoi(f[8]);
    a.plan.ep = std::stoi(f[9]);
    a.plan.batch = std::stoi(f[10]);
    a.context = std::stoll(f[11]);
    a.ttl_ms = std::stod(f[12]);
    a.fits = f[14] == "1";
    a.weights = std::stod(f[15]);
    a.kv_per_request = std::stod(f[16]);
    out.push_back(a);
  }
  return out;
}

Case anchor_case(const Anchor& a) {
  Case c = decode_case(a.model, "gb200-nvl72", a.context);
  c.system.calibration = {};                  // the prototype knows parameters only
  c.kv_block = 1;                             // the prototype splits S evenly
  c.precision = Precision::of_helix_paper();  // ... and counts 0.5 B for FP4, as the paper does
  if (a.setting == "pure_roofline") {
    c.system.device.memory_efficiency = c.system.device.compute_efficiency = 1;
    c.system.device.kernel_cost = Seconds(0);
    c.system.fabric.nvlink.latency = Seconds(0);
    c.system.fabric.nvlink.efficiency = 1;
  }
  return c;
}

AllReduceRule rule_of(const Anchor& a) {
  return a.setting.starts_with("mean_nvls") ? AllReduceRule::nvls : AllReduceRule::fastest;
}

// Kernels that the prototype does not have: norms without an all-reduce to ride on.
Seconds norms(Evaluator& e) {
  Seconds sum;
  const Schedule& s = e.schedule();
  const std::vector<double> runs = executions(s);
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
      if (std::string_view(s.ops[i].name) == "residual and norm")
        sum += e.cost().alone(e.cost().price(s.ops[i])) * runs[b];
    }
  }
  return sum;
}

// Where the prototype does less than we do: it charges every pipeline stage as the largest one, with the LM
// head once, and does not gather what a stage was handed; after a dense FFN over several attention groups it
// leaves the tokens scattered, where we gather them; and it has no norms.
double prototype_ttl(Evaluator& e, const Case& c, const Plan& plan, AllReduceRule rule) {
  if (plan.pp == 1) {
    Seconds ttl = e.simulate(plan);
    ttl -= norms(e);
    for (const Op& op : e.schedule().ops) {
      // Blocks: attention, dense FFN, ...
      const bool dense_gather = std::string_view(op.name) == "gather group" && plan.dense_tp > plan.group() &&
                                &op < &e.schedule().ops[e.schedule().blocks[1].last];
      if (dense_gather) ttl -= e.cost().alone(e.cost().price(op)) * dense_layers(c.model);
    }
    return ttl.value;
  }
  const Breakdown b = break_down(e, plan);
  Seconds hand_offs;
  for (const Op& op : e.schedule().ops) {
    if (op.kind == OpKind::send_recv) hand_offs += e.cost().alone(e.cost().price(op)) * plan.pp;
  }
  const int largest = (c.model.layers() + plan.pp - 1) / plan.pp;
  Plan stage = plan;
  Case one = c;
  cut_layers(one, largest, 0);
  stage.pp = stage.in_flight = 1;
  stage.strategy = strategy_id("tensor");
  Evaluator single(one, rule);
  const Seconds head = b.parts[static_cast<std::size_t>(Part::head)];
  const Breakdown s = break_down(single, stage);
  const Seconds layers = s.time - s.parts[static_cast<std::size_t>(Part::head)] - norms(single);
  return (layers * plan.pp + head + hand_offs).value;
}

TEST(Anchors, PrototypeTtl) {
  int compared = 0;
  for (const Anchor& a : anchors()) {
    if (a.setting == "mean_nvls_ideal") continue;  // an overlap without chunks: see HopB.IdealOverlap
    SCOPED_TRACE(a.text);
    const Case c = anchor_case(a);
    Evaluator e(c, rule_of(a));
    const bool overlap = a.setting == "mean_best" || a.setting == "mean_nvls";
    double best = std::numeric_limits<double>::infinity();
    std::string best_plan;
    for (const char* order : {"", "before", "after"}) {
      for (int chunks = 1; chunks <= (overlap ? a.plan.batch : 1); chunks *= 2) {
        for (const int dense : {a.plan.ranks_per_stage(), a.plan.group()}) {
          Plan p = a.plan;
          const bool helix = p.strategy == strategy_id("helix");
          if (!helix && (*order != '\0' || chunks > 1)) continue;
          if (*order != '\0') set_option(p, "value_up", order);
          if (helix) set_option(p, "chunks", chunks);
          if (p.dp > 1) p.dense_tp = dense;
          if (check_plan(c, p)) continue;
          const double t = prototype_ttl(e, c, p, rule_of(a));
          if (t < best) best = t, best_plan = to_string(p);
        }
      }
    }
    SCOPED_TRACE(best_plan);
    EXPECT_NEAR(best * 1e3 / a.ttl_ms, 1.0, 1e-6);
    ++compared;
  }
  EXPECT_EQ(compared, 144);
}

}  // namespace
}  // namespace shardline
