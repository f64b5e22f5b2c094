#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "planner/api/convert_studies.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/cli/threshold_context.hpp"
#include "planner/scenario/bare_kernels.hpp"
#include "planner/studies/study_memory.hpp"
#include "planner/studies/threshold_study.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"
#include "reports/threshold_header.hpp"
#include "reports/threshold_tables.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct ThresholdsOptions {
  std::string scenario, costs, out;
  ContextOptions context;
  int threads = 0;
  std::vector<std::string> settings;
};

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

// Where the choice may be wrong because prices are: [P17].
void print_crossing(const RingThresholds& ring) {
  const RingCrossing& c = *ring.crossing;
  const auto range = [](const RingCrossing::Open& o) {
    return fmt::format("{:.2f} to {:.2f} %", 100 * o.lowest, 100 * o.most);
  };
  const auto open = [&](const RingCrossing::Open& o) {
    return std::count_if(ring.tests.begin(), ring.tests.end(),
                         [&](const RingPoint& p) { return o.holds(p); });
  };
  print_notes(
      "    of {} tokens both take as long at a miss rate of {:.2f} %; as prices may be off (nominal 90 %), "
      "either may be "
      "the faster at {} and in {} of the test requests\n"
      "    (at {} and in {} of them if what a kernel's price gets wrong differs from shape to shape)\n",
      c.total, 100 * c.miss, range(c.shared), open(c.shared), range(c.unrelated), open(c.unrelated));
}

void print_ring(const Study& study, const ThresholdStudy& d, const RingThresholds& ring) {
  const std::size_t kv = static_cast<std::size_t>(
      std::count_if(ring.tests.begin(), ring.tests.end(), [](const RingPoint& p) { return p.kv_wins(); }));
  print_notes(
      "  CP{}: {} test requests, pass-KV faster in {}; table of {} bytes; h = {:.3f} ln T + {:.3f} "
      "ln(T/(T+P)) {} {:.3f} (paper: -1.059, 1.145, 12.112)\n",
      ring.ranks, ring.tests.size(), kv, ring.refined.table.bytes(), ring.empirical.alpha(),
      ring.empirical.beta(), ring.empirical.gamma() < 0 ? "-" : "+", std::abs(ring.empirical.gamma()));
  for (const bool achieved : {false, true}) {
    const AnalyticRule& a = achieved ? ring.at_rate : ring.at_peak;
    print_notes(
        "    {} rates: Q message smaller below {:.1f} % miss rate (Eq. 1), KV hidden from T = {:.0f} (Eq. "
        "2), Q hidden "
        "from T+P = {:.0f} (Eq. 3)\n",
        achieved ? "achieved" : "peak", 100 * a.message_ratio, a.kv_hidden_tokens * ring.ranks,
        a.all_to_all_tokens * ring.ranks);
  }
  if (!study.study.system.calibration.empty())
    print_notes("    what the time of {} of these requests rests on: {}\n", ring.rated,
                rests_on(ring.shares));
  if (ring.crossing) print_crossing(ring);
  Table t({"rule", "right", "mean regret", "p99", "worst", "worst at T", "P"});
  for (std::size_t i = 0; i < d.rules.size(); ++i) {
    const Regret& r = ring.regrets[i];
    t.add({d.rules[i].name,
           fmt::format("{:.1f} %", 100.0 * static_cast<double>(r.right) /
                                       static_cast<double>(std::max<std::size_t>(1, r.points))),
           percent(r.mean), percent(r.p99), percent(r.worst),
           r.worst > 0 ? std::to_string(r.worst_at.fresh) : "",
           r.worst > 0 ? std::to_string(r.worst_at.cached) : ""});
  }
  print_notes("{}\n", fitted(t));
}

void print(const Study& study, const ThresholdStudy& d) {
  print_notes("{}: pass KV or pass Q, rings of {} GPUs each\n{}", study.title, study.thresholds().tpa,
              engine_text(study.study));
  print_notes(
      "  {} requests timed by events, both variants; every rule judged on requests it was not derived "
      "from\n  costs: {}\n\n",
      count(d.timed()), costs_text(study.study.system));
  for (const RingThresholds& ring : d.rings) print_ring(study, d, ring);
}

struct ContextAnswer {
  ContextQuestion question;
  ContextStudy found;
};

ThresholdLine plain(const EmpiricalRule& r) {
  return {r.alpha(), r.beta(), r.gamma(), r.fixed().fresh, r.fixed().miss, r.fixed().constant};
}

std::string engine_name(const Case& c) {
  return c.engine ? fmt::format("{} {}, steps of the prefill alone", c.engine->title, c.engine->version)
                  : bare_kernels_text();
}

// What the intervals of crossings are.
std::string interval_text(const Study& study) {
  return study.study.system.calibration.empty()
             ? "none: costs are not fitted to measurements"
             : "nominal 90 %, of errors of kernels' and messages' prices that are the same in both variants";
}

ThresholdRules rules_of(const Study& study, const ThresholdStudy& d, const ContextAnswer* context,
                        const Provenance& made_by) {
  const ThresholdGrid& g = study.thresholds();
  const Precision& p = study.study.precision;
  const AnalyticRule& a = d.rings.front().at_rate;
  ThresholdRules out;
  out.provenance = {study.study.model.name,
                    fmt::format("{}, TP{} in each rank; costs: {}", study.study.system.name, g.tpa,
                                costs_text(study.study.system)),
                    made_by.version,
                    made_by.command,
                    fmt::format("T from {} to {} tokens, T/(T+P) from {:.4g} to 1, T+P up to {} tokens",
                                g.fresh_from, g.fresh_to, g.lowest_miss_rate, g.total_to),
                    fmt::format("weights {}, KV cache {}, activations {}", to_string(p.weights),
                                to_string(p.kv), to_string(p.activations)),
                    engine_name(study.study),
                    interval_text(study),
                    context == nullptr ? "" : context_text(context->question, context->found)};
  out.kv_hidden_tokens = a.kv_hidden_tokens;
  out.message_ratio = a.message_ratio;
  out.all_to_all_tokens = a.all_to_all_tokens;
  out.appendix_d = plain(appendix_d());
  for (const RingThresholds& ring : d.rings) {
    const LookupTable& t = ring.refined.table;
    ThresholdRing& of = out.rings.emplace_back(
        ThresholdRing{ring.ranks, plain(ring.empirical), t.grid().miss_per_octave, t.grid().miss_nodes,
                      t.grid().fresh, t.lines(), t.step(), t.values()});
    if (ring.crossing)
      of.crossing = {ring.crossing->total, ring.crossing->miss, ring.crossing->shared.lowest,
                     ring.crossing->shared.most};
    if (context != nullptr) of.in_context = plain(context->found.rings[out.rings.size() - 1].in_context);
  }
  return out;
}

Plot winner_map(const Study& study, const ThresholdStudy& d, const RingThresholds& ring,
                const Provenance& made_by) {
  const ThresholdGrid& g = study.thresholds();
  Plot plot;
  plot.title = fmt::format("{}, CP{}: the faster ring variant", study.title, ring.ranks);
  plot.x_label = "new tokens T";
  plot.y_label = "miss rate T/(T+P)";
  plot.log_x = plot.log_y = true;
  plot.footnote = "shardline " + made_by.version + ": " + made_by.command;
  PlotSeries kv{"pass-KV faster", PlotStyle::points, {}}, q{"pass-Q faster", PlotStyle::points, {}};
  for (std::size_t k = 0; k < std::min<std::size_t>(ring.tests.size(), 1200); ++k) {
    const RingPoint& p = ring.tests[k];
    (p.kv_wins() ? kv : q).points.emplace_back(static_cast<double>(p.fresh), p.miss_rate());
  }
  plot.series = {kv, q};
  for (const ThresholdRule& rule : d.rules) {
    if (!rule.drawn) continue;
    PlotSeries line{"boundary: " + rule.name, PlotStyle::line, {}};
    for (double t = static_cast<double>(g.fresh_from); t <= static_cast<double>(g.fresh_to); t *= 1.03) {
      if (const auto m = miss_boundary(g, rule.choice, ring.ranks, t)) line.points.emplace_back(t, *m);
    }
    if (!line.points.empty()) plot.series.push_back(std::move(line));
  }
  return plot;
}

Plot ratio_plot(const Study& study, const RatioStudy& ratios, const Provenance& made_by) {
  Plot plot;
  plot.title = fmt::format("{}: TTFT of pass-Q over pass-KV, T + P = {} tokens", study.title, ratios.total);
  plot.x_label = "miss rate T/(T+P) (%)";
  plot.y_label = "TTFT ratio pass-Q / pass-KV";
  plot.log_x = true;
  plot.footnote = "shardline " + made_by.version + ": " + made_by.command;
  for (std::size_t i = 0; i < ratios.rings.size(); ++i) {
    PlotSeries line{fmt::format("CP{}", study.thresholds().cp[i]), PlotStyle::line_points, {}};
    for (const RingPoint& p : ratios.rings[i])
      line.points.emplace_back(100 * p.miss_rate(), p.pass_q / p.pass_kv);
    plot.series.push_back(std::move(line));
  }
  PlotSeries even{"equal", PlotStyle::line, {{1, 1}, {100, 1}}};
  plot.series.push_back(even);
  return plot;
}

void write(const Study& study, const ThresholdStudy& d, const ContextAnswer* context,
           const ThresholdsOptions& o, const Provenance& made_by, const std::string& answer) {
  OutputFolder files(folder_of(study, o.out));
  const ThresholdRules rules = rules_of(study, d, context, made_by);
  std::vector<std::string> names;
  for (const ThresholdRule& r : d.rules) names.push_back(r.name);
  std::vector<ThresholdRow> rows;
  std::vector<ThresholdRegret> regrets;
  for (const RingThresholds& ring : d.rings) {
    for (const bool test : {false, true}) {
      for (const RingPoint& p : test ? ring.tests : ring.refined.points) {
        ThresholdRow row{p.ranks, p.fresh, p.cached, p.pass_kv, p.pass_q, test, {}, {}};
        if (ring.crossing) row.told_apart = !ring.crossing->shared.holds(p);
        for (const ThresholdRule& r : d.rules)
          row.pass_kv_chosen.push_back(r.choice(p.ranks, p.fresh, p.cached));
        rows.push_back(std::move(row));
      }
    }
    for (std::size_t i = 0; i < d.rules.size(); ++i) {
      const Regret& r = ring.regrets[i];
      regrets.push_back({d.rules[i].name, ring.ranks, r.points, r.right, r.mean, r.p99, r.worst,
                         r.worst_at.fresh, r.worst_at.cached});
    }
    files.draw(winner_map(study, d, ring, made_by), fmt::format("winners-cp{}", ring.ranks));
  }
  files.write("shardline_thresholds.hpp", threshold_header(rules));
  files.write("thresholds.json",
              threshold_json(rules, regrets,
                             context == nullptr ? "" : api::to_json(api::in_context(study, context->found))));
  files.write("thresholds.csv", threshold_csv(rules.provenance, names, rows));
  files.draw(ratio_plot(study, study_ratios(study, o.threads), made_by), "ratio");
  files.write("run.json", answer);
  print_notes("{}\n", files.publish());
}

// All times that the answer is made of, to the last digit.
std::string times_text(const ThresholdStudy& d) {
  std::string out;
  for (const RingThresholds& ring : d.rings) {
    for (const RingPoint& p : ring.tests) out += fmt::format("{} {}\n", p.pass_kv.value, p.pass_q.value);
  }
  return out;
}

void declare(Arguments& a, ThresholdsOptions& o) {
  a.add("scenario", o.scenario, "Scenario file with thresholds, or the name of a shipped one")
      .required()
      .offers(offered_thresholds)
      .files();
  add_context(a, o.context);
  add_costs(a, o.costs);
  a.add("-o,--out", o.out,
        "Folder for the table (C++17 header, JSON, CSV), run.json (the answer as --json has it) and plots")
      .output_folder();
  add_threads(a, o.threads);
  add_settings(a, o.settings);
}

int run(const ThresholdsOptions& o, const Provenance& made_by) {
  const Scenario scenario = scenario_named(o.scenario, overrides_of(o.costs, o.settings));
  api::ThresholdsResult result{
      made_by.version, made_by.command, scenario.name, asked_of(o.scenario, o.context), {}};
  const auto asked = api::context_question(result.question);
  const std::vector<TraceRequest> prompts =
      asked ? read_prompts(*asked, o.threads) : std::vector<TraceRequest>{};
  const std::vector<FolderClaim> claims = claim_folders(scenario, o.out);
  for (const Study& study : scenario.studies) {
    require_question<ThresholdGrid>(study, o.scenario);
    require_memory(need_of_thresholds(study.thresholds(), o.threads));
    ThresholdStudy d;
    std::optional<ContextAnswer> context;
    {
      Progress progress(study.study.model.name, Progress::terminal(), "rings");
      const auto show = [&](std::size_t done, std::size_t total) {
        if (interrupted()) throw Cancelled{};
        progress.show(done, total);
      };
      d = study_thresholds(study, o.threads, show);
      if (asked) context = {*asked, study_in_context(study, d, *asked, prompts, o.threads, show)};
    }
    print(study, d);
    if (context) print_context(study, context->question, context->found);
    warn_of_idle_settings(o.scenario, o.costs, o.settings, study, times_text(d), [&](const Study& other) {
      return times_text(study_thresholds(other, o.threads, [](std::size_t, std::size_t) {}));
    });
    result.models.push_back(api::model_thresholds(study, d));
    if (context) result.models.back().in_context = api::in_context(study, context->found);
    if (o.out.empty()) continue;
    api::ThresholdsResult of_model = result;
    of_model.models = {result.models.back()};
    write(study, d, context ? &*context : nullptr, o, made_by, api::to_json(of_model));
  }
  if (made_by.document != nullptr) made_by.document->set(api::to_json(result));
  return 0;
}

}  // namespace

const Command kThresholdsCommand{
    "thresholds", "When ring attention should pass KV and when Q: rules, table, regret",
    "shardline thresholds thresholds_405b_gtt -o out/thresholds", prepare<ThresholdsOptions, declare, run>};

}  // namespace shardline::cli
