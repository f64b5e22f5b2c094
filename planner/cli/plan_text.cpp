#include "planner/cli/plan_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/plan_miss.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/engines/checkpoints.hpp"
#include "planner/scenario/titles.hpp"
#include "planner/search/provenance.hpp"
#include "planner/studies/plan_cost.hpp"
#include "planner/studies/saved_question.hpp"
#include "planner/studies/service_knobs.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::cli {

namespace {

constexpr int kDigits = 3;                     // of times; intervals are wider than the third
constexpr const char* kUnsaved = "plan.yaml";  // the name in commands where the question has no file yet
constexpr std::size_t kParts = 3;              // of a step, the longest

// Where prices are not calibrated all times are off alike.
std::string rate_range(const PlanAnswer& a, const PlannedPoint& p) {
  const bool fitted = !a.study.study.system.calibration.empty();
  return range_text(fitted ? plan_rate_error(a.study, p.rating.errors)
                           : rate_error(ErrorTerms(kAssumedSource, kAssumedBand)));
}
// "served by vLLM 0.24.0 (60 measured points of ...); weights bf16, KV cache bf16 of meta-llama/...".
std::string basis_text(const PlanAnswer& a) {
  const Case& c = a.study.study;
  std::string out;
  if (!c.engine) {
    out = a.question.prefill()
              ? "bare kernels, no engine around them"
              : fmt::format("steps that decode at {} tokens, bare kernels: no prompts, no engine",
                            scenario_parts::grouped(c.longest()));
    if (const auto note = longer_than_model(c)) out += "; " + *note;
  } else {
    out = fmt::format("{} by {}{}", a.question.prefill() ? "steps of the prefill" : "served",
                      title_of(*c.engine),
                      a.defaults.engine_why.empty() ? "" : " (" + a.defaults.engine_why + ")");
  }
  out += "; " + weights_text(c);
  out += stored_text(c);
  const std::string cache = assumed_cache_text(c), rest = c.engine ? assumed_text(c) : "";
  if (!cache.empty() || !rest.empty())
    out += fmt::format("; assumed: {}{}{}", cache, cache.empty() || rest.empty() ? "" : ", ", rest);
  if (const std::string drafts = drafts_text(c); !drafts.empty())
    out += "; " + drafts.substr(2, drafts.size() - 3);  // without its indent and its end of line
  if (c.engine && a.question.prefill())
    out += fmt::format("; TTFT holds {} of its request path, which sweep and simulate leave out of theirs",
                       to_string(c.engine->host.path, kDigits));
  return out;
}

std::vector<std::string> header(const PlanAnswer& a) {
  if (a.question.prefill()) {
    return {"#", "GPUs", "TTFT", "90 %", "new tokens/s/GPU", "memory/GPU", "plan"};
  }
  if (a.question.rate > 0)
    return {"#", "GPUs", "users", "TPOT", "TTFT", "requests/s", "tokens/s/GPU", "90 %", "plan"};
  if (served(a)) return {"#", "GPUs", "users", "TPOT", "TTFT", "tokens/s/GPU", "90 %", "plan"};
  return {"#", "GPUs", "users", "TTL", "90 %", "tokens/s/GPU", "memory/GPU", "plan"};
}

// "2 x 4": copies, and the GPUs of each.
std::string gpus_text(const PlannedPoint& p) {
  const int gpus = p.point.plan.gpus();
  return p.copies > 1 ? fmt::format("{} x {}", p.copies, gpus) : std::to_string(gpus);
}

// "9", "64 (8 wait)": users of all copies, some of which have one fewer where they cannot be shared evenly.
std::string users_of_row(const PlanAnswer& a, const PlannedPoint& p) {
  const double all = a.users_of(p);
  if (a.question.rate > 0) return fmt::format("{:.0f}", std::ceil(all));
  const auto users = static_cast<long long>(all);
  const std::string text = count(static_cast<std::uint64_t>(users));
  return p.point.all_waiting() == 0
             ? text
             : fmt::format("{} ({} wait)", text, count(static_cast<std::uint64_t>(waiting_of(a, p))));
}

// Requests/s within the target, "to 2.52".
std::string carried_per_s(const PlannedPoint& p) {
  return p.most_per_s > 0 ? "to " + three_digits(p.most_per_s) : "none";
}

std::vector<std::string> row(const PlanAnswer& a, const PlannedPoint& p, const std::string& rank) {
  const std::string time = to_string(time_with_path(a, p.point), kDigits), gpus = gpus_text(p);
  const std::string users = users_of_row(a, p);
  const std::string rate = three_digits(a.tokens_per_s_gpu(p)), plan = to_string(p.point.asked());
  const std::string memory = to_string(p.point.memory, kDigits);
  if (a.question.prefill()) return {rank, gpus, time, time_range(a, p), rate, memory, plan};
  const std::string first = to_string(p.point.ttft, kDigits);
  if (a.question.rate > 0)
    return {rank, gpus, users, time, first, carried_per_s(p), rate, rate_range(a, p), plan};
  if (served(a)) return {rank, gpus, users, time, first, rate, rate_range(a, p), plan};
  return {rank, gpus, users, time, time_range(a, p), rate, memory, plan};
}

// Plans behind their numbers, or below where that is too wide: they are never cut. GPUs and users of all
// copies stand nowhere else, intervals of the first plan below.
std::string table_text(const PlanAnswer& a, std::size_t width) {
  std::vector<std::string> first = header(a), narrow(first.begin(), first.end() - 1);
  Table wide(first), short_one(narrow);
  std::string plans;
  bool misses = false;
  for (std::size_t i = 0; i < a.plans.size(); ++i) {
    const PlannedPoint& p = a.plans[i];
    const std::string rank = std::to_string(i + 1) + (p.meets ? "" : "*");
    misses = misses || !p.meets;
    std::vector<std::string> cells = row(a, p, rank);
    wide.add(cells);
    plans += fmt::format("  {:<2}  {}\n", rank, cells.back());
    cells.pop_back();
    short_one.add(std::move(cells));
  }
  std::string out = wide.text();
  if (columns_of_lines(out) > width) {
    constexpr std::array<std::string_view, 2> kLeast{"memory/GPU", kIntervalColumn};
    out = short_one.text_within(width, kLeast) + wrapped_lines(plans, width);
  }
  if (misses && a.met)
    out += a.question.rate > 0 ? "  *: does not carry the rate\n" : "  *: misses the target\n";
  return out;
}

// "best of other shardings that meet it: tensor:tpa=8,...: 31 tokens/s/GPU (-20/+45 %)": strategies that the
// table has no row of, for others beat them in both.
std::string others_text(const PlanAnswer& a) {
  std::string out;
  for (const PlannedPoint& p : a.others) {
    out += fmt::format("{}{}{}{}: ", out.empty() ? "best of other shardings that meet it: " : "; ",
                       p.copies > 1 ? fmt::format("{} x ", p.copies) : "", to_string(p.point.asked()),
                       strategy(p.point.plan.strategy).exact ? "" : " (approximate)");
    if (a.question.prefill())
      out += fmt::format("TTFT {} ({})", to_string(time_with_path(a, p.point), kDigits), time_range(a, p));
    else
      out += fmt::format("{} tokens/s/GPU ({})", three_digits(a.tokens_per_s_gpu(p)), rate_range(a, p));
  }
  return out;
}

// The parts of a step that take longest: "attention 35 %, ffn 36 %".
std::string parts_text(const Breakdown& b) {
  std::vector<std::pair<double, Part>> parts;
  for (std::size_t p = 0; p < b.parts.size(); ++p)
    parts.emplace_back(-(b.parts[p] / b.time), static_cast<Part>(p));
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (std::size_t i = 0; i < kParts && parts[i].first < -0.005; ++i)
    out += fmt::format("{}{} {:.0f} %", out.empty() ? "" : ", ", to_string(parts[i].second),
                       -100 * parts[i].first);
  return out;
}

std::string bounds_text(const PlanAnswer& a) {
  const BestPlan& best = *a.best;
  const Case& c = a.study.study;
  std::string out = "bound by: ";
  if (best.served && best.served->serves()) {
    const double part = 100 * best.served->served.prefill_part;
    if (part >= 0.5) out += fmt::format("prompts of others {:.0f} % of TPOT; ", part);  // none of one user
    out += "of a step that decodes ";
  }
  out += parts_text(best.breakdown);
  if (const Seconds exposed = best.breakdown.exposed_communication; exposed > Seconds(0))  // of several GPUs
    out += fmt::format(" (messages that nothing hides, wherever they are: {:.0f} %)",
                       100 * (exposed / best.breakdown.time));
  const auto share = [&](Bytes b) { return 100 * (b / c.system.device.memory); };
  return out + fmt::format("; of HBM weights {:.0f} %, KV cache {:.0f} %", share(best.memory.weights),
                           share(best.memory.kv));
}

std::string certainty_text(const PlanAnswer& a) {
  const PlannedPoint& p = a.plans.front();
  std::string out = fmt::format("how sure (90 %): {} {}, tokens/s/GPU {},", time_name(a), time_range(a, p),
                                rate_range(a, p));
  const Case& c = a.study.study;
  if (c.system.calibration.empty()) return out + " of a system's own parameters, none of them measured";
  if (served(a)) {
    const EngineProfile& e = *c.engine;
    out += fmt::format(" by prices of kernels and {} measured points of {}{}", e.error.rows, e.title,
                       was_measured_on(e, c.system) ? "" : ", none on " + c.system.name);
    const long long users = users_of(c, p.point.plan) + p.point.all_waiting();
    const std::string beyond =
        beyond_loops(e, *workload_of(a.study), static_cast<double>(users), p.point.plan.gpus());
    if (!beyond.empty()) out += "; beyond them: " + beyond;
    const auto first = ttft_error(a.study, p.point, p.ttft);
    out += fmt::format("; TTFT{} {}", first ? " " + ttft_range_text(first) : ":",
                       ttft_evidence(a.study, p.point));
  } else {
    out += c.engine ? " by kernels' prices and the engine's fitted host" : " by the prices of bare kernels";
  }
  const Plan plans[]{p.point.plan};
  if (const std::string host = unmeasured_host_text(c, plans); !host.empty()) out += "; " + host;
  if (p.rating.shares.extrapolated > 0.005)
    out +=
        fmt::format("; {:.0f} % of its time is beyond measured shapes", 100 * p.rating.shares.extrapolated);
  return out;
}

// Of `sweep`, or of `plan` itself.
std::string options_text(const PlanAnswer& a, bool sweep) {
  const PlanQuestion& q = a.question;
  std::string out = target_options(q, sweep && q.prefill() ? a.asked.most_time : q.ttft);
  if (q.users > 0) out += fmt::format(" --users {}", q.users);
  if (q.rate > 0 && !sweep) out += " --rate " + rate_argument(q.rate);
  return out;
}

// The question again, every default said, of a model and as many GPUs.
std::string plan_command(const PlanAnswer& a, const std::string& model, int gpus) {
  const PlanQuestion& q = a.question;
  std::string out = fmt::format("shardline plan {} --system {} --gpus {} --input {}", shell_operand(model),
                                shell_word(q.system), gpus, q.input);
  if (!q.prefill()) out += fmt::format(" --output {}", q.output);
  out += options_text(a, false);
  if (!q.engine.empty()) out += " --engine " + shell_word(q.engine);
  if (!q.costs.empty()) out += " --costs " + q.costs;
  if (q.any_gpus) out += " --any-gpus";
  if (q.any_context) out += " --any-context";
  return out + settings_options(q);
}

// Little's law, with the numbers of the best plan.
std::string carried_text(const PlanAnswer& a) {
  const PlannedPoint& p = a.plans.front();
  std::string out = fmt::format(
      "rate: {} keep {} users busy = {:.4g}/s x (TTFT {} + {} x TPOT {}); #1 carries up to {}/s{}",
      rate_text(a.question.rate), three_digits(a.users_of(p)), a.question.rate,
      to_string(p.point.ttft, kDigits), scenario_parts::grouped(a.question.output - 1),
      to_string(p.point.time, kDigits), three_digits(p.most_per_s),
      p.limit_per_s > p.most_per_s * 1.001
          ? fmt::format(" within the target and is saturated at {}/s", three_digits(p.limit_per_s))
          : ", where it is saturated");
  const double least = p.most_per_s * (1 + plan_rate_error(a.study, p.rating.errors).low);
  if (!a.study.study.system.calibration.empty() && least < a.question.rate)
    out += fmt::format("; as prices may be off (90 %), it may carry {}/s and no more", three_digits(least));
  return out +
         "; a mean over an even stream: requests that come by chance wait longer, near what it carries much "
         "longer (serve). simulate and explain have the plan full, each user asking again at once: their "
         "TTFT "
         "is longer";
}

// What the plans shown leave out: copies on the GPUs that the best does not take, and pools of their own.
std::string beside_text(const PlanAnswer& a, std::size_t width) {
  std::string out;
  out += started_copies_text(a, width) + idle_text(a, width) + fewer_text(a, width);
  out += unbounded_wait_text(a, width);
  if (a.question.rate > 0 && a.met) out += wrapped(carried_text(a), width, "  ");
  return out + pools_text(a, width);
}

// Rows that meet the target, and may miss it within their intervals.
std::string open_rows_text(const PlanAnswer& a) {
  std::string rows;
  int count = 0;
  for (std::size_t i = 0; i < a.plans.size(); ++i) {
    const PlannedPoint& p = a.plans[i];
    if (!p.meets || a.study.study.system.calibration.empty()) continue;
    const auto open = [](Seconds time, Seconds most, const std::optional<ErrorRange>& off) {
      return most > Seconds(0) && (!off || time * (1 + off->high) > most);
    };
    const bool first =
        served(a) && open(p.point.ttft, a.asked.most_ttft, ttft_error(a.study, p.point, p.ttft));
    if (first || open(p.point.time, a.asked.most_time, plan_time_error(a.study, p.rating.errors)))
      rows += fmt::format("{}{}", rows.empty() ? "" : ", ", i + 1), ++count;
  }
  if (count == 0) return "";
  return fmt::format("may miss the target, as prices may be off: row{} {}", count > 1 ? "s" : "", rows);
}

std::vector<Point> points_of(const PlanAnswer& a) {
  std::vector<Point> out;
  for (const PlannedPoint& p : a.plans) out.push_back(p.point);
  return out;
}

std::string next_text(const PlanAnswer& a, const std::string& saved, std::size_t width) {
  const std::string file = saved.empty() ? kUnsaved : saved;
  std::string out;
  const auto add = [&](const std::string& command) { out += wrapped_command(command, width, "  "); };
  // What answers the question where the one that was asked has no answer.
  if (a.narrower) add(plan_command(a, a.narrower->question.model, a.defaults.most_gpus));
  if (!a.met && a.wider && a.wider->best.meets) add(plan_command(a, a.question.model, a.wider->gpus));
  if (!out.empty()) out = "next:\n" + out;
  if (a.plans.empty() && (a.narrower || a.wider)) return out;
  // The same question makes a file that is not there yet: it is on the screen already, and long.
  if (saved.empty())
    out += wrapped(fmt::format("next, after the same with --save {}:", shell_operand(file)), width, "  ");
  else if (out.empty())
    out = "next:\n";
  const std::string set = settings_beside(a.question), targets = constraint_settings(a);
  // A sweep knows neither copies nor rates: its answer would be another question's.
  const bool copied = !a.plans.empty() && a.plans.front().copies > 1;
  if (!(a.question.users > 0 && copied) && !(a.question.rate > 0))
    add(fmt::format("shardline sweep {}{}{}", shell_operand(file), options_text(a, true), set));
  if (!a.plans.empty()) {
    const std::string plan = shell_word(to_string(a.plans.front().point.asked()));
    const long long copies = a.plans.front().copies;
    if (a.question.rate > 0 && !no_play(a.study.study, a.plans.front().point.plan))
      add(fmt::format("shardline serve {} --plan {}{} --rate {}{} -o out", shell_operand(file),
                      shell_word(sharding_text(a.plans.front().point.plan)), set,
                      rate_argument(a.question.rate),
                      copies > 1 ? fmt::format(" --replicas {}", copies) : ""));
    // Its launch files cap requests at the batch: of a rate that is the mean, above which a queue would grow.
    // Those of serve have the caps of the scheduler.
    if (!(a.question.rate > 0))
      add(fmt::format("shardline simulate {} --plan {}{}{} -o out", shell_operand(file), plan, set + targets,
                      copies > 1 ? fmt::format(" --copies {}", copies) : ""));
    add(fmt::format("shardline explain {} --plan {}{}", shell_operand(file), plan, set + targets));
  }
  return out;
}

}  // namespace

std::string plan_text(const PlanAnswer& a, const std::string& saved, std::size_t width, bool colours) {
  std::string out =
      emphasised(wrapped(question_text(a.question, a.defaults), width, "  "), Emphasis::strong, colours);
  out += wrapped(basis_text(a), width, "  ");
  if (!a.defaults.gpus_note.empty()) out += wrapped(a.defaults.gpus_note, width, "  ");
  out += "\n";
  if (!a.met) out += emphasised(wrapped(miss_text(a), width, "  "), Emphasis::bad, colours);
  if (a.plans.empty()) out += reasons_text(a, width) + (a.pools ? pools_text(a, width) : "");
  if (!a.plans.empty()) {
    out += table_text(a, width) + "\n";
    if (const std::string others = others_text(a); !others.empty()) out += wrapped(others, width, "  ");
    out += wrapped(bounds_text(a), width, "  ");
    out += wrapped(certainty_text(a), width, "  ");
    if (const std::string text = cost_text(a.study, a.cost_of(a.plans.front())); !text.empty())
      out += wrapped("costs: " + text, width, "  ");
    if (const std::string capped = served(a) ? capped_text(a.study, points_of(a)) : ""; !capped.empty())
      out += wrapped(capped, width, "  ");
    if (const std::string delayer = served(a) ? delayer_text(a.study, points_of(a)) : ""; !delayer.empty())
      out += wrapped(delayer, width, "  ");
    out += beside_text(a, width);
    if (a.met && a.by_copies) {
      if (const std::string open = open_rows_text(a); !open.empty()) out += wrapped(open, width, "  ");
    } else if (a.met && a.asked.has_target()) {
      const std::string open = open_target_text(a.study, a.sweep, a.asked);
      for (std::size_t at = 0, end = 0; (end = open.find('\n', at)) != std::string::npos; at = end + 1)
        out += wrapped(open.substr(at, end - at), width, "  ");
    }
  }
  if (!saved.empty())
    out += saved_text(saved, targets_beside(a), options_beside(a) + load_beside(a.question), width);
  return out + next_text(a, saved, width);
}

}  // namespace shardline::cli
