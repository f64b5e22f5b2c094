// What a sweep of decode steps prints and writes: TTL against tokens/s/GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/cli/cost_parts.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/launch_parts.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/cli/sweep_page.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/strategies/columns.hpp"
#include "planner/studies/plan_launches.hpp"
#include "reports/json.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

constexpr const char* kSpeed = "tokens/s/user";

// What a point's time is: of steps that decode alone, or of those of an engine that serves.
std::string time_name(const Study& study) { return workload_of(study) != nullptr ? "TPOT" : "TTL"; }

std::vector<std::string> plan_row(const Study& study, const RatedPoints& rated, const std::string& first,
                                  const Point& p) {
  const DecodeMetrics m = decode_metrics(study.study, p.time, p.plan, p.decoding);
  const ErrorTerms& errors = rated.of(p.plan).errors;
  std::vector<std::string> ttft;
  if (workload_of(study) != nullptr)
    ttft = joined_cells(
        {{to_string(p.ttft)}, ttft_cells(study, p, rated.ttft_of(p.plan)), {to_string(p.burst)}});
  return joined_cells(
      {{first, to_string(m.ttl)},
       time_cells(study, errors),
       ttft,
       {fmt::format("{:.1f}", m.tokens_per_s_user), fmt::format("{:.2f}", m.tokens_per_s_gpu)},
       rate_cells(study, errors),
       {users_text(study.study, p), std::to_string(p.plan.gpus()), to_string(p.memory, 3)}});
}

PlanTable plan_table(const Study& study, const RatedPoints& rated, const char* first,
                     const SweepQuestion& asked) {
  const std::vector<std::string> interval = interval_header(study.study.system);
  std::vector<std::string> ttft;
  if (workload_of(study) != nullptr) ttft = joined_cells({{"TTFT"}, interval, {"burst"}});
  return {study, rated,
          joined_cells({{first, time_name(study)},
                        interval,
                        ttft,
                        {kSpeed, "tokens/s/GPU"},
                        interval,
                        {"users", "GPUs", "memory/GPU"}}),
          asked.tokens_per_user > 0 ? kSpeed : ""};
}

// What tokens of the plans above cost, from the first to the last.
std::string budgets_cost(const Study& study, const SweepAnswer& answer) {
  if (answer.budgets.empty()) return "";
  const auto of = [&](const BudgetPlan& b) {
    return cost_text(study, cost_of(study, b.best, answer.rated.of(b.best.plan)));
  };
  const std::string first = of(answer.budgets.front()), last = of(answer.budgets.back());
  if (first.empty()) return "";
  return fmt::format("  costs of the first: {}\n{}", first,
                     first == last ? "" : fmt::format("  of the last: {}\n", last));
}

void print_budgets(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked) {
  PlanTable t = plan_table(study, answer.rated, (time_name(study) + " budget").c_str(), asked);
  for (const BudgetPlan& b : answer.budgets)
    t.add(plan_row(study, answer.rated, to_string(b.budget), b.best), b.best);
  const std::string per =
      asked.tokens_per_user > 0 ? std::string("least ") + kSpeed : time_name(study) + " budget";
  print_notes("  Best plan per {}\n{}{}", per, t.text(), interval_note(study));
  print_notes("{}", budgets_cost(study, answer));
  print_notes("{}\n", open_budgets_text(answer));
}

// The answer centred on what the user asked for.
void print_target(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked) {
  std::string text;
  if (asked.most_time > Seconds(0))
    text += " " + time_target_text(time_name(study), asked.most_time, asked.tokens_per_user);
  if (asked.most_ttft > Seconds(0))
    text += fmt::format("{} TTFT at most {}", text.empty() ? "" : ",", to_string(asked.most_ttft));
  if (asked.least_users > 0)
    text += fmt::format("{} at least {:.0f} users", text.empty() ? "" : ",", asked.least_users);
  print_notes("  Your target:{}\n", text);
  if (answer.meeting.empty()) {
    print_notes("{}\n", missed_text(study, answer, time_name(study), asked));
    return;
  }
  PlanTable t = plan_table(study, answer.rated, "rank", asked);
  for (std::size_t i = 0; i < answer.meeting.size(); ++i)
    t.add(plan_row(study, answer.rated, std::to_string(i + 1), answer.meeting[i]), answer.meeting[i]);
  print_notes("{}", t.text());
  print_notes("{}\n", open_target_text(study, answer, asked));
}

// Where no plan has a first token soon enough, with what else the scenario asks for.
void print_nearest(const Study& study, const Point& p, const SweepQuestion& asked) {
  const Seconds most = study.sweep().search.most_time;
  const std::string users = users_text(study.study, p);
  print_notes("  Your target: TTFT at most {}{}\n", to_string(asked.most_ttft),
              most > Seconds(0) ? fmt::format(", TPOT at most {}", to_string(most)) : "");
  print_notes("  no plan meets it{}; the nearest: TTFT {}, TPOT {}, {} user{}, {}\n\n",
              of_engine(study.study), to_string(p.ttft), to_string(p.time), users, users == "1" ? "" : "s",
              to_string(p.asked()));
}

std::string names(const std::vector<StrategyId>& ids) {
  std::string out;
  for (const StrategyId id : ids) out += (out.empty() ? "" : ", ") + std::string(to_string(id));
  return out;
}

void print_gain(const SweepAnswer& answer, const Comparison& compare) {
  const Gain& g = *answer.gain;
  print_notes(
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
  print_notes("{}", fitted(t));
  print_notes("{}\n", open_gain_text(answer));
}

std::vector<std::string> points_header(const Study& study) {
  const bool served = workload_of(study) != nullptr;
  const std::string time_column = served ? "tpot" : "ttl";
  std::vector<std::string> header{"strategy",
                                  "plan",
                                  "gpus",
                                  "batch",
                                  "users",
                                  time_column + "_ms",
                                  "tokens_per_s_user",
                                  "tokens_per_s_gpu",
                                  "memory_gb_per_gpu"};
  const auto columns = plan_columns(study.study.batch.kind());
  header.insert(header.end(), columns.begin(), columns.end());
  header.insert(header.end(), {"on_frontier", time_column + "_low_ms", time_column + "_high_ms",
                               "tokens_per_s_gpu_low", "tokens_per_s_gpu_high"});
  header.insert(header.end(), share_columns().begin(), share_columns().end());
  if (served) header.insert(header.end(), {"ttft_ms", "input_tokens", "output_tokens"});
  header.insert(header.end(), engine_columns().begin(), engine_columns().end());
  if (served)
    header.insert(header.end(),
                  {"ttft_low_ms", "ttft_high_ms", "ttft_burst_ms", "users_waiting", "memory_capped"});
  header.emplace_back("engines");
  header.insert(header.end(), cost_columns().begin(), cost_columns().end());
  header.emplace_back("what");
  return header;
}

std::string points_csv(const Study& study, const RatedPoints& rated, const BestPoints& best) {
  const bool served = workload_of(study) != nullptr;
  const EnginesThatStart starts(study.study);
  std::string out = csv_line(points_header(study));
  for (std::size_t i = 0; i < rated.points.size(); ++i) {
    check_cancelled();
    const Point& p = rated.points[i];
    const DecodeMetrics m = decode_metrics(study.study, p.time, p.plan, p.decoding);
    std::vector<std::string> row{std::string(to_string(p.plan.strategy)),
                                 to_string(p.asked()),
                                 std::to_string(p.plan.gpus()),
                                 std::to_string(p.plan.batch),
                                 std::to_string(users_of(study.study, p.plan) + p.all_waiting()),
                                 number_text(m.ttl.value * 1e3),
                                 number_text(m.tokens_per_s_user),
                                 number_text(m.tokens_per_s_gpu),
                                 number_text(p.memory.value / 1e9)};
    const auto cells = plan_cells(p.plan, study.study.batch.kind());
    row.insert(row.end(), cells.begin(), cells.end());
    row.emplace_back(best.holds(p) ? "1" : "0");
    const ErrorTerms& errors = rated.ratings[i].errors;
    const ErrorRange time = plan_time_error(study, errors), rate = plan_rate_error(study, errors);
    for (const double end : {time.low, time.high}) row.push_back(number_text(m.ttl.value * (1 + end) * 1e3));
    for (const double end : {rate.low, rate.high}) row.push_back(number_text(m.tokens_per_s_gpu * (1 + end)));
    const auto shares = share_cells(rated.ratings[i].shares);
    row.insert(row.end(), shares.begin(), shares.end());
    if (served)
      row.insert(row.end(), {number_text(p.ttft.value * 1e3), std::to_string(workload_of(study)->input),
                             std::to_string(workload_of(study)->output)});
    const auto engine = engine_cells(study.study);
    row.insert(row.end(), engine.begin(), engine.end());
    if (served) {
      const auto range = ttft_error(study, p, rated.ttft[i]);
      for (const bool high : {false, true})  // empty where it was not measured
        row.push_back(range ? number_text(p.ttft.value * (1 + (high ? range->high : range->low)) * 1e3) : "");
      row.push_back(number_text(p.burst.value * 1e3));
      row.push_back(std::to_string(p.all_waiting()));
      row.emplace_back(point_preempts(study, p) ? "1" : "0");
    }
    row.push_back(starts.of(p.plan));
    for (std::string& cell : cost_cells(cost_of(study, p, rated.ratings[i]))) row.push_back(std::move(cell));
    row.push_back(rates_of_what(study));
    out += csv_line(row);
  }
  return out;
}

// Both halves of each pair of pools.
void add_pools(const Study& study, const SweepAnswer& answer, std::vector<NamedPlan>& out) {
  for (const PoolPair& p : answer.pools) {
    const std::string whole = p.whole.gpus > 0 ? fmt::format("; whole replicas: {} for prompts and {}",
                                                             p.whole.prefill, p.whole.decode)
                                               : "";
    out.push_back({fmt::format("{}   TPOT {}, {}\nprompts on {}   {}{}", to_string(p.decode.plan),
                               to_string(p.decode.time),
                               users_on(users_text(study.study, p.decode), p.decode.plan.gpus()),
                               to_string(p.prefill.plan), gpus_text(p.prefill.plan.gpus()), whole),
                   p.decode.plan, p.prefill.plan, std::max(1, p.whole.decode), std::max(1, p.whole.prefill)});
  }
}

// The plans of print_target and of print_budgets, each once.
std::vector<NamedPlan> launched(const Study& study, const SweepAnswer& answer) {
  std::vector<NamedPlan> out;
  const auto add = [&](const Point& p) {
    const auto same = [&](const NamedPlan& n) { return n.plan == p.plan; };
    if (std::any_of(out.begin(), out.end(), same)) return;
    out.push_back({fmt::format("{}   {} {}, {}", to_string(p.asked()), time_name(study), to_string(p.time),
                               users_on(users_text(study.study, p), p.plan.gpus())),
                   p.plan});
  };
  for (const Point& p : answer.meeting) add(p);
  for (const BudgetPlan& b : answer.budgets) add(b.best);
  add_pools(study, answer, out);
  return out;
}

Plot gain_plot(const Study& study, const Gain& gain, const Provenance& made_by) {
  Plot plot;
  plot.title = study.title + throughput_text(study) + ": gain over the baseline";
  plot.x_label = "TTL budget over the baseline's lowest TTL (%)";
  plot.y_label = "gain in tokens/s/GPU";
  plot.footnote = "shardline " + made_by.version + ": " + made_by.command;
  PlotSeries s{"candidate / baseline", PlotStyle::steps, {}};
  double most = 1;
  for (const GainPoint& g : gain.curve) {
    s.points.emplace_back(100 * g.slack, g.gain);
    most = std::max(most, g.gain);
  }
  plot.log_y = most > 5;
  plot.series.push_back(std::move(s));
  return plot;
}

void write_results(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                   const SweepOptions& o, const Provenance& made_by) {
  OutputFolder files(folder_of(study, o.out));
  const BestPoints best(study, answer.found);
  files.write("frontier.csv", points_csv(study, answer.rated, best));
  if (!answer.pools.empty()) files.write("pools.csv", pools_csv(study, answer));
  if (answer.all) files.write("all.csv", points_csv(study, *answer.all, best));
  const std::string launches = write_launches(files, study, launched(study, answer));
  files.write("frontier.html", page_html(sweep_page(study, answer, asked, o, made_by)));
  files.draw(frontier_plot(study, answer.found, answer.rated, made_by), "frontier");
  if (answer.gain) {
    files.draw(gain_plot(study, *answer.gain, made_by), "gain");
  } else if (!study.sweep().compare.candidate.empty()) {
    const bool no_candidate = answer.found.of(study.sweep().compare.candidate).points().empty();
    files.leave_out(
        "gain", fmt::format("no plan of the {} of compare fits", no_candidate ? "candidate" : "baseline"));
  }
  files.write("run.json", run_json(study, asked, answer, o, made_by, files.names()));
  print_notes("{}{}\n", files.publish(), launches);
}

// Where no plan serves prompts beside its answers, pools may.
void write_pools(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                 const SweepOptions& o, const Provenance& made_by) {
  OutputFolder files(folder_of(study, o.out));
  files.write("pools.csv", pools_csv(study, answer));
  std::vector<NamedPlan> pairs;
  add_pools(study, answer, pairs);
  const std::string launches = write_launches(files, study, pairs);
  files.write("frontier.html", page_html(sweep_page(study, answer, asked, o, made_by)));
  files.write("run.json", run_json(study, asked, answer, o, made_by, files.names()));
  print_notes("{}{}\n", files.publish(), launches);
}

bool on_default_axes(const SearchResult& r) { return r.x == Metric::speed && r.y == Metric::throughput; }

}  // namespace

void report_decode(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                   const SweepOptions& o, const Provenance& made_by) {
  print_warnings(answer.unread);
  if (!answer.any() && !answer.found.nearest.empty()) {
    print_nearest(study, answer.found.nearest.front(), asked);
    print_pools(study, answer);
    if (!answer.pools.empty() && !o.out.empty()) write_pools(study, answer, asked, o, made_by);
    return;
  }
  if (!answer.any()) {
    print_notes("  {}{}\n\n",
                asked.least_users > 0 ? "no plan that fits serves so many users" : "no plan fits",
                of_engine(study.study));
    print_pools(study, answer);
    if (!answer.pools.empty() && !o.out.empty()) write_pools(study, answer, asked, o, made_by);
    return;
  }
  print_warnings(answer.narrow);
  if (asked.has_target()) print_target(study, answer, asked);
  print_budgets(study, answer, asked);
  if (const std::string host = unmeasured_host_text(study.study, plans_of(answer.rated)); !host.empty())
    print_notes("  {}\n\n", host);
  std::vector<Plan> frontier;
  for (const Point& p : answer.frontier) frontier.push_back(p.plan);
  if (const std::string none = unstarted_text(study.study, frontier); !none.empty())
    print_notes("  {}\n\n", none);
  if (workload_of(study) != nullptr) {
    if (const std::string capped = capped_plans_text(study, answer.rated.points); !capped.empty())
      print_notes("  {}\n\n", capped);
  }
  if (on_default_axes(answer.found) && answer.gain) print_gain(answer, study.sweep().compare);
  print_pools(study, answer);
  if (!o.out.empty()) write_results(study, answer, asked, o, made_by);
}

}  // namespace shardline::cli
