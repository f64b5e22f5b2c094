#include "tests/planner/support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "hardware/cost/kernel_cost.hpp"
#include "hardware/timing/lowering.hpp"
#include "hardware/timing/unfolder.hpp"
#include "models/model/catalog.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

std::filesystem::path source_path(const std::string& relative) {
  return std::filesystem::path(SHARDLINE_SOURCE_DIR) / relative;
}

const System& catalog_system(const std::string& name) {
  static std::map<std::string, System> known;
  const auto at = known.find(name);
  return at != known.end()
             ? at->second
             : known.emplace(name, load_system(name, source_path("hardware/catalog"))).first->second;
}

Case decode_case(const std::string& model, const std::string& system, long long context) {
  return make_case(load_model(model, source_path("models/catalog")), catalog_system(system),
                   Precision::all_fp4(), context, 16, Routing{});
}

const FeedForward& expert_ffn(const Model& m) {
  return *std::find_if(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return !f.dense(); });
}

const FeedForward& dense_ffn(const Model& m) {
  return *std::find_if(m.ffns.begin(), m.ffns.end(), [](const FeedForward& f) { return f.dense(); });
}

void cut_layers(Case& c, int layers, int dense) {
  Model& m = c.model;
  const auto routing = c.routing;
  const std::vector<FeedForward> before = m.ffns;
  std::vector<FeedForward> ffns;
  for (int i = 0; i < layers; ++i)
    ffns.push_back(has_experts(m) && i >= dense ? expert_ffn(m) : dense_ffn(m));
  set_layers(m, std::vector<Attention>(ffns.size(), m.attentions.front()), ffns);
  c.routing.clear();
  for (const FeedForward& f : m.ffns) {
    const auto at = std::find(before.begin(), before.end(), f) - before.begin();
    c.routing.push_back(routing[static_cast<std::size_t>(at)]);
  }
}

void set_routing(Case& c, const Routing& routing) { c.routing = routing_of(c.model, routing); }

Precision all_bf16() { return {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}}; }

void with_hopb_chunks(SearchSpace& space, std::vector<int> chunks) {
  Plan helix;
  helix.strategy = strategy_id("helix");
  space.options.push_back({&option_of(helix, "chunks"), std::move(chunks)});
}

int value_of(const Plan& plan, std::string_view key) { return plan.options.of(option_of(plan, key)); }

Schedule lowered(const Case& c, const std::string& plan) {
  const Plan p = parse_plan(plan);
  EXPECT_EQ(check_plan(c, p).value_or(""), "") << plan;
  Schedule s;
  lower(s, c, p);
  return s;
}

std::vector<Op> ops_named(const Schedule& s, std::string_view name) {
  std::vector<Op> found;
  for (const Op& op : s.ops) {
    if (op.name == name) found.push_back(op);
  }
  return found;
}

std::string options_text(const Deployment& d) {
  std::string out;
  for (const LaunchOption& e : d.environment) out += e.name + "=" + e.value + " ";
  for (const LaunchOption& o : d.options) out += command_text(o) + " ";
  return out.empty() ? out : out.substr(0, out.size() - 1);
}

void expect_folded_equals_unfolded(const Case& c, const Schedule& s) {
  CostModel cost(c.system);
  PassScratch scratch(cost);
  const PassTime folded = simulate_pass(s, cost, scratch);
  TaskGraph graph;
  lower_unfolded(s, cost, graph);
  EXPECT_NEAR(simulate(graph, cost.machine(s.ranks_per_stage)).makespan() / folded.latency, 1, 1e-12);
  EXPECT_LE(bound_pass(s, cost, scratch).latency, folded.latency * (1 + 1e-12));
}

std::string refusal(const Case& c, const std::string& plan) {
  try {
    return check_plan(c, parse_plan(plan)).value_or("");
  } catch (const UserError& e) {
    const std::string lead = "plan \"" + plan + "\": ", what = e.diagnostics().front().what;
    return what.starts_with(lead) ? what.substr(lead.size()) : what;
  }
}

}  // namespace shardline
