// What a sweep of prefill plans prints and writes: TTFT against GPUs.
#include <fmt/format.h>

#include <algorithm>

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

std::vector<std::string> row(const Study& s, const std::string& first, const Point& p) {
  const double tokens_per_s = new_tokens(s, p.plan) / p.ttl.value;
  std::vector<std::string> cells{first,
                                 to_string(p.ttl),
                                 fmt::format("{:.1f}", tokens_per_s / p.plan.gpus()),
                                 fmt::format("{:.1f}", p.ttl.value * p.plan.gpus() / requests(s, p.plan)),
                                 to_string(p.memory, 3),
                                 to_string(p.plan)};
  if (any_approximate(s)) {
    cells.insert(cells.end() - 1, computed_text(s, p.plan));
    if (!strategy(p.plan.strategy).exact) cells.back() += "   APPROXIMATE";
  }
  return cells;
}

Table table(const Study& s, const char* first) {
  std::vector<std::string> header{first,        "TTFT", "new tokens/s/GPU", "GPU-seconds/request",
                                  "memory/GPU", "plan"};
  if (any_approximate(s)) header.insert(header.end() - 1, "attention computed");
  return Table(header);
}

// Fewest GPUs first.
std::vector<Point> points_of(const SearchResult& r, const std::vector<StrategyId>& ids) {
  std::vector<Point> out = r.of(ids).points();
  if (r.x == Metric::gpus) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<StrategyId> exact_ones(const Study& s) {
  std::vector<StrategyId> out;
  for (const StrategyId id : s.search.strategies) {
    if (strategy(id).exact) out.push_back(id);
  }
  return out;
}

void print_frontier(const Study& study, const std::vector<Point>& frontier, const char* of) {
  Table t = table(study, "GPUs");
  for (const Point& p : frontier) t.add(row(study, std::to_string(p.plan.gpus()), p));
  fmt::print("  {}{}\n{}\n",
             study.search.x == Metric::gpus && study.search.y == Metric::ttl
                 ? "Lowest TTFT by GPUs, where more GPUs lower it"
                 : "Pareto frontier",
             of, t.text());
}

// An approximate plan answers another question than an exact one: it is shown beside them, not in their
// place.
void print_frontiers(const Study& study, const SearchResult& r) {
  if (!any_approximate(study)) return print_frontier(study, points_of(r, study.search.strategies), "");
  print_frontier(study, points_of(r, exact_ones(study)), "; exact strategies");
  print_frontier(study, points_of(r, study.search.strategies), "; approximate strategies too");
}

// One strategy per column: which ring variant or baseline wins at which size.
void print_strategies(const Study& study, const SearchResult& r) {
  if (r.x != Metric::gpus || r.y != Metric::ttl || study.search.strategies.size() < 2) return;
  std::vector<std::string> header{"GPUs"};
  for (const StrategyId id : study.search.strategies) header.emplace_back(label(id));
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

bool print_target(const Study& study, const std::vector<Point>& frontier, Seconds ttft) {
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
  Table t = table(study, "GPUs");
  for (std::size_t i = 0; i < std::min<std::size_t>(5, meeting.size()); ++i)
    t.add(row(study, std::to_string(meeting[i].plan.gpus()), meeting[i]));
  fmt::print("{}\n", t.text());
  return true;
}

std::vector<Point> every_point(const SearchResult& r) {
  std::vector<Point> out;
  for (const auto& [id, frontier] : r.frontiers) {
    const auto points = frontier.points();
    out.insert(out.end(), points.begin(), points.end());
  }
  return out;
}

// Exact plans are measured against exact ones only.
class Best {
 public:
  Best(const Study& s, const SearchResult& r) : r_(r), exact_(r.of(exact_ones(s))), all_(r.overall()) {}
  bool holds(const Point& p) const {
    const Frontier& f = strategy(p.plan.strategy).exact ? exact_ : all_;
    return !f.dominates(score(r_.x, p), score(r_.y, p));
  }

 private:
  const SearchResult& r_;
  Frontier exact_, all_;
};

std::string csv(const Study& study, const SearchResult& r, const std::vector<Point>& points) {
  const bool approximate = any_approximate(study);
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
  if (approximate) header.insert(header.end(), {"exact", "attention_computed"});
  std::string out = csv_line(header);
  const Best best(study, r);
  for (const Point& p : points) {
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
                                   best.holds(p) ? "1" : "0"};
    if (approximate) {
      cells.emplace_back(strategy(p.plan.strategy).exact ? "1" : "0");
      cells.push_back(number_text(attention_computed(study.study, p.plan)));
    }
    out += csv_line(cells);
  }
  return out;
}

Page page(const Study& study, const SearchResult& r, const SweepOptions& o, const Provenance& made_by) {
  Page page;
  page.title = study.title;
  page.scenario = o.scenario;
  page.command = made_by.command;
  page.version = made_by.version;
  page.summary =
      fmt::format("{} configurations, {} feasible. Each strategy's own Pareto frontier.",
                  count(r.counts.configurations), count(r.counts.configurations - r.counts.infeasible));
  page.time_label = "TTFT (ms)";
  page.x_label = "New tokens/s per request";
  page.y_label = "New tokens/s per GPU";
  const Best best(study, r);
  for (const Point& p : every_point(r)) {
    const double tokens = new_tokens(study, p.plan);
    page.points.push_back({label(p.plan.strategy), to_string(p.plan),
                           fmt::format("shardline simulate {} --model {} --plan {}", o.scenario,
                                       study.study.model.name, to_string(p.plan)),
                           p.plan.gpus(), p.plan.batch, p.plan.users(), p.ttl.value * 1e3,
                           tokens / requests(study, p.plan) / p.ttl.value,
                           tokens / p.ttl.value / p.plan.gpus(), p.memory.value / 1e9, best.holds(p),
                           attention_computed(study.study, p.plan)});
  }
  return page;
}

std::string launch_text(const Study& study, const std::vector<Point>& frontier) {
  std::string out = study.title + "\n";
  for (const Point& p : frontier) {
    out += fmt::format("\n{}   TTFT {} on {} GPUs{}\n", to_string(p.plan), to_string(p.ttl), p.plan.gpus(),
                       strategy(p.plan.strategy).exact ? "" : "   APPROXIMATE");
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
  const std::vector<Point> frontier = points_of(r, study.search.strategies);
  if (frontier.empty()) {
    fmt::print("  no plan fits\n\n");
    return false;
  }
  bool met = true;
  if (o.ttft) met = print_target(study, frontier, time_target("--ttft", *o.ttft));
  print_frontiers(study, r);
  print_strategies(study, r);
  if (o.out.empty()) return met;
  const std::filesystem::path folder = std::filesystem::path(o.out) / study.study.model.name;
  make_output_folder(folder);
  write_file(folder / "frontier.csv", csv(study, r, every_point(r)));
  if (o.all) write_file(folder / "all.csv", csv(study, r, r.all));
  write_file(folder / "launch.txt", launch_text(study, frontier));
  write_file(folder / "frontier.html", page_html(page(study, r, o, made_by)));
  write_picture(frontier_plot(study, r, made_by), folder / "frontier");
  const SearchCounts& c = r.counts;
  write_file(
      folder / "run.json",
      fmt::format(
          "{{\n  \"command\": {},\n  \"version\": {},\n  \"scenario\": {},\n  \"study\": {},\n"
          "  \"configurations\": {},\n  \"infeasible\": {},\n  \"simulated\": {},\n  \"pruned\": {}\n}}\n",
          json_string(made_by.command), json_string(made_by.version), json_string(o.scenario),
          json_string(study.title), c.configurations, c.infeasible, c.simulated, c.pruned));
  fmt::print(
      "  wrote {}: frontier.csv, frontier.html, frontier.png, frontier.svg, launch.txt, run.json{}\n\n",
      folder.string(), o.all ? ", all.csv" : "");
  return met;
}

}  // namespace shardline::cli
