// What a sweep of prefill plans prints and writes: TTFT against GPUs.
#include <fmt/format.h>

#include <algorithm>

#include "planner/cli/noise_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/deploy.hpp"
#include "reports/atomic_file.hpp"
#include "reports/json.hpp"
#include "reports/page.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

double new_tokens(const Study& s, const Plan& p) {
  return static_cast<double>(s.study.fresh_tokens()) * static_cast<double>(p.users());
}
double requests(const Study& s, const Plan& p) {
  return static_cast<double>(s.study.requests.size()) * static_cast<double>(p.users());
}

std::vector<std::string> row(const Study& s, const Point& p) {
  const double tokens_per_s = new_tokens(s, p.plan) / p.ttl.value;
  return {std::to_string(p.plan.gpus()), to_string(p.ttl),
          fmt::format("{:.1f}", tokens_per_s / p.plan.gpus()),
          fmt::format("{:.1f}", p.ttl.value * p.plan.gpus() / requests(s, p.plan)), to_string(p.memory, 3)};
}

PlanTable table(const Study& s, const RatedPoints& rated) {
  return {s, rated, {"GPUs", "TTFT", "new tokens/s/GPU", "GPU-seconds/request", "memory/GPU"}};
}

void print_frontier(const Study& study, const RatedPoints& rated, const std::vector<Point>& frontier) {
  PlanTable t = table(study, rated);
  for (const Point& p : frontier) t.add(row(study, p), p.plan);
  fmt::print("  {}\n{}\n",
             study.search.x == Metric::gpus && study.search.y == Metric::ttl
                 ? "Lowest TTFT by GPUs, where more GPUs lower it"
                 : "Pareto frontier",
             t.text());
}

// One strategy per column: which ring variant or baseline wins at which size.
void print_strategies(const Study& study, const SearchResult& r) {
  if (r.x != Metric::gpus || r.y != Metric::ttl || study.search.strategies.size() < 2) return;
  std::vector<std::string> header{"GPUs"};
  for (const StrategyId id : study.search.strategies) header.emplace_back(to_string(id));
  Table t(header);
  for (const int gpus : study.search.gpus) {
    std::vector<std::string> cells{std::to_string(gpus)};
    bool any = false;
    for (const StrategyId id : study.search.strategies) {
      const auto points = r.frontiers.at(id).points();
      const auto at =
          std::find_if(points.begin(), points.end(), [&](const Point& p) { return p.plan.gpus() == gpus; });
      cells.push_back(at == points.end() ? "" : to_string(at->ttl));
      any = any || at != points.end();
    }
    if (any) t.add(cells);
  }
  fmt::print("  Lowest TTFT of each strategy (blank: does not fit, or no better than with fewer GPUs)\n{}\n",
             t.text());
}

bool print_target(const Study& study, const RatedPoints& rated, const std::vector<Point>& frontier,
                  Seconds ttft) {
  std::vector<Point> meeting;
  for (const Point& p : frontier) {
    if (p.ttl <= ttft) meeting.push_back(p);
  }
  fmt::print("  Your target: TTFT at most {}\n", to_string(ttft));
  if (meeting.empty()) {
    fmt::print("  no plan meets it\n\n");
    return false;
  }
  std::stable_sort(meeting.begin(), meeting.end(),
                   [](const Point& a, const Point& b) { return a.plan.gpus() < b.plan.gpus(); });
  PlanTable t = table(study, rated);
  for (std::size_t i = 0; i < std::min<std::size_t>(5, meeting.size()); ++i)
    t.add(row(study, meeting[i]), meeting[i].plan);
  fmt::print("{}\n", t.text());
  return true;
}

bool on_frontier(const SearchResult& r, const Frontier& overall, const Point& p) {
  return !overall.dominates(score(r.x, p), score(r.y, p));
}

std::string csv(const Study& study, const SearchResult& r, const RatedPoints& rated) {
  std::vector<std::string> header{"strategy",
                                  "plan",
                                  "gpus",
                                  "batch",
                                  "ttft_s",
                                  "new_tokens_per_s_gpu",
                                  "gpu_seconds_per_request",
                                  "memory_gb_per_gpu",
                                  "pp",
                                  "cp",
                                  "tpa",
                                  "ep",
                                  "tpf",
                                  "on_frontier"};
  header.insert(header.end(), share_columns().begin(), share_columns().end());
  std::string out = csv_line(header);
  const Frontier overall = r.overall();
  for (std::size_t i = 0; i < rated.points.size(); ++i) {
    const Point& p = rated.points[i];
    std::vector<std::string> cells{std::string(to_string(p.plan.strategy)),
                                   to_string(p.plan),
                                   std::to_string(p.plan.gpus()),
                                   std::to_string(p.plan.batch),
                                   number_text(p.ttl.value),
                                   number_text(new_tokens(study, p.plan) / p.ttl.value / p.plan.gpus()),
                                   number_text(p.ttl.value * p.plan.gpus() / requests(study, p.plan)),
                                   number_text(p.memory.value / 1e9),
                                   std::to_string(p.plan.pp),
                                   std::to_string(p.plan.cp),
                                   std::to_string(p.plan.tpa),
                                   std::to_string(p.plan.ep),
                                   std::to_string(p.plan.tpf),
                                   on_frontier(r, overall, p) ? "1" : "0"};
    const auto shares = share_cells(rated.shares[i]);
    cells.insert(cells.end(), shares.begin(), shares.end());
    out += csv_line(cells);
  }
  return out;
}

Page page(const Study& study, const SearchResult& r, const RatedPoints& rated, const SweepOptions& o,
          const Provenance& made_by) {
  Page page = page_of(study, r, o, made_by);
  page.time_label = "TTFT (ms)";
  page.x_label = "New tokens/s per request";
  page.y_label = "New tokens/s per GPU";
  const Frontier overall = r.overall();
  for (std::size_t i = 0; i < rated.points.size(); ++i) {
    const Point& p = rated.points[i];
    const Shares& from = rated.shares[i];
    const double tokens = new_tokens(study, p.plan);
    page.points.push_back({std::string(to_string(p.plan.strategy)), to_string(p.plan),
                           simulate_command(study, o, p.plan), p.plan.gpus(), p.plan.batch, p.plan.users(),
                           p.ttl.value * 1e3, tokens / requests(study, p.plan) / p.ttl.value,
                           tokens / p.ttl.value / p.plan.gpus(), p.memory.value / 1e9,
                           on_frontier(r, overall, p), from.measured, from.fitted, from.extrapolated,
                           from.assumed});
  }
  return page;
}

std::string launch_text(const Study& study, const std::vector<Point>& frontier) {
  std::string out = study.title + "\n";
  for (const Point& p : frontier) {
    out += fmt::format("\n{}   TTFT {} on {} GPUs\n", to_string(p.plan), to_string(p.ttl), p.plan.gpus());
    for (const Deployment& d : deployments(study.study, p.plan)) {
      out += "  " + d.engine + "\n";
      for (const std::string& line : d.lines) out += "    " + line + "\n";
      for (const std::string& note : d.notes) out += "    # " + note + "\n";
    }
  }
  return out;
}

}  // namespace

bool report_prefill(const Study& study, const SearchResult& r, const SweepOptions& o,
                    const Provenance& made_by) {
  std::vector<Point> frontier = r.overall().points();
  if (r.x == Metric::gpus) std::reverse(frontier.begin(), frontier.end());  // fewest first
  if (frontier.empty()) {
    fmt::print("  no plan fits\n\n");
    return false;
  }
  const RatedPoints rated = rate_frontiers(study, r, o.threads);
  bool met = true;
  if (o.ttft) met = print_target(study, rated, frontier, time_target("--ttft", *o.ttft));
  print_frontier(study, rated, frontier);
  print_strategies(study, r);
  std::vector<NoisyPlan> noisy;
  if (study.noise) {
    std::vector<Plan> plans;
    for (const Point& p : rated.points) plans.push_back(p.plan);
    noisy = noisy_plans(study, plans, o.threads);
    print_noisy_plans(*study.noise, noisy);
  }
  if (o.out.empty()) return met;
  const std::filesystem::path folder = std::filesystem::path(o.out) / study.study.model.name;
  make_output_folder(folder);
  write_file(folder / "frontier.csv", csv(study, r, rated));
  if (o.all) write_file(folder / "all.csv", csv(study, r, rate(study, r.all, o.threads)));
  if (study.noise) write_file(folder / "noise.csv", noise_csv(*study.noise, noisy));
  write_file(folder / "launch.txt", launch_text(study, frontier));
  write_file(folder / "frontier.html", page_html(page(study, r, rated, o, made_by)));
  write_picture(frontier_plot(study, r, rated, made_by), folder / "frontier");
  write_file(folder / "run.json", run_json(study, r, o, made_by));
  fmt::print(
      "  wrote {}: frontier.csv, frontier.html, frontier.png, frontier.svg, launch.txt, run.json{}{}\n\n",
      folder.string(), o.all ? ", all.csv" : "", study.noise ? ", noise.csv" : "");
  return met;
}

}  // namespace shardline::cli
