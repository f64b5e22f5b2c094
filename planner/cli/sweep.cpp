#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/cli/commands.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/search/compare.hpp"
#include "reports/atomic_file.hpp"
#include "reports/json.hpp"
#include "reports/page.hpp"
#include "reports/plot.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

std::vector<std::string> plan_row(const std::string& first, const Point& p) {
  const Metrics m = metrics(p.ttl, p.plan);
  return {first,
          to_string(p.ttl),
          fmt::format("{:.1f}", m.tokens_per_s_user),
          fmt::format("{:.2f}", m.tokens_per_s_gpu),
          fmt::format("{:.0f}", m.users),
          std::to_string(p.plan.gpus()),
          to_string(p.memory, 3)};
}

PlanTable plan_table(const Study& study, const RatedPoints& rated, const char* first) {
  return {study, rated, {first, "TTL", "tokens/s/user", "tokens/s/GPU", "users", "GPUs", "memory/GPU"}};
}

constexpr std::array<double, 8> kBudgets{1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0};  // x the lowest TTL

Seconds lowest_ttl(const std::vector<Point>& frontier) {
  return std::min_element(frontier.begin(), frontier.end(),
                          [](const Point& a, const Point& b) { return a.ttl < b.ttl; })
      ->ttl;
}

// The best plan of each budget, without repetition.
std::vector<const Point*> budget_plans(const std::vector<Point>& frontier) {
  std::vector<const Point*> out;
  for (const double factor : kBudgets) {
    const Point* best = best_within(frontier, lowest_ttl(frontier) * factor);
    if (out.empty() || best != out.back()) out.push_back(best);
  }
  return out;
}

void print_budgets(const Study& study, const RatedPoints& rated, const std::vector<Point>& frontier) {
  PlanTable t = plan_table(study, rated, "TTL budget");
  const Point* last = nullptr;
  for (const double factor : kBudgets) {
    const Seconds budget = lowest_ttl(frontier) * factor;
    const Point* best = best_within(frontier, budget);
    if (best == last) continue;
    last = best;
    t.add(plan_row(to_string(budget), *best), best->plan);
  }
  fmt::print("  Best plan per TTL budget\n{}\n", t.text());
}

struct Target {
  Seconds ttl{0};
  double users = 0;
  bool given() const { return ttl > Seconds(0) || users > 0; }
};

Target read_target(const SweepOptions& o) {
  Target t;
  if (o.ttl) t.ttl = time_target("--ttl", *o.ttl);
  if (o.ttft) time_target("--ttft", *o.ttft);
  if (o.tokens_per_user) {
    const Seconds ttl(1 / *o.tokens_per_user);
    t.ttl = t.ttl > Seconds(0) ? std::min(t.ttl, ttl) : ttl;
  }
  if (o.users) t.users = *o.users;
  return t;
}

// A target of the other phase would silently mean nothing.
void require_target(const Study& study, const SweepOptions& o) {
  require_question(study, o.scenario, Question::sweep);
  if (study.study.phase == Phase::decode && o.ttft)
    throw UserError("--ttft is for prefill scenarios; this one decodes: use --ttl");
  if (study.study.phase == Phase::prefill && (o.ttl || o.tokens_per_user || o.users))
    throw UserError(
        "--ttl, --tokens-per-user and --users are for decode scenarios; this one is a prefill: use --ttft");
}

// The answer centred on what the user asked for (the search left out plans with too few users). False if no
// plan meets it.
bool print_target(const Study& study, const RatedPoints& rated, const std::vector<Point>& frontier,
                  const Target& target) {
  std::vector<const Point*> meeting;
  for (const Point& p : frontier) {
    if (target.ttl == Seconds(0) || p.ttl <= target.ttl) meeting.push_back(&p);
  }
  std::string asked;
  if (target.ttl > Seconds(0)) asked += " TTL at most " + to_string(target.ttl);
  if (target.users > 0)
    asked += fmt::format("{} at least {:.0f} users", asked.empty() ? "" : ",", target.users);
  fmt::print("  Your target:{}\n", asked);
  if (meeting.empty()) {
    fmt::print("  no plan meets it\n\n");
    return false;
  }
  std::sort(meeting.begin(), meeting.end(), [](const Point* a, const Point* b) {
    return value(Metric::tokens_per_s_gpu, *a) > value(Metric::tokens_per_s_gpu, *b);
  });
  // Neighbouring batches of one plan are one answer: the best of each sharding is shown.
  PlanTable t = plan_table(study, rated, "rank");
  std::vector<Plan> shown;
  for (const Point* p : meeting) {
    Plan sharding = p->plan;
    sharding.batch = sharding.chunks = 1;
    if (std::find(shown.begin(), shown.end(), sharding) != shown.end()) continue;
    shown.push_back(sharding);
    t.add(plan_row(std::to_string(shown.size()), *p), p->plan);
    if (shown.size() == 5) break;
  }
  fmt::print("{}\n", t.text());
  return true;
}

std::string names(const std::vector<StrategyId>& ids) {
  std::string out;
  for (const StrategyId id : ids) out += (out.empty() ? "" : ", ") + std::string(to_string(id));
  return out;
}

void print_gain(const Gain& g, const Comparison& compare) {
  fmt::print(
      "  Best of {} over best of {}:\n  {:.3f}x the interactivity (tokens/s/user); tokens/s/GPU at the same "
      "TTL budget:\n",
      names(compare.candidate), names(compare.baseline), g.interactivity);
  Table t({"budget over the baseline's lowest TTL", "gain"});
  for (const GainPoint& p : g.curve) {
    for (const double slack : {0.0, 0.05, 0.10, 0.25, 0.33, 0.50, 0.75, 1.0}) {
      if (std::abs(p.slack - slack) < 1e-9)
        t.add({fmt::format("+{:.0f} %", 100 * slack), fmt::format("{:.2f}x", p.gain)});
    }
  }
  t.add({"geometric mean of +0 to +100 %", fmt::format("{:.2f}x", g.geometric_mean)});
  fmt::print("{}\n", t.text());
}

std::string points_csv(const RatedPoints& rated, const SearchResult* families) {
  std::vector<std::string> header{"strategy",
                                  "plan",
                                  "gpus",
                                  "batch",
                                  "users",
                                  "ttl_ms",
                                  "tokens_per_s_user",
                                  "tokens_per_s_gpu",
                                  "memory_gb_per_gpu",
                                  "pp",
                                  "dp",
                                  "kvp",
                                  "tpa",
                                  "ep",
                                  "tpf",
                                  "chunks",
                                  "on_frontier"};
  header.insert(header.end(), share_columns().begin(), share_columns().end());
  std::string out = csv_line(header);
  const auto on_frontier = [&](const Point& p) {
    if (families == nullptr) return true;
    const auto overall = families->overall();
    return !overall.dominates(score(families->x, p), score(families->y, p));
  };
  for (std::size_t i = 0; i < rated.points.size(); ++i) {
    const Point& p = rated.points[i];
    const Metrics m = metrics(p.ttl, p.plan);
    std::vector<std::string> row{std::string(to_string(p.plan.strategy)),
                                 to_string(p.plan),
                                 std::to_string(p.plan.gpus()),
                                 std::to_string(p.plan.batch),
                                 std::to_string(p.plan.users()),
                                 number_text(p.ttl.value * 1e3),
                                 number_text(m.tokens_per_s_user),
                                 number_text(m.tokens_per_s_gpu),
                                 number_text(p.memory.value / 1e9),
                                 std::to_string(p.plan.pp),
                                 std::to_string(p.plan.dp),
                                 std::to_string(p.plan.kvp),
                                 std::to_string(p.plan.tpa),
                                 std::to_string(p.plan.ep),
                                 std::to_string(p.plan.tpf),
                                 std::to_string(p.plan.chunks),
                                 on_frontier(p) ? "1" : "0"};
    const auto shares = share_cells(rated.shares[i]);
    row.insert(row.end(), shares.begin(), shares.end());
    out += csv_line(row);
  }
  return out;
}

Page frontier_page(const Study& study, const SearchResult& r, const RatedPoints& rated, const SweepOptions& o,
                   const Provenance& made_by) {
  Page page = page_of(study, r, o, made_by);
  const Frontier overall = r.overall();
  for (std::size_t i = 0; i < rated.points.size(); ++i) {
    const Point& p = rated.points[i];
    const Shares& from = rated.shares[i];
    const Metrics m = metrics(p.ttl, p.plan);
    page.points.push_back({std::string(to_string(p.plan.strategy)), to_string(p.plan),
                           simulate_command(study, o, p.plan), p.plan.gpus(), p.plan.batch, p.plan.users(),
                           p.ttl.value * 1e3, m.tokens_per_s_user, m.tokens_per_s_gpu, p.memory.value / 1e9,
                           !overall.dominates(score(r.x, p), score(r.y, p)), from.measured, from.fitted,
                           from.extrapolated, from.assumed});
  }
  return page;
}

// Flags for the plans of print_budgets.
std::string launch_text(const Study& study, const std::vector<Point>& frontier) {
  std::string out = study.title + "\n";
  for (const Point* p : budget_plans(frontier)) {
    out += fmt::format("\n{}   TTL {}, {} users on {} GPUs\n", to_string(p->plan), to_string(p->ttl),
                       p->plan.users(), p->plan.gpus());
    for (const Deployment& d : deployments(study.study, p->plan)) {
      out += "  " + d.engine + "\n";
      for (const std::string& line : d.lines) out += "    " + line + "\n";
      for (const std::string& note : d.notes) out += "    # " + note + "\n";
    }
  }
  return out;
}

void write_results(const Study& study, const SearchResult& r, const RatedPoints& rated, const SweepOptions& o,
                   const Provenance& made_by) {
  OutputFolder files(folder_of(study, o.out));
  files.write("frontier.csv", points_csv(rated, &r));
  if (o.all) files.write("all.csv", points_csv(rate(study, r.all, o.threads), &r));
  files.write("launch.txt", launch_text(study, r.overall().points()));
  files.write("frontier.html", page_html(frontier_page(study, r, rated, o, made_by)));
  files.draw(frontier_plot(study, r, rated, made_by), "frontier");
  const auto candidate = r.of(study.compare.candidate).points(),
             baseline = r.of(study.compare.baseline).points();
  if (!candidate.empty() && !baseline.empty()) {
    Plot plot;
    plot.title = study.title + ": gain over the baseline";
    plot.x_label = "TTL budget over the baseline's lowest TTL (%)";
    plot.y_label = "gain in tokens/s/GPU";
    plot.footnote = "shardline " + made_by.version + ": " + made_by.command;
    PlotSeries s{"candidate / baseline", PlotStyle::steps, {}};
    double most = 1;
    for (const GainPoint& g : gain(candidate, baseline).curve) {
      s.points.emplace_back(100 * g.slack, g.gain);
      most = std::max(most, g.gain);
    }
    plot.log_y = most > 5;
    plot.series.push_back(std::move(s));
    files.draw(plot, "gain");
  } else if (!study.compare.candidate.empty()) {
    files.leave_out("gain", fmt::format("no plan of the {} of compare fits",
                                        candidate.empty() ? "candidate" : "baseline"));
  }
  files.write("run.json", run_json(study, r, o, made_by));
  fmt::print("{}\n", files.summary());
}

bool on_default_axes(const SearchResult& r) {
  return r.x == Metric::tokens_per_s_user && r.y == Metric::tokens_per_s_gpu;
}

void declare(Arguments& a, SweepOptions& o) {
  a.add("scenario", o.scenario, "Scenario file, or the name of a shipped scenario").required();
  a.add("-o,--out", o.out, "Folder for frontier.csv, plots and page (none: print only)");
  a.add("--ttl", o.ttl, "Your token-to-token latency target, for instance \"20 ms\"");
  a.add("--ttft", o.ttft, "Your time-to-first-token target (prefill), for instance \"80 s\"");
  a.add("--tokens-per-user", o.tokens_per_user, "Your target in tokens/s/user").positive();
  a.add("--users", o.users, "Users to serve at once, at least").positive();
  a.flag("--all", o.all, "Also write all.csv with every simulated configuration");
  a.flag("--exhaustive", o.exhaustive, "Simulate every feasible configuration, without pruning");
  add_threads(a, o.threads);
  add_costs(a, o.costs);
}

int run(const SweepOptions& o, const Provenance& made_by) {
  const Scenario scenario = scenario_named(o.scenario, o.costs);
  const Target target = read_target(o);
  if (!o.out.empty()) make_output_folder(o.out);
  bool any = false, met = true;
  for (const Study& study : scenario.studies) {
    require_target(study, o);
    SearchOptions options = study.search;
    options.threads = o.threads;
    options.prune = !o.exhaustive && !o.all;
    options.keep_all = o.all;
    options.least_users = target.users;
    SearchResult r;
    {
      Progress progress(study.study.model.name, Progress::terminal());
      r = search(study.study, options, [&](std::uint64_t done, std::uint64_t total) {
        progress.show(done, total);
        return !interrupted();
      });
    }
    if (interrupted()) throw UserError("interrupted; nothing was written for " + study.title);
    fmt::print("{}\n", study.title);
    print_counts(r);
    if (study.study.phase == Phase::prefill) {
      const bool fine = report_prefill(study, r, o, made_by);
      any = any || !r.overall().points().empty();
      met = met && fine;
      continue;
    }
    const std::vector<Point> frontier = r.overall().points();
    if (frontier.empty()) {
      fmt::print("  {}\n\n", target.users > 0 ? "no plan that fits serves so many users" : "no plan fits");
      continue;
    }
    any = true;
    const RatedPoints rated = rate_frontiers(study, r, o.threads);
    warn_unread(study, rated);
    if (target.given()) met = print_target(study, rated, frontier, target) && met;
    print_budgets(study, rated, frontier);
    const auto candidate = r.of(study.compare.candidate).points(),
               baseline = r.of(study.compare.baseline).points();
    if (on_default_axes(r) && !candidate.empty() && !baseline.empty())
      print_gain(gain(candidate, baseline), study.compare);
    if (!o.out.empty()) write_results(study, r, rated, o, made_by);
  }
  return any && met ? 0 : 3;
}

}  // namespace

const Command kSweep{"sweep", "Simulate every valid plan and batch; show the Pareto frontier",
                     "shardline sweep helix_gb200_1m --ttl \"10 ms\" -o out/helix",
                     prepare<SweepOptions, declare, run>};

}  // namespace shardline::cli
