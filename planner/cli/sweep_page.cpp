#include "planner/cli/sweep_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "planner/cli/interval_parts.hpp"
#include "planner/cli/launch_parts.hpp"
#include "planner/layers/drafts.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

// A plan of the page, with what its columns are computed from.
struct Shown {
  const Point& point;
  const Rating& rating;
  const ErrorTerms* ttft;  // of points that are served
};

struct Column {
  PageColumn head;
  std::optional<Metric> metric;  // that it shows, if a sweep may have it as an axis
  std::function<PageNumber(const Shown&)> of;
};

PageInterval interval_of(const ErrorRange& r) { return {r.low, r.high}; }

// Without a calibration every price is off alike, and an engine's host is not: the interval is still known.
bool has_intervals(const Study& study) { return !study.study.system.calibration.empty(); }

Column plain(const char* name, const char* unit, Better better, bool filtered, std::optional<Metric> metric,
             std::function<double(const Shown&)> of) {
  return {{name, unit, better, filtered}, metric, [of](const Shown& s) { return PageNumber{of(s)}; }};
}

// A time, of `errors` of prices.
Column time_column(const Study& study, const char* name, const char* unit, double units_per_s) {
  PageColumn head{name, unit, Better::less, true, has_intervals(study), true};
  return {head, Metric::time, [&study, units_per_s](const Shown& s) {
            return PageNumber{s.point.time.value * units_per_s,
                              interval_of(plan_time_error(study, s.rating.errors))};
          }};
}

Column ttft_column(const Study& study) {
  PageColumn head{"TTFT", "ms", Better::less, true, has_intervals(study), true};
  return {head, {}, [&study](const Shown& s) {
            PageNumber out{s.point.ttft.value * 1e3};
            if (s.ttft == nullptr) return out;
            const auto range = ttft_error(study, s.point, *s.ttft);
            if (range) out.interval = interval_of(*range);
            return out;
          }};
}

// Throughput of a GPU; `shown`: with a column of its intervals.
Column rate_column(const Study& study, const char* name, std::optional<Metric> metric,
                   std::function<double(const Shown&)> of) {
  PageColumn head{name, "", Better::more, false, has_intervals(study), true};
  return {head, metric, [&study, of](const Shown& s) {
            return PageNumber{of(s), interval_of(plan_rate_error(study, s.rating.errors))};
          }};
}

// 1 / TTL errs as that does, the other way round.
Column speed_column(const Study& study) {
  PageColumn head{"tokens/s/user", "", Better::more, false, false, true};
  return {head, Metric::speed, [&study](const Shown& s) {
            const ErrorRange time = plan_time_error(study, s.rating.errors);
            return PageNumber{1 / s.point.time.value,
                              PageInterval{1 / (1 + time.high) - 1, 1 / (1 + time.low) - 1}};
          }};
}

DecodeMetrics decoded(const Study& study, const Shown& s) {
  return decode_metrics(study.study, s.point.time, s.point.plan, s.point.decoding);
}
PrefillMetrics prefilled(const Study& study, const Shown& s) {
  return prefill_metrics(study.study, s.point.time, s.point.plan);
}

Column gpus_column() {
  return plain("GPUs", "", Better::less, true, Metric::gpus,
               [](const Shown& s) { return s.point.plan.gpus(); });
}
Column batch_column() {
  return plain("batch", "", Better::neither, false, {},
               [](const Shown& s) { return static_cast<double>(s.point.plan.batch); });
}
Column memory_column() {
  return plain("memory/GPU", "GB", Better::less, false, Metric::memory,
               [](const Shown& s) { return s.point.memory.value / 1e9; });
}

std::vector<Column> decode_columns(const Study& study) {
  const bool served = workload_of(study) != nullptr;
  std::vector<Column> out{time_column(study, served ? "TPOT" : "TTL", "ms", 1e3)};
  if (served) {
    out.push_back(ttft_column(study));
    out.push_back(plain("burst", "ms", Better::less, false, {},
                        [](const Shown& s) { return s.point.burst.value * 1e3; }));
  }
  out.push_back(speed_column(study));
  out.push_back(rate_column(study, "tokens/s/GPU", Metric::throughput,
                            [&study](const Shown& s) { return decoded(study, s).tokens_per_s_gpu; }));
  out.push_back(plain("users", "", Better::more, true, Metric::entries, [&study](const Shown& s) {
    return decoded(study, s).users + static_cast<double>(s.point.all_waiting());
  }));
  out.push_back(gpus_column());
  out.push_back(batch_column());
  out.push_back(memory_column());
  return out;
}

std::vector<Column> prefill_columns(const Study& study) {
  std::vector<Column> out{gpus_column(), time_column(study, "TTFT", "s", 1)};
  out.push_back(rate_column(study, "new tokens/s/GPU", {},
                            [&study](const Shown& s) { return prefilled(study, s).new_tokens_per_s_gpu; }));
  out.push_back(plain("GPU-seconds/request", "", Better::less, false, Metric::gpu_seconds,
                      [&study](const Shown& s) { return prefilled(study, s).gpu_seconds_per_request; }));
  out.push_back(plain("requests", "", Better::more, true, Metric::entries,
                      [&study](const Shown& s) { return prefilled(study, s).requests; }));
  out.push_back(batch_column());
  out.push_back(memory_column());
  if (any_approximate(study))
    out.push_back(plain("attention computed", "%", Better::more, false, {}, [&study](const Shown& s) {
      return 100 * attention_computed(study.study, s.point.plan);
    }));
  return out;
}

// The column of an axis; one more where tables have none of that metric.
std::size_t axis(const Study& study, Metric metric, std::vector<Column>& columns) {
  const auto at =
      std::find_if(columns.begin(), columns.end(), [&](const Column& c) { return c.metric == metric; });
  if (at != columns.end()) return static_cast<std::size_t>(at - columns.begin());
  for (const NamedMetric& named : metrics_of(study.study.batch.kind())) {
    if (named.metric != metric) continue;
    columns.push_back(
        plain(named.label, "", maximised(metric) ? Better::more : Better::less, false, metric,
              [&study, metric](const Shown& s) { return value_of(study.study, metric, s.point); }));
  }
  return columns.size() - 1;
}

std::size_t column_named(const Page& page, const std::string& name) {
  const auto at = std::find_if(page.columns.begin(), page.columns.end(),
                               [&](const PageColumn& c) { return c.name == name; });
  SL_CHECK(at != page.columns.end(), "a target limits a column");
  return static_cast<std::size_t>(at - page.columns.begin());
}

// Limits with their lines, where an axis has what they limit or its inverse.
void add_targets(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked, Page& page) {
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  const auto place = [&](Metric axis, const PageTarget& t, Metric limited) -> std::optional<double> {
    if (axis == limited) return t.value;
    if (axis == Metric::speed && limited == Metric::time) return 1 / asked.most_time.value;
    return std::nullopt;
  };
  const auto add = [&](PageTarget t, std::optional<Metric> limited) {
    if (limited) {
      t.x = place(answer.found.x, t, *limited);
      t.y = place(answer.found.y, t, *limited);
    }
    page.targets.push_back(std::move(t));
  };
  if (asked.most_time > Seconds(0)) {
    const std::string name = prefill ? "TTFT" : workload_of(study) != nullptr ? "TPOT" : "TTL";
    add({time_target_text(name, asked.most_time, asked.tokens_per_user), column_named(page, name), true,
         asked.most_time.value * (prefill ? 1 : 1e3)},
        Metric::time);
  }
  if (asked.most_ttft > Seconds(0))
    add({fmt::format("TTFT at most {}", to_string(asked.most_ttft)), column_named(page, "TTFT"), true,
         asked.most_ttft.value * 1e3},
        {});
  if (asked.least_users > 0)
    add({fmt::format("at least {:.0f} users", asked.least_users), column_named(page, "users"), false,
         asked.least_users},
        Metric::entries);
}

// As simulate has it.
constexpr const char* kWaiting = "waiting for a stage";
constexpr const char* kOthers = "prompts of others";  // as plan says it

void add_limits(Page& page) {
  const auto add = [&](Limit limit, const char* text) {
    page.limits.push_back({std::string(to_string(limit)), text});
  };
  add(Limit::tensor, "arithmetic at the device's rate");
  add(Limit::memory, "weights, KV cache and activations through memory");
  add(Limit::exponentials, "exponentials of softmax");
  add(Limit::nvlink, "bytes through the GPU's NVLink port");
  add(Limit::network, "bytes through the GPU's network port");
  add(Limit::overhead,
      "launches, latencies of messages, work of the host, and of a measured kernel (an index's choice of "
      "keys "
      "among them) the time that peak rates do not explain");
  page.limits.push_back({kWaiting, "of a microbatch, for the slowest stage"});
  page.limits.push_back(
      {kOthers, "what steps that compute their prompts, too, take more than those that decode alone"});
}

// Of a step that decodes alone, per token where it has drafts; where a workload is served, with what TPOT is
// more than that.
std::vector<PagePart> parts_of(const Breakdown& b, const Study& study, const Point& p) {
  constexpr Seconds kShown(1e-12);
  const bool drafts = study.study.batch.kind() != StepKind::prefill && p.plan[kDrafts] > 0;
  const double ms = 1e3 / (drafts ? tokens_per_step(study.study, p.plan) : 1);
  std::vector<PagePart> out;
  for (std::size_t l = 0; l < kLimits; ++l) {
    for (std::size_t part = 0; part < b.parts.size(); ++part) {
      if (b.limit_parts[l][part] > kShown)
        out.push_back({std::string(to_string(static_cast<Part>(part))),
                       std::string(to_string(static_cast<Limit>(l))), b.limit_parts[l][part].value * ms});
    }
  }
  if (b.waiting > kShown) out.push_back({kWaiting, kWaiting, b.waiting.value * ms});
  const Seconds alone(b.time.value * ms / 1e3);
  if (workload_of(study) != nullptr && p.time > alone + kShown)
    out.push_back({kOthers, kOthers, (p.time - alone).value * 1e3});
  return out;
}

// Engines that launch files of the plan are written for, as simulate -o writes them.
std::vector<std::string> started_by(const Case& c, const Plan& plan, const std::vector<EngineProfile>& all) {
  std::vector<std::string> out;
  const std::vector<Deployment> documented = deployments(c, plan);
  for (const EngineProfile& engine : all) {
    const auto of_engine = [&](const Deployment& d) { return d.profile == engine.name; };
    if (std::none_of(documented.begin(), documented.end(), of_engine)) continue;
    Launch launch = launch_files(c, plan, engine, "plan");
    if (launch.refused.empty()) out.push_back(std::move(launch.engine));
  }
  return out;
}

void add_points(const Study& study, const SweepAnswer& answer, const SweepOptions& o,
                const std::vector<Column>& columns, Page& page) {
  constexpr std::size_t kMost = 20'000;  // a page of some 8 MB
  const std::vector<EngineProfile> engines = engines_of(study.study);
  const BestPoints best(study, answer.found);
  std::set<std::string> known;
  const auto add = [&](const RatedPoints& rated, std::size_t i, const Breakdown* parts) {
    check_cancelled();
    const Point& p = rated.points[i];
    const Shown shown{p, rated.ratings[i], rated.ttft.empty() ? nullptr : &rated.ttft[i]};
    const Shares& from = shown.rating.shares;
    PagePoint out{label(p.plan),
                  to_string(p.asked()),
                  simulate_command(study, o, p.asked()),
                  started_by(study.study, p.plan, engines),
                  strategy(p.plan.strategy).exact,
                  best.holds(p)};
    if (!known.insert(out.plan).second) return;
    for (const Column& c : columns) out.numbers.push_back(c.of(shown));
    out.measured = from.measured, out.fitted = from.fitted;
    out.extrapolated = from.extrapolated, out.assumed = from.assumed;
    if (parts != nullptr) out.parts = parts_of(*parts, study, p);
    page.points.push_back(std::move(out));
  };
  std::vector<Plan> plans;
  for (const Point& p : answer.rated.points) plans.push_back(p.plan);
  const std::vector<Breakdown> parts =
      breakdowns_of(study.study, study.sweep().search.all_reduce, plans, o.threads);
  for (std::size_t i = 0; i < plans.size(); ++i) add(answer.rated, i, &parts[i]);
  if (!answer.all) {
    page.summary += " Filters choose among the plans of these frontiers; with --all among all plans.";
  } else if (answer.all->points.size() > kMost) {
    page.summary +=
        fmt::format(" Only these are shown: all {} plans are in all.csv.", count(answer.all->points.size()));
  } else {
    for (std::size_t i = 0; i < answer.all->points.size(); ++i) add(*answer.all, i, nullptr);
    page.summary += " All plans are shown; where time goes is kept for those of these frontiers.";
  }
}

// Without the two spaces and the line's end of a terminal.
std::string in_a_line(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (std::size_t at = 0; (at = text.find("\n  ", at)) != std::string::npos;) text.replace(at, 3, "; ");
  return text;
}

}  // namespace

Page sweep_page(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                const SweepOptions& o, const Provenance& made_by) {
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  Page page;
  page.title = study.title + throughput_text(study);
  page.scenario = o.scenario;
  page.command = made_by.command;
  page.version = made_by.version;
  page.costs = costs_text(study.study.system);
  const SearchCounts& counts = answer.found.counts;
  page.summary =
      answer.any()
          ? fmt::format("{} configurations, {} feasible. Each strategy's own Pareto frontier.",
                        count(counts.configurations), count(counts.configurations - counts.infeasible))
          : fmt::format(
                "None of {} configurations serves prompts and answers on the same GPUs{}: pairs of "
                "pools do.",
                count(counts.configurations), asked.least_users > 0 ? " for so many users" : "");
  page.interval_note = in_a_line(interval_note(study));
  page.bands = has_intervals(study);
  std::vector<Column> columns = prefill ? prefill_columns(study) : decode_columns(study);
  page.x = axis(study, answer.found.x, columns);
  page.y = axis(study, answer.found.y, columns);
  page.log_x = answer.found.x == Metric::gpus || answer.found.x == Metric::gpu_seconds;
  page.log_y = true;
  page.parts_of = prefill ? "of TTFT" : workload_of(study) == nullptr ? "of TTL" : "of TPOT";
  for (const Column& c : columns) page.columns.push_back(c.head);
  add_targets(study, answer, asked, page);
  add_limits(page);
  if (answer.any()) add_points(study, answer, o, columns, page);
  page.tables = pool_tables(study, answer);
  return page;
}

}  // namespace shardline::cli
