#include "calibrate/validate/helix.hpp"
#include "planner/search/provenance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace shardline {

Seconds Figure1::kv_read(double tpa, double kvp, double context) const {
  return Bytes(batch * 2 * std::ceil(kv_heads / tpa) * head_dim * (context / kvp) * bytes_per_value) /
         bandwidth;
}

Seconds Figure1::weight_read(double tpa, double tpf) const {
  const double elements = 2 * hidden * (q_heads / tpa) * head_dim +
                          2 * hidden * std::ceil(kv_heads / tpa) * head_dim + 3 * hidden * ffn / tpf;
  return Bytes(elements * bytes_per_value) / bandwidth;
}

double Figure1::crossover(double tpa, double tpf, double kvp) const {
  return weight_read(tpa, tpf) / (kv_read(tpa, kvp, 1.0));
}

double lockstep_time(double requests, double attend, double exchange) {
  return requests * (attend + exchange);
}

double hopb_time(int requests, double attend, double exchange) {
  TaskGraph graph;
  Machine machine;
  TaskId last_attend = 0, last_exchange = 0;
  for (int i = 0; i < requests; ++i) {
    std::vector<TaskId> before;
    if (i > 0) before.push_back(last_attend);
    last_attend = graph.add(Seconds(attend), {}, before);
    before = {last_attend};
    if (i > 0) before.push_back(last_exchange);
    last_exchange = graph.add(Seconds(exchange), {}, before);
  }
  return simulate(graph, machine).makespan().value;
}

namespace {

std::string exactness(double published, double ours) {
  return std::abs(ours / published - 1) <= 1e-12 ? "exact" : "DIFFERS";
}

PublishedRow exact_row(std::string what, double published, double ours) {
  return {std::move(what), "Appendix A", published, ours, exactness(published, ours)};
}

}  // namespace

std::vector<PublishedRow> figure1_rows() {
  const Figure1 f;
  std::vector<PublishedRow> rows;
  const auto us = [](Seconds t) { return t.value * 1e6; };
  struct Left {
    double tp, kv_1e6, kv_2p20, weights;
  };
  for (const Left& r : {Left{1, 1024, 1073.741824, 236.978176}, Left{2, 512, 536.870912, 118.489088},
                        Left{4, 256, 268.435456, 59.244544}, Left{8, 128, 134.217728, 29.622272},
                        Left{16, 128, 134.217728, 14.942208}, Left{32, 128, 134.217728, 7.602176},
                        Left{64, 128, 134.217728, 3.93216}}) {
    rows.push_back(
        exact_row(fmt::format("left TP{} KV read, S=1e6, us", r.tp), r.kv_1e6, us(f.kv_read(r.tp, 1, 1e6))));
    rows.push_back(exact_row(fmt::format("left TP{} KV read, S=2^20, us", r.tp), r.kv_2p20,
                             us(f.kv_read(r.tp, 1, 1048576))));
    rows.push_back(
        exact_row(fmt::format("left TP{} weight read, us", r.tp), r.weights, us(f.weight_read(r.tp, r.tp))));
  }
  struct Middle {
    double s, kv;
  };
  for (const Middle& r :
       {Middle{10000, 1.28}, Middle{100000, 12.8}, Middle{231424, 29.622272}, Middle{1000000, 128},
        Middle{2000000, 256}, Middle{4000000, 512}, Middle{8000000, 1024}, Middle{10000000, 1280}}) {
    rows.push_back(exact_row(fmt::format("middle S={} KV read, us", r.s), r.kv, us(f.kv_read(8, 1, r.s))));
  }
  rows.push_back(exact_row("middle weight read at TP8, us", 29.622272, us(f.weight_read(8, 8))));
  struct Right {
    double kvp, kv_1e6, kv_2p20, weights;
  };
  for (const Right& r : {Right{1, 128, 134.217728, 29.622272}, Right{2, 64, 67.108864, 17.03936},
                         Right{4, 32, 33.554432, 10.747904}, Right{8, 16, 16.777216, 7.602176},
                         Right{16, 8, 8.388608, 6.029312}, Right{32, 4, 4.194304, 5.24288},
                         Right{64, 2, 2.097152, 4.849664}}) {
    rows.push_back(exact_row(fmt::format("right KVP{} KV read, S=1e6, us", r.kvp), r.kv_1e6,
                             us(f.kv_read(8, r.kvp, 1e6))));
    rows.push_back(exact_row(fmt::format("right KVP{} KV read, S=2^20, us", r.kvp), r.kv_2p20,
                             us(f.kv_read(8, r.kvp, 1048576))));
    rows.push_back(exact_row(fmt::format("right KVP{} weight read, us", r.kvp), r.weights,
                             us(f.weight_read(8, 8 * r.kvp))));
  }
  rows.push_back(exact_row("crossover context at TP8, tokens", 231424, f.crossover(8, 8, 1)));
  rows.push_back(exact_row("crossover context at TP64, tokens", 30720, f.crossover(64, 64, 1)));
  rows.push_back(exact_row("KV + weights at TP1, S=2^20, us", 1310.72,
                           us(f.kv_read(1, 1, 1048576) + f.weight_read(1, 1))));
  rows.push_back(exact_row("KV + weights at TP8, S=2^20, us", 163.84,
                           us(f.kv_read(8, 1, 1048576) + f.weight_read(8, 8))));
  rows.push_back(exact_row("weight read at TPA8, TPF infinite, us", 4.456448,
                           us(f.weight_read(8, std::numeric_limits<double>::infinity()))));
  return rows;
}

std::vector<PublishedRow> figure3_rows() {
  const double lock = lockstep_time(8, 2.0, 1.2), flow = hopb_time(8, 2.0, 1.2);
  return {{"lock-step, units", "text line 68", 25.6, lock, exactness(25.6, lock)},
          {"HOP-B by flow shop, units", "a + c + (n-1) max(a, c)", 17.2, flow, exactness(17.2, flow)},
          {"HOP-B as printed, units", "text line 68", 17, flow, "printed value is 17.2 rounded down"}};
}

namespace {

// tokens/s/user of the frontier at a tokens/s/GPU level: the fastest point at least that productive.
Seconds fastest_at(const std::vector<Point>& frontier, double tokens_per_s_gpu) {
  Seconds best(std::numeric_limits<double>::infinity());
  for (const Point& p : frontier) {
    if (value(Metric::throughput, p) >= tokens_per_s_gpu) best = std::min(best, p.time);
  }
  return best;
}

double largest_loss(const std::vector<Point>& with, const std::vector<Point>& without) {
  double loss = 0;
  for (const Point& p : without)
    loss = std::max(loss, 1 - fastest_at(with, value(Metric::throughput, p)) / p.time);
  return loss;
}

// TTL if the exchange ran wholly beside the attention kernel: an upper bound of what any overlap can save.
Seconds ideal_overlap(Evaluator& e, const Plan& plan) {
  Seconds ttl = e.simulate(plan);
  const Schedule& s = e.schedule();
  const std::vector<double> runs = executions(s);
  for (BlockIndex index = 0; index < s.blocks.size(); ++index) {
    const Block& b = s.blocks[index];
    Seconds attend, exchange;
    for (OpIndex i = b.first; i < b.last; ++i) {
      const OpCost c = e.cost().price(s.ops[i]);
      // Of a measured time no part is known to be unable to overlap.
      if (is_attention(s.ops[i].kind))
        attend += e.cost().alone(c) - (c.basis == Basis::assumed ? c.latency : Seconds(0));
      if (s.ops[i].part == Part::exchange) exchange += e.cost().alone(c);
    }
    ttl -= std::min(attend, exchange) * runs[index];
  }
  return ttl;
}

// The fastest plan that serves so many users, or more; nullptr: none does.
const Point* fastest_with(const std::vector<Point>& frontier, long long users) {
  const Point* best = nullptr;
  for (const Point& p : frontier) {
    if (p.plan.users() >= users && (best == nullptr || p.time < best->time)) best = &p;
  }
  return best;
}

// Of candidate over baseline, by measured costs.
std::optional<ErrorBand> band_of_ratio(const Study& study, const Plan& baseline, const Plan& candidate) {
  if (study.study.system.calibration.empty()) return std::nullopt;
  Evaluator e(study.study, study.sweep().search.all_reduce);
  const ErrorTerms slower = rating_of(e, baseline).errors;
  return ratio_band(slower, rating_of(e, candidate).errors);
}

void compare_equal_users(const Study& study, FrontierRatios& r) {
  SearchOptions o = study.sweep().search;
  o.x = Metric::time;
  o.y = Metric::entries;
  const auto frontier = [&](const std::vector<StrategyId>& strategies) {
    o.strategies = strategies;
    return search(study.study, o).overall().points();
  };
  const std::vector<Point> candidate = frontier(study.sweep().compare.candidate),
                           baseline = frontier(study.sweep().compare.baseline);
  const Point *best = nullptr, *beside = nullptr;
  for (const Point& p : candidate) {
    const Point* other = fastest_with(baseline, p.plan.users());
    if (other == nullptr || other->time / p.time <= r.equal_users) continue;
    r.equal_users = other->time / p.time;
    r.at_users = p.plan.users();
    best = &p;
    beside = other;
  }
  if (best != nullptr) r.equal_users_band = band_of_ratio(study, beside->plan, best->plan);
}

}  // namespace

FrontierRatios frontier_ratios(const Study& study) {
  FrontierRatios r;
  SearchOptions o = study.sweep().search;
  const SearchResult all = search(study.study, o);
  const std::vector<Point> candidate = all.of(study.sweep().compare.candidate).points();
  const std::vector<Point> baseline = all.of(study.sweep().compare.baseline).points();
  const Gain g = gain(candidate, baseline);
  r.interactivity = g.interactivity;
  r.throughput = g.throughput;
  r.geometric_mean = g.geometric_mean;
  r.baseline_ttl = baseline.back().time;
  r.candidate_ttl = candidate.back().time;
  r.baseline_plan = to_string(baseline.back().plan);
  r.candidate_plan = to_string(candidate.back().plan);

  compare_equal_users(study, r);

  // "Users at the same budget": one request on 64 GPUs under TP, against Helix on the same 64.
  Evaluator e(study.study, o.all_reduce);
  r.interactivity_band = band_of_ratio(study, baseline.back().plan, candidate.back().plan);
  Plan tp;
  tp.tpa = tp.tpf = 64;
  const Seconds budget = e.simulate(tp);
  o.gpus = {64};
  o.strategies = study.sweep().compare.candidate;
  o.x = Metric::time;
  o.y = Metric::entries;
  for (const Point& p : search(study.study, o).overall().points()) {
    if (p.time <= budget) r.users = std::max(r.users, static_cast<double>(p.plan.users()));
  }

  SearchOptions off = study.sweep().search;
  off.strategies = study.sweep().compare.candidate;
  std::erase_if(off.space.options, [](const OptionRange& range) { return range.option->of_batch; });
  off.keep_all = true;
  const SearchResult without = search(study.study, off);
  const std::vector<Point> off_frontier = without.overall().points();
  r.hopb_off = largest_loss(candidate, off_frontier);
  Frontier ideal(off.x, off.y);
  std::uint64_t order = 0;
  for (const Point& p : without.all) {
    if (p.plan.pp > 1) continue;
    Point q = p;
    q.time = ideal_overlap(e, p.plan);
    ideal.add(q, order++);
  }
  r.hopb_ideal = largest_loss(ideal.points(), off_frontier);
  return r;
}

std::vector<Setting> sensitivity_settings() {
  Setting measured{"measured costs"}, base{"assumed parameters"};
  measured.measured = true;
  std::vector<Setting> out{measured, base};
  const auto vary = [&](const char* name, double Setting::*member, double factor) {
    Setting s = base;
    s.name = name;
    s.*member = factor;
    out.push_back(s);
  };
  vary("assumed, collective latency 2 us (x 0.5)", &Setting::latency_factor, 0.5);
  vary("assumed, collective latency 5 us (x 1.25)", &Setting::latency_factor, 1.25);
  vary("assumed, achieved bandwidth 0.75 of peak", &Setting::memory_factor, 0.75 / 0.85);
  vary("assumed, achieved bandwidth 0.95 of peak", &Setting::memory_factor, 0.95 / 0.85);
  vary("assumed, kernel cost 2 us", &Setting::kernel_factor, 0.8);
  vary("assumed, kernel cost 3.5 us", &Setting::kernel_factor, 1.4);
  Setting nvls = base;
  nvls.name = "assumed, all-reduce by NVLS only (\"paper-fit\")";
  nvls.all_reduce = AllReduceRule::nvls;
  out.push_back(nvls);
  return out;
}

Study with_setting(Study study, const Setting& s) {
  System& system = study.study.system;
  if (!s.measured) system.calibration = {};
  system.fabric.nvlink.latency *= s.latency_factor;
  system.device.memory_efficiency = std::min(1.0, system.device.memory_efficiency * s.memory_factor);
  system.device.kernel_cost *= s.kernel_factor;
  study.sweep().search.all_reduce = s.all_reduce;
  return study;
}

}  // namespace shardline
