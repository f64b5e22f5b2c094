#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/cli/sweep_parts.hpp"
#include "planner/layers/context_step.hpp"
#include "planner/studies/ring_timing.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"
#include "reports/threshold_header.hpp"
#include "reports/threshold_tables.hpp"

namespace shardline::cli {

namespace {

struct ThresholdsOptions {
  std::string scenario, costs, out;
  int threads = 0;
};

constexpr int kRated = 16;  // requests whose time is broken down: that takes longer than timing them

struct Rule {
  std::string name;
  RingChoice choice;
};

// All that is derived for one model.
struct Derived {
  std::vector<LookupTable> tables;
  std::vector<EmpiricalRule> empirical;
  std::vector<RefinedTable> refined;
  std::vector<std::vector<RingPoint>> tests;  // by CP size, off the grid
  std::vector<Shares> shares;                 // by CP size, of the time of some of them
  std::vector<Rule> rules;
};

std::size_t index_of(const ThresholdGrid& g, int ranks) {
  return static_cast<std::size_t>(std::find(g.cp.begin(), g.cp.end(), ranks) - g.cp.begin());
}

void derive(const Study& study, int threads, Derived& d) {
  const ThresholdGrid& g = study.thresholds;
  const RingTimer time = ring_timer(study.study, g.tpa, threads);
  Progress progress(study.study.model.name, Progress::terminal());
  for (std::size_t i = 0; i < g.cp.size(); ++i) {
    if (interrupted()) throw UserError("interrupted; nothing was written");
    progress.show(i, g.cp.size());
    DerivedTable derived = derive_table(g, g.cp[i], time);
    d.refined.push_back(std::move(derived.refined));
    d.tests.push_back(std::move(derived.tests));
    d.shares.push_back(ring_shares(study.study, g.cp[i], g.tpa, d.tests.back(), kRated, threads));
    const RefinedTable& r = d.refined.back();
    d.tables.push_back(r.table);
    // The probes cluster where the choice jumps; the fit is of the grid.
    d.empirical.push_back(fit_empirical(std::span(r.points).first(r.grid_points)));
  }
  const RingSetting peak = ring_setting(study.study, g.cp.back(), g.tpa, false),
                    achieved = ring_setting(study.study, g.cp.back(), g.tpa, true);
  const auto analytic = [](AnalyticRule (*make)(const RingSetting&, int), RingSetting s) {
    return [make, s](int n, long long t, long long p) { return make(s, n).pass_kv(t, p); };
  };
  d.rules = {
      {"lookup table",
       [&](int n, long long t, long long p) { return nearest_table(d.tables, n).pass_kv(t, p); }},
      {"fitted h(T, P)",
       [&](int n, long long t, long long p) { return d.empirical[index_of(g, n)].pass_kv(t, p); }},
      {"Appendix D as printed", [](int, long long t, long long p) { return appendix_d().pass_kv(t, p); }},
      {"Algorithm 1, peaks", analytic(algorithm_1, peak)},
      {"Algorithm 1, achieved", analytic(algorithm_1, achieved)},
      {"Algorithm 5, peaks", analytic(algorithm_5, peak)},
      {"Algorithm 5, achieved", analytic(algorithm_5, achieved)},
      {"always pass KV", [](int, long long, long long) { return true; }},
      {"always pass Q", [](int, long long, long long) { return false; }}};
}

std::string percent(double v) { return fmt::format("{:.3f} %", 100 * v); }

// "80.0 % measured, 20.0 % extrapolated"
std::string rests_on(const Shares& s) {
  std::string out;
  for (const auto& [name, share] :
       {std::pair{"measured", s.measured}, std::pair{"fitted", s.fitted},
        std::pair{"extrapolated", s.extrapolated}, std::pair{"assumed", s.assumed}})
    if (share >= 0.0005) out += fmt::format("{}{:.1f} % {}", out.empty() ? "" : ", ", 100 * share, name);
  return out;
}

void print(const Study& study, const Derived& d) {
  const ThresholdGrid& g = study.thresholds;
  fmt::print("{}: pass KV or pass Q, rings of {} GPUs each\n", study.title, g.tpa);
  std::size_t timed = 0;
  for (std::size_t i = 0; i < g.cp.size(); ++i) timed += d.refined[i].points.size() + d.tests[i].size();
  fmt::print(
      "  {} requests timed by events, both variants; every rule judged on requests it was not derived "
      "from\n  costs: {}\n\n",
      count(timed), costs_text(study.study.system));
  for (std::size_t i = 0; i < g.cp.size(); ++i) {
    const std::size_t kv = static_cast<std::size_t>(
        std::count_if(d.tests[i].begin(), d.tests[i].end(), [](const RingPoint& p) { return p.kv_wins(); }));
    fmt::print(
        "  CP{}: {} test requests, pass-KV faster in {}; table of {} bytes; h = {:.3f} ln T + {:.3f} "
        "ln(T/(T+P)) + {:.3f}"
        " (paper: -1.059, 1.145, 12.112)\n",
        g.cp[i], d.tests[i].size(), kv, d.tables[i].bytes(), d.empirical[i].alpha(), d.empirical[i].beta(),
        d.empirical[i].gamma());
    for (const bool achieved : {false, true}) {
      const AnalyticRule a = algorithm_5(ring_setting(study.study, g.cp.back(), g.tpa, achieved), g.cp[i]);
      fmt::print(
          "    {} rates: Q message smaller below {:.1f} % miss rate (Eq. 1), KV hidden from T = {:.0f} (Eq. "
          "2), Q hidden "
          "from T+P = {:.0f} (Eq. 3)\n",
          achieved ? "achieved" : "peak", 100 * a.message_ratio, a.kv_hidden_tokens * g.cp[i],
          a.all_to_all_tokens * g.cp[i]);
    }
    if (!study.study.system.calibration.empty())
      fmt::print("    what the time of {} of these requests rests on: {}\n",
                 std::min<std::size_t>(kRated, d.tests[i].size()), rests_on(d.shares[i]));
    Table t({"rule", "right", "mean regret", "p99", "worst", "worst at T", "P"});
    for (const Rule& rule : d.rules) {
      const Regret r = regret(d.tests[i], rule.choice);
      t.add({rule.name,
             fmt::format("{:.1f} %", 100.0 * static_cast<double>(r.right) /
                                         static_cast<double>(std::max<std::size_t>(1, r.points))),
             percent(r.mean), percent(r.p99), percent(r.worst),
             r.worst > 0 ? std::to_string(r.worst_at.fresh) : "",
             r.worst > 0 ? std::to_string(r.worst_at.cached) : ""});
    }
    fmt::print("{}\n", t.text());
  }
}

ThresholdLine plain(const EmpiricalRule& r) {
  return {r.alpha(), r.beta(), r.gamma(), r.fixed().fresh, r.fixed().miss, r.fixed().constant};
}

ThresholdRules rules_of(const Study& study, const Derived& d, const Provenance& made_by) {
  const ThresholdGrid& g = study.thresholds;
  const Precision& p = study.study.precision;
  const AnalyticRule a = algorithm_5(ring_setting(study.study, g.cp.back(), g.tpa, true), g.cp.front());
  ThresholdRules out;
  out.provenance = {study.study.model.name,
                    fmt::format("{}, TP{} in each rank; costs: {}", study.study.system.name, g.tpa,
                                costs_text(study.study.system)),
                    made_by.version,
                    made_by.command,
                    fmt::format("T from {} to {} tokens, T/(T+P) from {:.4g} to 1, T+P up to {} tokens",
                                g.fresh_from, g.fresh_to, g.lowest_miss_rate, g.total_to),
                    fmt::format("weights {}, KV cache {}, activations {}", to_string(p.weights),
                                to_string(p.kv), to_string(p.activations))};
  out.kv_hidden_tokens = a.kv_hidden_tokens;
  out.message_ratio = a.message_ratio;
  out.all_to_all_tokens = a.all_to_all_tokens;
  out.appendix_d = plain(appendix_d());
  for (std::size_t i = 0; i < g.cp.size(); ++i) {
    const LookupTable& t = d.tables[i];
    out.rings.push_back({g.cp[i], plain(d.empirical[i]), t.grid().miss_per_octave, t.grid().miss_nodes,
                         t.grid().fresh, t.lines(), t.step(), t.values()});
  }
  return out;
}

// Miss rate below which a rule passes Q at T new tokens, nothing if it never changes its mind.
std::optional<double> boundary(const ThresholdGrid& g, const RingChoice& choice, int ranks, double fresh) {
  const auto kv = [&](double miss) {
    return choice(ranks, std::llround(fresh), std::llround(fresh / miss - fresh));
  };
  double low = std::max(g.lowest_miss_rate, fresh / static_cast<double>(g.total_to)), high = 1;
  if (low >= high || kv(low) == kv(high)) return std::nullopt;
  const bool at_low = kv(low);
  for (int i = 0; i < 40; ++i) {
    const double middle = std::sqrt(low * high);
    (kv(middle) == at_low ? low : high) = middle;
  }
  return high;
}

Plot winner_map(const Study& study, const Derived& d, std::size_t i, const Provenance& made_by) {
  const ThresholdGrid& g = study.thresholds;
  Plot plot;
  plot.title = fmt::format("{}, CP{}: the faster ring variant", study.title, g.cp[i]);
  plot.x_label = "new tokens T";
  plot.y_label = "miss rate T/(T+P)";
  plot.log_x = plot.log_y = true;
  plot.footnote = "shardline " + made_by.version + ": " + made_by.command;
  PlotSeries kv{"pass-KV faster", PlotStyle::points, {}}, q{"pass-Q faster", PlotStyle::points, {}};
  for (std::size_t k = 0; k < std::min<std::size_t>(d.tests[i].size(), 1200); ++k) {
    const RingPoint& p = d.tests[i][k];
    (p.kv_wins() ? kv : q).points.emplace_back(static_cast<double>(p.fresh), p.miss_rate());
  }
  plot.series = {kv, q};
  for (const std::size_t r : {0u, 1u, 2u, 4u, 6u}) {
    PlotSeries line{"boundary: " + d.rules[r].name, PlotStyle::line, {}};
    for (double t = static_cast<double>(g.fresh_from); t <= static_cast<double>(g.fresh_to); t *= 1.03) {
      if (const auto m = boundary(g, d.rules[r].choice, g.cp[i], t)) line.points.emplace_back(t, *m);
    }
    if (!line.points.empty()) plot.series.push_back(std::move(line));
  }
  return plot;
}

// Figure 9: both variants at a fixed length of new and cached tokens together.
Plot ratio_plot(const Study& study, const RingTimer& time, const Provenance& made_by) {
  const ThresholdGrid& g = study.thresholds;
  const long long total = std::min<long long>(g.total_to, 128'000);
  Plot plot;
  plot.title = fmt::format("{}: TTFT of pass-Q over pass-KV, T + P = {} tokens", study.title, total);
  plot.x_label = "miss rate T/(T+P) (%)";
  plot.y_label = "TTFT ratio pass-Q / pass-KV";
  plot.log_x = true;
  plot.footnote = "shardline " + made_by.version + ": " + made_by.command;
  for (const int n : g.cp) {
    std::vector<TokenSplit> splits;
    for (double t = static_cast<double>(total) / 100; t < static_cast<double>(total) * 1.0001; t *= 1.05) {
      const long long fresh = std::min(total, std::llround(t)) / (2 * n) * (2 * n);
      const long long cached = (total - fresh) / (2 * n) * (2 * n);
      if (fresh > 0) splits.push_back({fresh, cached});
    }
    PlotSeries line{fmt::format("CP{}", n), PlotStyle::line_points, {}};
    for (const RingPoint& p : time(n, splits))
      line.points.emplace_back(100 * p.miss_rate(), p.pass_q / p.pass_kv);
    plot.series.push_back(std::move(line));
  }
  PlotSeries even{"equal", PlotStyle::line, {{1, 1}, {100, 1}}};
  plot.series.push_back(even);
  return plot;
}

void write(const Study& study, const Derived& d, const ThresholdsOptions& o, const Provenance& made_by) {
  const ThresholdGrid& g = study.thresholds;
  OutputFolder files(folder_of(study, o.out));
  const ThresholdRules rules = rules_of(study, d, made_by);
  std::vector<std::string> names;
  for (const Rule& r : d.rules) names.push_back(r.name);
  std::vector<ThresholdRow> rows;
  std::vector<ThresholdRegret> regrets;
  for (std::size_t i = 0; i < g.cp.size(); ++i) {
    for (const bool test : {false, true}) {
      for (const RingPoint& p : test ? d.tests[i] : d.refined[i].points) {
        ThresholdRow row{p.ranks, p.fresh, p.cached, p.pass_kv, p.pass_q, test, {}};
        for (const Rule& r : d.rules) row.pass_kv_chosen.push_back(r.choice(p.ranks, p.fresh, p.cached));
        rows.push_back(std::move(row));
      }
    }
    for (const Rule& rule : d.rules) {
      const Regret r = regret(d.tests[i], rule.choice);
      regrets.push_back({rule.name, g.cp[i], r.points, r.right, r.mean, r.p99, r.worst, r.worst_at.fresh,
                         r.worst_at.cached});
    }
    files.draw(winner_map(study, d, i, made_by), fmt::format("winners-cp{}", g.cp[i]));
  }
  files.write("shardline_thresholds.hpp", threshold_header(rules));
  files.write("thresholds.json", threshold_json(rules, regrets));
  files.write("thresholds.csv", threshold_csv(rules.provenance, names, rows));
  files.draw(ratio_plot(study, ring_timer(study.study, g.tpa, o.threads), made_by), "ratio");
  fmt::print("{}\n", files.summary());
}

void declare(Arguments& a, ThresholdsOptions& o) {
  a.add("scenario", o.scenario, "Scenario file with thresholds, or the name of a shipped one").required();
  add_costs(a, o.costs);
  a.add("-o,--out", o.out, "Folder for the table (C++17 header, JSON, CSV) and plots");
  add_threads(a, o.threads);
}

int run(const ThresholdsOptions& o, const Provenance& made_by) {
  const Scenario scenario = scenario_named(o.scenario, o.costs);
  if (!o.out.empty()) make_output_folder(o.out);
  for (const Study& study : scenario.studies) {
    require_question(study, o.scenario, Question::thresholds);
    if (study.study.model.attention.kind == AttentionKind::mla)
      throw UserError(study.study.model.name +
                      ": thresholds compare messages of GQA models; MLA passes a latent");
    Derived d;
    derive(study, o.threads, d);
    print(study, d);
    if (!o.out.empty()) write(study, d, o, made_by);
  }
  return 0;
}

}  // namespace

const Command kThresholds{"thresholds", "When ring attention should pass KV and when Q: rules, table, regret",
                          "shardline thresholds thresholds_gtt -o out/thresholds",
                          prepare<ThresholdsOptions, declare, run>};

}  // namespace shardline::cli
