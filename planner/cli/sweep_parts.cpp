#include "planner/cli/sweep_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <string_view>

#include "planner/api/convert.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/plan_miss.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/scenario/asked_amounts.hpp"
#include "reports/json.hpp"
#include "reports/terminal.hpp"
#include "sim/base/error.hpp"
#include "sim/base/file_name.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::cli {

std::string count(std::uint64_t n) {
  std::string s = std::to_string(n);
  for (auto i = static_cast<std::ptrdiff_t>(s.size()) - 3; i > 0; i -= 3)
    s.insert(static_cast<std::size_t>(i), 1, ',');
  return s;
}

void another_question(const Study& study, const std::string& scenario) {
  struct Name {
    const char* operator()(const Sweep&) const { return "sweep"; }
    const char* operator()(const Conversation&) const { return "conversation"; }
    const char* operator()(const ThresholdGrid&) const { return "thresholds"; }
    const char* operator()(const PartitionGrid&) const { return "partition"; }
  };
  throw UserError(fmt::format("{} asks for another answer: run shardline {}", scenario,
                              std::visit(Name{}, study.question)));
}

std::string label(StrategyId id) {
  const Strategy& s = strategy(id);
  const bool nobodys = engines_with(s.launched_as).empty();
  const char* mark = s.exact ? (nobodys ? " (engines: none)" : "")
                             : (nobodys ? " (approximate, engines: none)" : " (approximate)");
  return s.name + std::string(mark);
}

std::string label(const Plan& plan) {
  return label(plan.strategy) + (even_parts(plan) ? ", even parts" : "");
}

std::string computed_text(const Study& study, const Plan& plan) {
  return fmt::format("{:.1f} %", 100 * attention_computed(study.study, plan));
}

namespace {

std::uint64_t plans_not_started(const SearchResult& r) {
  std::uint64_t out = 0;
  for (const auto& [rule, n] : r.not_started) out += n.plans;
  return out;
}

void print_statistics(const SearchResult& r) {
  const SearchCounts& c = r.counts;
  const std::uint64_t covered = c.configurations - c.infeasible - c.full;
  std::string rejected, separator = " (";
  for (const auto& [reason, n] : r.rejected) {
    rejected += fmt::format("{}{}: {}", separator, reason, count(n));
    separator = ", ";
  }
  if (!r.rejected.empty()) rejected += ")";
  if (c.full > 0)
    rejected += fmt::format("; {} more only with longer waits behind a full memory", count(c.full));
  print_notes(
      "  {} configurations ({} plans x batches): {} do not fit{}\n  {} evaluated: {} simulated by events, {} "
      "ruled out by {} bounds; {:.2f} s, {:.0f} configurations/s\n",
      count(c.configurations), count(c.plans), count(c.infeasible), rejected, count(covered),
      count(c.simulated), count(c.pruned), count(c.bounds), c.seconds,
      static_cast<double>(covered) / c.seconds);
  if (c.partitions > 0) print_notes("  {} chains priced in search of partitions\n", count(c.partitions));
  if (c.simulations_per_second > 0 && c.bounds_per_second > 0) {
    print_notes("  per core: {:.0f} event simulations/s, {:.0f} bounds/s\n", c.simulations_per_second,
                c.bounds_per_second);
  }
}

}  // namespace

void print_counts(const SearchResult& r, bool statistics) {
  if (statistics) print_statistics(r);
  for (const std::string& value : r.unused_values) print_notes("  {}: no plan has it\n", value);
  for (const auto& [id, reason] : r.without_plans) print_notes("  {}: no plan {}\n", to_string(id), reason);
  print_notes("\n");
}

std::string not_started_text(const Case& c, const SearchResult& r) {
  constexpr std::size_t kShown = 4;
  std::vector<std::pair<std::string, NotStarted>> rules(r.not_started.begin(), r.not_started.end());
  std::stable_sort(rules.begin(), rules.end(),
                   [](const auto& a, const auto& b) { return a.second.plans > b.second.plans; });
  // The last line is of one rule if there is no other.
  const std::size_t shown = rules.size() > kShown ? kShown - 1 : rules.size();
  const std::uint64_t all = plans_not_started(r);
  if (all == 0) return "";
  std::string out = fmt::format("  {} plans that {} does not start:\n", count(all), title_of(*c.engine));
  for (std::size_t i = 0; i < shown; ++i) {
    const Refusal& first = rules[i].second.first;
    out += fmt::format("    {} {}: {} ({}); first: {}\n", count(rules[i].second.plans), rules[i].first,
                       first.says, first.source, first.text);
  }
  std::uint64_t others = 0;
  std::string names;
  for (std::size_t i = shown; i < rules.size(); ++i) {
    others += rules[i].second.plans;
    names += (names.empty() ? "" : ", ") + rules[i].first;
  }
  return others > 0 ? out + fmt::format("    {} by {}\n", count(others), names) : out;
}

void print_not_started(const Case& c, const SearchResult& r, bool by_rule) {
  if (const auto note = longer_than_model(c)) print_notes("  {}\n", *note);
  if (c.engine == nullptr) return;
  const std::uint64_t all = plans_not_started(r);
  if (all == 0) return;
  print_notes("{}\n", by_rule ? not_started_text(c, r)
                              : fmt::format("  {} plans that {} does not start (-v: by which rules)\n",
                                            count(all), title_of(*c.engine)));
}

std::string of_engine(const Case& c) {
  return c.engine == nullptr ? "" : fmt::format(", of those that {} starts", title_of(*c.engine));
}

std::string missed_text(const Study& study, const SweepAnswer& answer, const std::string& time_name,
                        const SweepQuestion& asked) {
  const Point& p = *std::min_element(answer.frontier.begin(), answer.frontier.end(),
                                     [](const Point& a, const Point& b) { return a.time < b.time; });
  return fmt::format(
      "  no plan meets it{}; the nearest: {} {}{} ({}), {}\n", of_engine(study.study), time_name,
      to_string(p.time),
      asked.tokens_per_user > 0 ? fmt::format(", {} tokens/s/user", three_digits(1 / p.time.value)) : "",
      excess_text(p.time / asked.most_time - 1),
      to_string(p.asked()) + (strategy(p.plan.strategy).exact ? "" : " (approximate)"));
}

void PlanTable::add(std::vector<std::string> cells, const Point& point) {
  rows_.push_back({std::move(cells), point.plan, point.asked()});
}

std::vector<std::string> ShareColumns::header(std::vector<std::string> names) const {
  if (calibrated_) names.emplace_back("extrapolated");
  if (assumed_) names.emplace_back("assumed");
  return names;
}

std::vector<std::string> ShareColumns::cells(std::vector<std::string> row, const Shares& shares) const {
  if (calibrated_) row.push_back(fmt::format("{:.0f} %", 100 * shares.extrapolated));
  if (assumed_) row.push_back(fmt::format("{:.0f} %", 100 * shares.assumed));
  return row;
}

std::string PlanTable::text() const {
  const System& system = study_.study.system;
  const ShareColumns shown(system, rows_, [&](const Row& row) { return rated_.of(row.plan).shares; });
  std::vector<std::string> header = shown.header(header_);
  const bool nobodys = std::any_of(rows_.begin(), rows_.end(), [](const Row& row) {
    return engines_with(strategy(row.plan.strategy).launched_as).empty();
  });
  if (nobodys) header.emplace_back("engines");
  header.emplace_back("plan");
  Table t(header);
  for (const Row& row : rows_) {
    std::vector<std::string> cells = shown.cells(row.cells, rated_.of(row.plan).shares);
    if (nobodys) cells.push_back(engine_names_of(strategy(row.plan.strategy)));
    cells.push_back(to_string(row.asked));
    t.add(std::move(cells));
  }
  return fitted(t, kept_) +
         (nobodys ? "  engines: those that have the strategy; none: no engine runs it\n" : "");
}

void print_warnings(const std::vector<Diagnostic>& warnings) {
  // Where both go to one file no warning stands inside a line of the answer. A failure is found at exit.
  if (!warnings.empty()) std::fflush(stdout);
  for (Diagnostic d : warnings) {
    d.what = "warning: " + d.what;
    fmt::print(stderr, "{}", wrapped_messages(to_string(d), error_width()));
  }
}

const std::vector<std::string>& engine_columns() {
  static const std::vector<std::string> names{"engine", "engine_version"};
  return names;
}

std::vector<std::string> engine_cells(const Case& c) {
  if (!c.engine) return {"ideal", ""};
  return {c.engine->name, c.engine->version};
}

const std::vector<std::string>& share_columns() {
  static const std::vector<std::string> names{"measured_share", "fitted_share", "extrapolated_share",
                                              "assumed_share"};
  return names;
}

std::vector<std::string> share_cells(const Shares& s) {
  return {number_text(s.measured), number_text(s.fitted), number_text(s.extrapolated),
          number_text(s.assumed)};
}

std::string simulate_command(const Study& study, const SweepOptions& o, const Plan& plan) {
  return fmt::format("shardline simulate {} --model {}{} --plan {}", shell_operand(o.scenario),
                     shell_word(study.study.model.name),
                     (o.costs.empty() ? "" : " --costs " + o.costs) + engine_arguments(o.engine),
                     to_string(plan));
}

api::SweepQuestion asked_of(const SweepOptions& o, const Provenance& made_by) {
  api::SweepQuestion q;
  q.scenario = o.scenario;
  if (o.ttl) q.most_ttl_s = asked_time("--ttl", *o.ttl).value;
  q.least_tokens_per_s_user = o.tokens_per_user;
  if (o.ttft) q.most_ttft_s = asked_time("--ttft", *o.ttft).value;
  q.least_users = o.users;
  q.exhaustive = o.exhaustive || o.all;
  q.keep_all = o.all && (made_by.document != nullptr || !o.out.empty());
  return q;
}

std::string run_json(const Study& study, const SweepQuestion& asked, const SweepAnswer& answer,
                     const SweepOptions& o, const Provenance& made_by,
                     const std::vector<std::string>& files) {
  api::RunRecord record = api::run_record(study, asked, answer);
  record.command = made_by.command;
  record.version = made_by.version;
  record.scenario = o.scenario;
  record.question = asked_of(o, made_by);
  record.files = files;
  for (api::Winner& w : record.winners) w.simulate = simulate_command(study, o, parse_plan(w.point.plan));
  return api::to_json(record);
}

namespace {

std::string axis_label(Metric m, StepKind kind) {
  for (const NamedMetric& named : metrics_of(kind)) {
    if (named.metric == m) return named.label;
  }
  SL_CHECK(false, "a study is compared by metrics of its phase");
  return "";
}

}  // namespace

Plot frontier_plot(const Study& study, const SearchResult& r, const RatedPoints& rated,
                   const Provenance& made_by) {
  Plot plot;
  plot.title = study.title + throughput_text(study);
  plot.x_label = axis_label(r.x, study.study.batch.kind());
  plot.y_label = axis_label(r.y, study.study.batch.kind());
  plot.log_y = true;
  plot.log_x = r.x == Metric::gpus || r.x == Metric::gpu_seconds;
  plot.less_x = !maximised(r.x);
  plot.less_y = !maximised(r.y);
  const auto shown = [&](Metric m, const Point& p) { return value_of(study.study, m, p); };
  plot.footnote = fmt::format("shardline {}: {}; costs: {}", made_by.version, made_by.command,
                              costs_text(study.study.system));
  bool any_open = false;
  const auto add = [&](const std::string& name, const Frontier& frontier) {
    // Along GPU counts a curve; along other metrics any point stands for all that it beats.
    PlotSeries line{name, r.x == Metric::gpus ? PlotStyle::line : PlotStyle::steps, {}},
        open{name, PlotStyle::open_points, {}}, filled{name, PlotStyle::points, {}};
    for (const Point& p : frontier.points()) {
      line.points.emplace_back(shown(r.x, p), shown(r.y, p));
      (rated.of(p.plan).shares.unmeasured() > 0.5 ? open : filled).points.push_back(line.points.back());
    }
    any_open = any_open || !open.points.empty();
    // The legend shows the mark that comes last.
    for (PlotSeries* s : {&line, &open, &filled}) {
      if (!s->points.empty()) plot.series.push_back(std::move(*s));
    }
  };
  const auto bar = [&](const Point& p) {
    const ErrorRange time = plan_time_error(study, rated.of(p.plan).errors);
    const auto end = [&](double error) {
      const Point off{p.plan, p.time * (1 + error), p.memory, p.ttft, p.decoding, p.burst};
      return ErrorBars::End{shown(r.x, off), shown(r.y, off)};
    };
    return std::pair(end(time.low), end(time.high));
  };
  if (!study.study.system.calibration.empty()) {
    // What skips attention is no answer to the same question: the best exact plans keep their band, and the
    // approximate ones that are ahead of them have another.
    const bool approximate = any_approximate(study);
    const bool steps = r.x != Metric::gpus;
    plot.errors.push_back(
        {{}, approximate ? "nominal 90 % of the best exact" : "nominal 90 % of the best", steps});
    for (const Point& p : r.of(exact_ones(study)).points()) plot.errors[0].bars.push_back(bar(p));
    if (approximate) plot.errors.push_back({{}, "nominal 90 % of approximate ones ahead", steps});
    for (const Point& p : r.overall().points()) {
      if (!strategy(p.plan.strategy).exact) plot.errors[1].bars.push_back(bar(p));
    }
  }
  for (const StrategyId id : study.sweep().search.strategies) add(label(id), r.frontiers.at(id));
  add("kv_runahead, even parts", r.even);
  if (any_open) plot.footnote += "; open marks: more than half of the time extrapolated or assumed";
  return plot;
}

std::filesystem::path folder_of(const Study& study, const std::string& out) {
  std::filesystem::path folder = std::filesystem::path(out) / file_name_of(study.study.model.name);
  std::error_code error;  // nothing is written outside of `out`
  if (std::filesystem::is_symlink(folder, error))
    throw UserError(fmt::format(
        "cannot write {0}: {0} is a symbolic link; remove it, or choose another folder", folder.string()));
  return folder;
}

std::vector<FolderClaim> claim_folders(const Scenario& scenario, const std::string& out) {
  std::vector<FolderClaim> claims;
  if (out.empty()) return claims;
  std::set<std::filesystem::path> folders;  // a claim holds its folder against this process, too
  for (const Study& study : scenario.studies) folders.insert(folder_of(study, out));
  for (const std::filesystem::path& folder : folders) claims.emplace_back(folder);
  return claims;
}

}  // namespace shardline::cli
