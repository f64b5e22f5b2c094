// explain: why a plan takes as long as it does, in at most 80 columns.
#include "planner/studies/explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "planner/api/convert_explain.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/named_plans.hpp"
#include "planner/cli/question_parts.hpp"
#include "planner/cli/simulate_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

struct ExplainOptions {
  std::string scenario, costs, plan, model;
  QuestionOptions question;
  EngineOptions engine;
};

constexpr double kNothing = 0.005;  // of an elasticity that is shown as 0

std::string signed_number(double v) { return std::abs(v) < kNothing ? "0" : fmt::format("{:+.2f}", v); }

// "-0.26 (-0.31 to -0.20)".
std::string text_of(const Sensitivity& s) {
  if (std::max(std::abs(s.low), std::abs(s.high)) < kNothing) return "0";
  return fmt::format("{} ({} to {})", signed_number(s.value), signed_number(s.low), signed_number(s.high));
}

std::string percent(double ratio) {
  const double part = 100 * (ratio - 1);
  return std::abs(part) < 0.05 ? "0 %" : fmt::format("{:+.1f} %", part);
}

std::string whole_percent(double ratio) {
  const double part = std::round(100 * (ratio - 1));
  return part == 0 ? "0" : fmt::format("{:+.0f}", part);
}

// "-17/-9 %".
std::string interval(double ratio, const ErrorBand& band) {
  return fmt::format("{}/{} %", whole_percent(ratio * std::exp(band.low)),
                     whole_percent(ratio * std::exp(band.high)));
}

// Further lines of it stand two columns deeper.
void print_lines(std::size_t indent, const std::string& text) {
  const std::string deeper(2, ' '), lines = wrapped(text, text_width() - indent, deeper);
  for (std::size_t at = 0, end = 0; (end = lines.find('\n', at)) != std::string::npos; at = end + 1)
    fmt::print("{}{}\n", std::string(indent, ' '), lines.substr(at, end - at));
}

void print_outcome(const Study& study, const Explanation& e) {
  print_lines(2, outcome_text(study, e.simulated.plan, e.times));
  print_lines(2, what_intervals_are(study.study));
}

void print_bottlenecks(const Explanation& e, const std::string& time) {
  fmt::print("\n");
  print_lines(0, fmt::format("what bounds it (behind each: the change of {})", time));
  for (const Bottleneck& b : e.bottlenecks) print_lines(2, b.text);
}

// Of what changes: the time, the time to the first token of a served workload, the rate.
enum class Changed : std::uint8_t { time, ttft, rate };

Table elasticities_table(const Study& study, const Explanation& e, const std::string& time,
                         const std::vector<Changed>& columns) {
  std::vector<std::string> header{"1 % more"};
  for (const Changed c : columns)
    header.push_back(c == Changed::time ? time : c == Changed::ttft ? "TTFT" : rate_name(study));
  Table t(header);
  for (const Elasticity& x : e.elasticities) {
    std::vector<std::string> row{std::string(to_string(x.knob))};
    for (const Changed c : columns)
      row.push_back(c == Changed::time   ? text_of(x.time)
                    : c == Changed::rate ? text_of(x.rate)
                    : x.ttft             ? text_of(*x.ttft)
                                         : "");
    t.add(std::move(row));
  }
  return t;
}

void print_elasticities(const Study& study, const Explanation& e, const std::string& time) {
  fmt::print("\n");
  print_lines(0, "elasticities: change in %, per 1 % more (nominal 90 %)");
  const bool served = std::any_of(e.elasticities.begin(), e.elasticities.end(),
                                  [](const Elasticity& x) { return x.ttft.has_value(); });
  std::vector<Changed> all{Changed::time, Changed::rate};
  if (served) all.insert(all.begin() + 1, Changed::ttft);
  const Table whole = elasticities_table(study, e, time, all);
  if (!served || output_width() == 0 || columns_of_lines(whole.text()) <= output_width()) {
    fmt::print("{}", fitted(whole));
  } else {  // three intervals are wider than most terminals
    fmt::print("{}", fitted(elasticities_table(study, e, time, {Changed::time, Changed::ttft})));
    fmt::print("{}", fitted(elasticities_table(study, e, time, {Changed::rate})));
  }
  for (const NoElasticity& n : e.without) print_lines(2, fmt::format("{}: {}", to_string(n.knob), n.why));
}

// The nearest first.
std::vector<Turnover> by_distance(std::vector<Turnover> all) {
  const auto distance = [](const Turnover& t) { return t.factor ? std::abs(std::log(*t.factor)) : 1e9; };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Turnover& a, const Turnover& b) { return distance(a) < distance(b); });
  return all;
}

void print_rival(const Rival& r, const std::string& time, bool equal_users) {
  const std::string users = equal_users ? "" : fmt::format(" for {} users", r.plan.users());
  print_lines(
      2, fmt::format("{}: {} {}{} ({}; {})", to_string(r.plan), time, to_string(r.times.time()), users,
                     percent(r.ratio),
                     r.told_apart ? "more than prices may be off"
                                  : "not told apart, as prices may be off: " + interval(r.ratio, r.band)));
  std::string turns, never;
  for (const Turnover& t : by_distance(r.turnovers)) {
    if (t.factor) {
      turns += fmt::format("{}{} x {:.3g}", turns.empty() ? "" : ", ", to_string(t.knob), *t.factor);
    } else if (t.why.starts_with("no factor")) {
      never += fmt::format("{}{}", never.empty() ? "" : ", ", to_string(t.knob));
    }
  }
  const char* order = r.ratio > 1 ? "ahead" : "behind";
  if (!turns.empty()) print_lines(4, fmt::format("puts it {}, each alone: {}", order, turns));
  if (!never.empty()) print_lines(4, fmt::format("does not, up to {:g}x either way: {}", kMostFactor, never));
}

// `run`: users who run, where others wait; 0: all do.
std::string rivals_title(const Rivals& r, long long run) {
  if (r.compared == 0) return "there is no other plan on as many GPUs for as many users, or nearly as many";
  const std::string users = run > 0 ? fmt::format("the {} users who run", run) : "as many users";
  const std::string equal =
      "on as many GPUs for " + users + (r.equal_users ? "" : ", as nearly as their groups share them");
  if (r.compared == 1) return "the only other plan " + equal;
  return fmt::format("best of {} other plans {}", r.compared, equal);
}

void print_rivals(const Explanation& e, const std::string& time) {
  const long long run = e.times.waiting > 0 ? e.simulated.plan.users() : 0;
  print_lines(0, "\n" + rivals_title(e.rivals, run));
  if (e.rivals.compared > 0 && e.rivals.best.empty()) fmt::print("  none fits\n");
  for (const Rival& r : e.rivals.best) print_rival(r, time, e.rivals.equal_users);
}

// How far what has no column for it may be off, of the plan as it is; --json has it of each.
std::string own_ranges_text(const Study& study, const PlanTimes& t) {
  std::string out =
      fmt::format("; of the first row {} is {}", rate_name(study), range_text(rate_error(study, t)));
  if (t.served()) out += fmt::format(", TTFT {}", ttft_range_text(ttft_error(study, t)));
  return out;
}

// Where users wait for memory a machine with more of it runs more of them at once: a step takes longer, and
// the machine is no slower for that.
std::string running_text(const Explanation& e) {
  const auto running = [](const PlanTimes& t) { return t.users - t.waiting; };
  std::string others;
  for (const Purchase& p : e.purchases)
    if (p.times && running(*p.times) != running(e.times))
      others += fmt::format(", {} on {}", running(*p.times), p.what);
  return others.empty() ? ""
                        : fmt::format("users who run at once, by memory: {} here{}; the others wait",
                                      running(e.times), others);
}

// TTFT is shown where a workload is served; there is no room for both changes.
void print_purchases(const Study& study, const Explanation& e, const std::string& time) {
  fmt::print("\nwhat to buy: the same plan\n");
  const bool served = e.times.served();
  Table t({"on", time, "change", "90 %", served ? "TTFT" : rate_name(study),
           served ? rate_name(study) : "change"});
  const auto add = [&](const std::string& what, const PlanTimes& p, const Purchase* changes) {
    const std::string rate = rate_text(study, p.tokens_per_s_gpu);
    t.add({what, to_string(p.time()), changes ? percent(changes->time_ratio) : "",
           changes ? interval(changes->time_ratio, changes->band) : "", served ? to_string(p.ttft) : rate,
           served    ? rate
           : changes ? percent(changes->rate_ratio)
                     : ""});
  };
  add(study.study.system.name, e.times, nullptr);
  for (const Purchase& p : e.purchases) {
    if (p.times) add(p.what, *p.times, &p);
  }
  fmt::print("{}", fitted(t));
  for (const Purchase& p : e.purchases) {
    if (!p.times) print_lines(2, fmt::format("{}: {}", p.what, p.why));
  }
  if (const std::string running = running_text(e); !running.empty()) print_lines(2, running);
  print_lines(
      2, fmt::format("90 %: of the change of {}{}; more of one thing is priced as another machine by the "
                     "same fits{}",
                     time, own_ranges_text(study, e.times),
                     e.unmeasured > 0
                         ? fmt::format("; {} systems of the catalogue that nothing was measured of are "
                                       "left out",
                                       e.unmeasured)
                         : ""));
}

void print(const AskedStudy& asked, const Explanation& e) {
  const Study& study = asked.study;
  const std::string time = time_name(study, e.times);
  print_lines(0, asked.title);
  fmt::print("{}\n", to_string(e.simulated.plan));
  if (!asked.miss.empty()) print_lines(2, asked.miss);
  if (const std::string share = share_text(asked.copies[0], e.simulated.plan.gpus()); !share.empty())
    print_lines(2, share);
  fmt::print("{}", wrapped_lines(engine_text(study.study) + precision_text(study.study), text_width()));
  if (e.simulated.refusal) print_lines(2, refusal_text(study.study, *e.simulated.refusal));
  print_outcome(study, e);
  if (const std::string kept = kept_text(asked, e.simulated, e.times); !kept.empty()) print_lines(2, kept);
  print_bottlenecks(e, time);
  print_elasticities(study, e, time);
  print_rivals(e, time);
  print_purchases(study, e, time);
}

void declare(Arguments& a, ExplainOptions& o) {
  a.add("scenario", o.scenario,
        "Scenario file, or the name of a shipped scenario; with --system a model, as of plan")
      .required()
      .offers(offered_questions)
      .files();
  a.add("--plan", o.plan, "Plan text, as sweep prints it; default: the best of the question of a line");
  a.add("--model", o.model, "Which model of the scenario (default: the first)").offers(offered_models);
  add_question(a, o.question, false);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
}

int run(const ExplainOptions& o, const Provenance& made_by) {
  const std::vector<std::string> named(o.plan.empty() ? 0 : 1, o.plan);
  const AskedStudy asked = asked_study(o.scenario, o.question, o.model, named, 1, o.costs, o.engine);
  const Study& study = asked.study;
  require_question<Sweep>(study, o.scenario);
  const Plan plan = possible_plan(study, asked.plans[0]);
  Explanation e;
  {
    WorkBar first(study.study.model.name);  // simulation, which may last
    Progress progress(study.study.model.name, Progress::terminal(), "simulations");
    e = explain(study, plan, o.engine.settings, shipped_catalogs().systems, asked.with,
                [&](std::uint64_t done, std::uint64_t total) {
                  first.end();
                  progress.show(done, total);
                });
  }
  if (!e.simulated.misfit)
    add_idle_settings(e.simulated.unread, idle_settings(study, std::span(&e.simulated.plan, 1),
                                                        o.engine.settings, asked.named_plans(), asked.with));
  const std::optional<bool> met = met_by(asked, e.simulated, e.times);
  if (made_by.document != nullptr) {
    api::ExplainResult result = api::explain_result(study, e);
    result.version = made_by.version;
    result.command = made_by.command;
    result.scenario = asked.name;
    result.question = {asked.scenario_text.empty() ? o.scenario : "", asked.scenario_text, o.model,
                       asked.plans[0]};
    result.met = met;
    made_by.document->set(api::to_json(result));
  }
  if (e.simulated.misfit) {
    print_misfit(study, e.simulated);
    return 3;
  }
  print_warnings(e.simulated.unread);
  print_warnings(e.simulated.narrow);
  print(asked, e);
  return met.value_or(true) ? 0 : 3;
}

}  // namespace

const Command kExplainCommand{"explain", "Why a plan takes as long as it does, and what would change that",
                              "shardline explain helix_gb200_1m --model llama-3.1-405b --plan "
                              "helix:kvp=8,tpa=8,tpf=64,batch=4",
                              prepare<ExplainOptions, declare, run>};

}  // namespace shardline::cli
