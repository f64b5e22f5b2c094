#include "planner/cli/interval_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "planner/engines/checkpoints.hpp"
#include "planner/engines/launch_files.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/scenario/bare_kernels.hpp"
#include "planner/scenario/titles.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/told_apart.hpp"

namespace shardline::cli {

using scenario_parts::grouped;

const char* groups_text(const EngineProfile& engine, bool equal_lengths) {
  if (equal_lengths)
    return "attention groups (dp > 1) are taken to prefill in the same steps, as users of equal lengths come "
           "back\n  together; where they do not, each waits for those that do, and TPOT is longer than said";
  if (engine.delay_passes > 0)
    return "attention groups (dp > 1) hold prompts back for each other (--enable-prefill-delayer), which "
           "takes\n  from TPOT and adds to TTFT";
  if (same_engine(engine.name, "sglang"))
    return "attention groups (dp > 1) step together, each with prompts of its own: the tokens of a group "
           "take as\n  long as the prompts of any other; with --enable-prefill-delayer "
           "(engine.prefill_delayer: "
           "true)\n  they wait for each other";
  return "attention groups (dp > 1) step together, each with prompts of its own: the tokens of a group take "
         "as\n  long as the prompts of any other";
}

const char* const kPromptsTogether =
    "attention groups (dp > 1) of a server for prompts step together and share the prompts that wait evenly";

const char* const kPreempts =
    "memory-capped: the caches of all users with whole answers do not fit; the engine preempts some, "
    "which no price has: TTFT was up to 12 times longer in such loops";

namespace {

std::string names(const std::vector<StrategyId>& ids) {
  std::string out;
  for (const StrategyId id : ids) out += (out.empty() ? "" : ", ") + std::string(to_string(id));
  return out;
}

// Rows at which another strategy may be the best: "19.41 ms (or helix)", and how many they are if nothing
// that a fit gets wrong is common to two plans.
struct OpenRows {
  std::vector<std::string> shared;
  std::size_t unrelated = 0;

  void add(const RatedPoints& rated, Metric metric, const Point& best, const std::string& row,
           const std::function<bool(const Point&)>& counts) {
    const auto others = maybe_better(rated, metric, best, counts);
    if (!others.empty()) shared.push_back(fmt::format("{} (or {})", row, names(others)));
    unrelated += maybe_better(rated, metric, best, counts, FitErrors::unrelated).empty() ? 0 : 1;
  }
  std::string text(std::size_t of, const char* where) const {
    return fmt::format(
        "  another strategy may be the best at {} of {} {}, as prices may be off{}{}\n"
        "  (at {} of them if what a kernel's price gets wrong differs from shape to shape)\n",
        shared.size(), of, where, shared.empty() ? "" : ": ", fmt::join(shared, ", "), unrelated);
  }
};

}  // namespace

std::vector<std::string> interval_header(const System& system) {
  if (system.calibration.empty()) return {};
  return {kIntervalColumn};
}

std::vector<std::string> joined_cells(std::initializer_list<std::vector<std::string>> parts) {
  std::vector<std::string> out;
  for (const std::vector<std::string>& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

std::string range_text(const ErrorRange& r) {
  return fmt::format("{:+.0f}/{:+.0f} %", 100 * r.low, 100 * r.high);
}

std::vector<std::string> time_cells(const System& system, const ErrorTerms& errors) {
  if (system.calibration.empty()) return {};
  return {range_text(time_error(errors))};
}

std::vector<std::string> rate_cells(const System& system, const ErrorTerms& errors) {
  if (system.calibration.empty()) return {};
  return {range_text(rate_error(errors))};
}

std::vector<std::string> time_cells(const Study& study, const ErrorTerms& errors) {
  if (study.study.system.calibration.empty()) return {};
  return {range_text(plan_time_error(study, errors))};
}

std::vector<std::string> rate_cells(const Study& study, const ErrorTerms& errors) {
  if (study.study.system.calibration.empty()) return {};
  return {range_text(plan_rate_error(study, errors))};
}

std::string ttft_range_text(const std::optional<ErrorRange>& range) {
  constexpr double kInterval = 3;  // a factor up to which an interval says where a time is
  if (!range) return "not measured";
  const double factor = std::max(1 + range->high, 1 / (1 + range->low));
  return factor <= kInterval ? range_text(*range) : fmt::format("off by up to {:.1f}x", factor);
}

std::vector<std::string> ttft_cells(const Study& study, const Point& p, const ErrorTerms& errors) {
  if (study.study.system.calibration.empty()) return {};
  return {ttft_range_text(ttft_error(study, p, errors))};
}

std::string users_text(const Case& c, const Point& p, long long replicas) {
  const long long waiting = p.all_waiting() * replicas, users = users_of(c, p.plan) * replicas + waiting;
  return waiting > 0 ? fmt::format("{} ({} wait)", users, waiting) : std::to_string(users);
}

bool was_measured_on(const EngineProfile& e, const System& system) {
  return std::any_of(e.error.tables.begin(), e.error.tables.end(),
                     [&](const ServedError& t) { return t.of.ends_with(" on " + system.name); });
}

std::string beyond_loops(const EngineProfile& e, const ServedWorkload& load, double users, int gpus) {
  std::string out;
  const auto add = [&](const char* before, double value, const char* one, const MeasuredRange& range) {
    if (range.holds(value)) return;
    out +=
        fmt::format("{}{}{} {}{} ({} to {})", out.empty() ? "" : ", ", before, grouped(std::llround(value)),
                    one, value == 1 ? "" : "s", grouped(range.from), grouped(range.to));
  };
  const MeasuredLoops& l = e.error.loops;
  add("prompts of ", static_cast<double>(load.input), "token", l.input);
  add("answers of ", static_cast<double>(load.output), "token", l.output);
  add("", users, "user", l.users);
  add("", gpus, "GPU", l.gpus);
  return out;
}

namespace {

constexpr long long kFewUsersOfBands = 4;  // among whom lengths make no difference (ServedBands)

// Of what the points were: "prompts of 922 to 8,192 tokens on 1 to 8 GPUs".
std::string loops_text(const EngineProfile& e) {
  const MeasuredLoops& l = e.error.loops;
  return fmt::format("prompts of {} to {} tokens on {} to {} GPUs", grouped(l.input.from),
                     grouped(l.input.to), l.gpus.from, l.gpus.to);
}

// What its interval is of: "its interval by 22 points of vLLM with drawn lengths, those of about as many
// users".
std::string ttft_points(const Study& study) {
  const EngineProfile& e = *study.study.engine;
  const bool equal = workload_of(study)->equal_lengths;
  const int rows = e.error.ttft(equal).rows;
  const char* lengths = equal ? "equal" : "drawn";
  if (rows == 0) return fmt::format("which no point of {} with {} lengths was measured of", e.title, lengths);
  int tested = 0;
  for (const TtftBand& b : e.error.ttft_by_users)
    tested += b.lengths == lengths || b.lengths == "any" ? b.tested : 0;
  return fmt::format(
      "its interval by those of {} points of {} with {} lengths that have about as many users, tested on {} "
      "points of models left out",
      rows, e.title, lengths, tested == 0 ? "no" : std::to_string(tested));
}

// Of attention data parallelism.
std::string dp_note(const Study& study) {
  const auto& ids = study.sweep().search.strategies;
  const auto has_groups = [](StrategyId id) { return strategy(id).degrees.has(Degree::dp); };
  const bool any = std::any_of(ids.begin(), ids.end(), has_groups);
  return any ? fmt::format("  {}\n", groups_text(*study.study.engine, workload_of(study)->equal_lengths))
             : "";
}

}  // namespace

std::string interval_note(const Study& study) {
  if (workload_of(study) == nullptr) {
    return interval_note(study.study);
  }
  const EngineProfile& e = *study.study.engine;
  const System& system = study.study.system;
  const std::string loop =
      workload_of(study)->rounds > 0
          ? fmt::format("{:.0f} requests of each user, who all begin at once", workload_of(study)->rounds)
          : "a loop that goes on";
  std::string out, ttft;
  const MeasuredLoops& l = e.error.loops;
  const std::string beyond =
      beyond_loops(e, *workload_of(study), static_cast<double>(l.users.from), static_cast<int>(l.gpus.from));
  if (!system.calibration.empty()) {  // else there are no intervals
    out = fmt::format(
        "  {}: nominal 90 % by the kernels' prices and {} measured points of {} ({:.0f} % of them inside "
        "when left out; {}{}{})\n",
        kIntervalColumn, e.error.rows, e.title, 100 * e.error.covered, loops_text(e),
        was_measured_on(e, system) ? "" : ", none on " + system.name,
        beyond.empty() ? "" : "; this is beyond them: " + beyond);
    ttft = ", " + ttft_points(study);
  }
  out += fmt::format(
      "  served: prompts of others are in it; all of it on the same GPUs\n"
      "  TTFT: the mean of {}{}; burst: if all users come at once\n{}",
      loop, ttft, dp_note(study));
  return out;
}

std::string capped_text(const Study& study, const std::vector<Point>& rows) {
  std::vector<std::size_t> capped;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (point_preempts(study, rows[i])) capped.push_back(i + 1);
  }
  return capped.empty() ? "" : fmt::format("row {}: {}", fmt::join(capped, ", "), kPreempts);
}

std::string delayer_text(const Study& study, const std::vector<Point>& rows) {
  const EngineProfile& e = *study.study.engine;
  if (!same_engine(e.name, "sglang") || e.delay_passes > 0 || workload_of(study)->equal_lengths) return "";
  std::vector<std::size_t> of_groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].plan.dp > 1) of_groups.push_back(i + 1);
  }
  if (of_groups.empty()) return "";
  return fmt::format(
      "row {}: attention groups wait for each other's prompts in every step; with --enable-prefill-delayer "
      "they compute them together: --set engine.prefill_delayer=true",
      fmt::join(of_groups, ", "));
}

std::string capped_plans_text(const Study& study, const std::vector<Point>& points) {
  std::vector<const Point*> capped;
  for (const Point& p : points) {
    if (point_preempts(study, p)) capped.push_back(&p);
  }
  if (capped.empty()) return "";
  const std::string others =
      capped.size() == 1 ? "" : fmt::format(" and {} more of {} plans", capped.size() - 1, points.size());
  return fmt::format("{}{}: {}", to_string(capped.front()->plan), others, kPreempts);
}

std::string ttft_evidence(const Study& study, const Point& point) {
  const EngineProfile& e = *study.study.engine;
  const bool equal = workload_of(study)->equal_lengths;
  if (point_preempts(study, point)) return "not measured: the engine preempts";
  if (e.error.ttft_by_users.empty()) return fmt::format("not measured by any row of {}", e.title);
  const long long users = point.plan.users() + point.all_waiting();
  const TtftBand* band = e.error.ttft_band(equal, static_cast<double>(users));
  if (band == nullptr)
    return fmt::format("not measured by rows of {} with about {} user{}{}", e.title, users,
                       users == 1 ? "" : "s",
                       users > kFewUsersOfBands ? equal ? " and equal lengths" : " and drawn lengths" : "");
  constexpr long long kNoEnd = 1'000'000;
  const std::string of = band->to > kNoEnd ? fmt::format("at least {}", band->from)
                                           : fmt::format("{} to {}", band->from, band->to);
  return fmt::format("by {} point{} of {} users with {} lengths, {}of {}", band->measured.rows,
                     band->measured.rows == 1 ? "" : "s", of, band->lengths,
                     band->models.size() == 1 ? "all " : "", fmt::join(band->models, ", ")) +
         (band->tested == 0 ? "; tested on no other model" : "");
}

std::string throughput_text(const Study& study) {
  const Case& c = study.study;
  if (!c.engine) {
    const EngineProfile bare = bare_kernels();
    return fmt::format(", {} ({})", bare.name, bare.title);
  }
  const std::string engine = c.engine->title + " " + c.engine->version;
  if (workload_of(study) != nullptr) return ", served by " + engine;
  return (c.batch.decodes() && !c.batch.prefills() ? ", decode only under " : ", steps alone under ") +
         engine;
}

ErrorRange shown_error(const System& system, const ErrorTerms& errors) {
  return system.calibration.empty() ? ErrorRange{} : time_error(errors);
}

std::string interval_note(const Case& c) {
  if (!c.system.calibration.empty()) return fmt::format("  {}: {}\n", kIntervalColumn, what_intervals_are(c));
  return fmt::format("  every time {}: {}\n",
                     range_text(time_error(ErrorTerms(kAssumedSource, kAssumedBand))), kWhatIntervalsAre);
}

std::string sources_text(const System& system, const ErrorTerms& errors) {
  constexpr std::size_t kShown = 3;
  std::vector<ErrorTerm> terms = widest_first(errors);
  if (terms.size() > kShown) terms.resize(kShown);
  std::string out;
  for (const ErrorTerm& t : terms)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", source_name(system, t.source),
                       range_text({t.low, t.high}));
  return out;
}

std::string open_budgets_text(const SweepAnswer& answer) {
  if (!comparable(answer.rated)) return "";
  OpenRows open;
  for (const auto& [budget, best] : answer.budgets) {
    const auto within = [limit = budget](const Point& p) { return p.time <= limit; };
    open.add(answer.rated, Metric::throughput, best, to_string(budget), within);
  }
  return open.text(answer.budgets.size(), "budgets");
}

std::string open_rows_text(const Study& study, const SweepAnswer& answer) {
  if (!comparable(answer.rated)) return "";
  const Metric x = study.sweep().search.x, y = study.sweep().search.y;
  OpenRows open;
  for (const Point& best : answer.frontier) {
    const auto as_good = [&](const Point& p) { return score(x, p) >= score(x, best); };
    open.add(answer.rated, y, best, fmt::format("{} on {} GPUs", to_string(best.time), best.plan.gpus()),
             as_good);
  }
  return open.text(answer.frontier.size(), "rows");
}

std::string open_target_text(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked) {
  const Seconds most_time = asked.most_time;
  const bool prefill = study.study.batch.kind() == StepKind::prefill;
  std::vector<std::size_t> late, ahead;
  bool unknown = false;
  // Whether a TTFT may be above its target, as far as its error is known.
  const auto late_first = [&](const Point& p) {
    if (prefill || !(asked.most_ttft > Seconds(0))) return false;
    const auto range = ttft_error(study, p, answer.rated.ttft_of(p.plan));
    unknown = unknown || !range;
    return range && p.ttft * (1 + range->high) > asked.most_ttft;
  };
  for (std::size_t i = 0; i < answer.meeting.size(); ++i) {
    const Point &p = answer.meeting[i], &first = answer.meeting.front();
    const double slowest = 1 + plan_time_error(study, answer.rated.of(p.plan).errors).high;
    const bool first_late = late_first(p);
    if ((most_time > Seconds(0) && p.time * slowest > most_time) || first_late) late.push_back(i + 1);
    if (i > 0 && !prefill && !told_apart(answer.rated, Metric::throughput, first, p)) ahead.push_back(i + 1);
  }
  std::string out;
  if (!late.empty())
    out += fmt::format("  may miss the target, as prices may be off: {} of {} plans (row{} {})\n",
                       late.size(), answer.meeting.size(), late.size() > 1 ? "s" : "", fmt::join(late, ", "));
  if (unknown) out += "  whether TTFT may miss its target is not known: its error was not measured\n";
  if (!ahead.empty())
    out +=
        fmt::format("  not told apart from rank 1, as prices may be off: rank {}\n", fmt::join(ahead, ", "));
  return out;
}

std::string open_gain_text(const SweepAnswer& answer) {
  if (!answer.interactivity || !comparable(answer.rated)) return "";
  const double ratio = answer.gain->interactivity;
  return fmt::format("  interactivity as prices may be off: {:.3f}x to {:.3f}x{}\n",
                     ratio * std::exp(answer.interactivity->low),
                     ratio * std::exp(answer.interactivity->high),
                     told_apart(ratio, *answer.interactivity) ? "" : "; the two are not told apart");
}

std::string costs_line(const System& system) { return fmt::format("  costs: {}\n", costs_text(system)); }

}  // namespace shardline::cli
