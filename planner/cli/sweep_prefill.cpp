// What a sweep of prefill plans prints and writes: TTFT against GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/cli/cost_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/launch_parts.hpp"
#include "planner/cli/noise_parts.hpp"
#include "planner/cli/sweep_page.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/strategies/columns.hpp"
#include "planner/studies/plan_launches.hpp"
#include "reports/json.hpp"

namespace shardline::cli {

namespace {

PrefillMetrics metrics(const Study& s, const Point& p) { return prefill_metrics(s.study, p.time, p.plan); }

std::vector<std::string> row(const Study& s, const RatedPoints& rated, const Point& p) {
  const PrefillMetrics m = metrics(s, p);
  const ErrorTerms& errors = rated.of(p.plan).errors;
  std::vector<std::string> cells{std::to_string(p.plan.gpus()), to_string(m.ttft)};
  for (std::string& cell : time_cells(s.study.system, errors)) cells.push_back(std::move(cell));
  cells.push_back(fmt::format("{:.1f}", m.new_tokens_per_s_gpu));
  for (std::string& cell : rate_cells(s.study.system, errors)) cells.push_back(std::move(cell));
  cells.insert(cells.end(), {fmt::format("{:.4g}", m.gpu_seconds_per_request), to_string(p.memory, 3)});
  if (any_approximate(s)) {
    cells.push_back(computed_text(s, p.plan));
    if (!strategy(p.plan.strategy).exact) cells.back() += " APPROXIMATE";
  }
  return cells;
}

PlanTable table(const Study& s, const RatedPoints& rated) {
  std::vector<std::string> header{"GPUs", "TTFT", "new tokens/s/GPU", "GPU-seconds/request", "memory/GPU"};
  if (!s.study.system.calibration.empty())
    header = {
        "GPUs",      "TTFT", kIntervalColumn, "new tokens/s/GPU", kIntervalColumn, "GPU-seconds/request",
        "memory/GPU"};
  if (any_approximate(s)) header.emplace_back("attention computed");
  return {s, rated, header};
}

void print_frontier(const Study& study, const RatedPoints& rated, const std::vector<Point>& frontier,
                    const char* of) {
  PlanTable t = table(study, rated);
  for (const Point& p : frontier) t.add(row(study, rated, p), p);
  print_notes("  {}{}\n{}\n",
              study.sweep().search.x == Metric::gpus && study.sweep().search.y == Metric::time
                  ? "Lowest TTFT by GPUs, where more GPUs lower it"
              : study.sweep().search.x == Metric::gpu_seconds && study.sweep().search.y == Metric::time
                  ? "Pareto frontier of TTFT and GPU-seconds per request"
                  : "Pareto frontier",
              of, t.text());
}

// An approximate plan answers another question than an exact one: it is shown beside them, not in their
// place.
void print_frontiers(const Study& study, const SweepAnswer& answer) {
  if (!any_approximate(study)) return print_frontier(study, answer.rated, answer.frontier, "");
  if (answer.exact_frontier.empty())
    return print_frontier(study, answer.rated, answer.frontier, "; approximate strategies");
  print_frontier(study, answer.rated, answer.exact_frontier, "; exact strategies");
  print_frontier(study, answer.rated, answer.frontier, "; approximate strategies too");
}

// What each strategy can do at best, and what it costs.
void print_bests(const Study& study, const SearchResult& r) {
  Table t({"strategy", "lowest TTFT", "GPUs", "GPU-seconds/request", "least GPU-seconds/request", "TTFT",
           "GPUs"});
  const auto cost = [&](const Point& p) {
    return fmt::format("{:.4g}", metrics(study, p).gpu_seconds_per_request);
  };
  const auto add = [&](const std::string& name, std::vector<Point> points) {
    if (points.empty()) return t.add({name, "no plan", "", "", "", "", ""});
    if (!maximised(r.x)) std::reverse(points.begin(), points.end());
    const Point &cheap = points.front(), &fast = points.back();
    t.add({name, to_string(fast.time), std::to_string(fast.plan.gpus()), cost(fast), cost(cheap),
           to_string(cheap.time), std::to_string(cheap.plan.gpus())});
  };
  for (const StrategyId id : study.sweep().search.strategies) add(label(id), r.frontiers.at(id).points());
  if (!r.even.points().empty()) add("kv_runahead, even parts", r.even.points());
  print_notes("  Each strategy by itself\n{}\n", fitted(t));
}

// One strategy per column: which ring variant or baseline wins at which size.
void print_strategies(const Study& study, const SearchResult& r) {
  if (r.x == Metric::gpu_seconds && r.y == Metric::time) return print_bests(study, r);
  if (r.x != Metric::gpus || r.y != Metric::time || study.sweep().search.strategies.size() < 2) return;
  std::vector<std::string> header{"GPUs"};
  std::vector<std::vector<Point>> columns;
  for (const StrategyId id : study.sweep().search.strategies) {
    header.emplace_back(label(id));
    columns.push_back(r.frontiers.at(id).points());
    if (strategy(id).parts == nullptr || r.even.points().empty()) continue;
    header.emplace_back("kv_runahead, even parts");
    columns.push_back(r.even.points());
  }
  Table t(header);
  for (const int gpus : study.sweep().search.gpus) {
    std::vector<std::string> cells{std::to_string(gpus)};
    bool any = false;
    for (const std::vector<Point>& points : columns) {
      const auto at =
          std::find_if(points.begin(), points.end(), [&](const Point& p) { return p.plan.gpus() == gpus; });
      cells.push_back(at == points.end() ? "" : to_string(at->time));
      any = any || at != points.end();
    }
    if (any) t.add(cells);
  }
  print_notes("  Lowest TTFT of each strategy (blank: does not fit, or no better than with fewer GPUs)\n{}\n",
              fitted(t));
}

void print_target(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked) {
  print_notes("  Your target: TTFT at most {}\n", to_string(asked.most_time));
  if (answer.meeting.empty()) {
    print_notes("{}\n", missed_text(study, answer, "TTFT", asked));
    return;
  }
  PlanTable t = table(study, answer.rated);
  for (const Point& p : answer.meeting) t.add(row(study, answer.rated, p), p);
  print_notes("{}", t.text());
  print_notes("{}\n", open_target_text(study, answer, asked));
}

std::string csv(const Study& study, const SearchResult& r, const RatedPoints& rated) {
  const bool approximate = any_approximate(study);
  std::vector<std::string> header{"strategy",
                                  "plan",
                                  "gpus",
                                  "batch",
                                  "ttft_s",
                                  "new_tokens_per_s_gpu",
                                  "gpu_seconds_per_request",
                                  "memory_gb_per_gpu"};
  const auto columns = plan_columns(StepKind::prefill);
  header.insert(header.end(), columns.begin(), columns.end());
  header.insert(header.end(), {"on_frontier", "ttft_low_s", "ttft_high_s", "new_tokens_per_s_gpu_low",
                               "new_tokens_per_s_gpu_high"});
  header.insert(header.end(), share_columns().begin(), share_columns().end());
  if (approximate) header.insert(header.end(), {"exact", "attention_computed"});
  header.insert(header.end(), engine_columns().begin(), engine_columns().end());
  header.emplace_back("engines");
  header.insert(header.end(), cost_columns().begin(), cost_columns().end());
  header.emplace_back("what");
  std::string out = csv_line(header);
  const BestPoints best(study, r);
  const EnginesThatStart starts(study.study);
  for (std::size_t i = 0; i < rated.points.size(); ++i) {
    const Point& p = rated.points[i];
    const PrefillMetrics m = metrics(study, p);
    std::vector<std::string> cells{std::string(to_string(p.plan.strategy)),
                                   to_string(p.plan),
                                   std::to_string(p.plan.gpus()),
                                   std::to_string(p.plan.batch),
                                   number_text(m.ttft.value),
                                   number_text(m.new_tokens_per_s_gpu),
                                   number_text(m.gpu_seconds_per_request),
                                   number_text(p.memory.value / 1e9)};
    const auto plan = plan_cells(p.plan, StepKind::prefill);
    cells.insert(cells.end(), plan.begin(), plan.end());
    cells.emplace_back(best.holds(p) ? "1" : "0");
    const ErrorRange time = time_error(rated.ratings[i].errors), rate = rate_error(rated.ratings[i].errors);
    for (const double end : {time.low, time.high}) cells.push_back(number_text(m.ttft.value * (1 + end)));
    for (const double end : {rate.low, rate.high})
      cells.push_back(number_text(m.new_tokens_per_s_gpu * (1 + end)));
    const auto shares = share_cells(rated.ratings[i].shares);
    cells.insert(cells.end(), shares.begin(), shares.end());
    if (approximate) {
      cells.emplace_back(strategy(p.plan.strategy).exact ? "1" : "0");
      cells.push_back(number_text(attention_computed(study.study, p.plan)));
    }
    const auto engine = engine_cells(study.study);
    cells.insert(cells.end(), engine.begin(), engine.end());
    cells.push_back(starts.of(p.plan));
    for (std::string& cell : cost_cells(cost_of(study, p, rated.ratings[i])))
      cells.push_back(std::move(cell));
    cells.push_back(rates_of_what(study));
    out += csv_line(cells);
  }
  return out;
}

// The plans of print_target and of the frontier, each once.
std::vector<NamedPlan> launched(const SweepAnswer& answer) {
  std::vector<NamedPlan> out;
  const auto add = [&](const Point& p) {
    const auto same = [&](const NamedPlan& n) { return n.plan == p.plan; };
    if (std::any_of(out.begin(), out.end(), same)) return;
    out.push_back({fmt::format("{}   TTFT {} on {} GPUs{}", to_string(p.plan), to_string(p.time),
                               p.plan.gpus(), strategy(p.plan.strategy).exact ? "" : "   APPROXIMATE"),
                   p.plan});
  };
  for (const Point& p : answer.meeting) add(p);
  for (const Point& p : answer.frontier) add(p);
  return out;
}

}  // namespace

void report_prefill(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                    const SweepOptions& o, const Provenance& made_by) {
  print_warnings(answer.unread);
  if (!answer.any()) {
    print_notes("  no plan fits{}\n\n", of_engine(study.study));
    return;
  }
  const SearchResult& r = answer.found;
  print_warnings(answer.narrow);
  if (asked.has_target()) print_target(study, answer, asked);
  print_frontiers(study, answer);
  print_notes("{}{}\n", interval_note(study), open_rows_text(study, answer));
  print_strategies(study, r);
  if (study.sweep().noise) print_noisy_plans(*study.sweep().noise, answer.noisy);
  if (o.out.empty()) return;
  OutputFolder files(folder_of(study, o.out));
  files.write("frontier.csv", csv(study, r, answer.rated));
  if (answer.all) files.write("all.csv", csv(study, r, *answer.all));
  if (study.sweep().noise) files.write("noise.csv", noise_csv(*study.sweep().noise, answer.noisy));
  const std::string launches = write_launches(files, study, launched(answer));
  files.write("frontier.html", page_html(sweep_page(study, answer, asked, o, made_by)));
  files.draw(frontier_plot(study, r, answer.rated, made_by), "frontier");
  files.write("run.json", run_json(study, asked, answer, o, made_by, files.names()));
  print_notes("{}{}\n", files.publish(), launches);
}

}  // namespace shardline::cli
