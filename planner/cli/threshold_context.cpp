#include "planner/cli/threshold_context.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/scenario/asked_amounts.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

// Of a loss in parts, as percents; beyond a thousand of them how many times as much it is.
std::string number(double part) {
  const double percent = 100 * part;
  return fmt::format("{:.{}f}", percent, percent < 10 ? 3 : percent < 100 ? 1 : 0);
}
std::string loss(double part) {
  return part >= 10 ? fmt::format("{:.0f} times", 1 + part) : number(part) + " %";
}
std::string interval(const ErrorRange& r) {
  return r.high < 10 ? fmt::format(" ({} to {})", number(r.low), number(r.high))
                     : fmt::format(" (to {})", loss(r.high));
}

std::string time_text(Seconds time, const ErrorRange& range, bool calibrated) {
  return to_string(time) + (calibrated ? fmt::format(" ({})", range_text(range)) : "");
}

void print_ring(const Study& study, const ContextRing& r) {
  const bool calibrated = !study.study.system.calibration.empty();
  print_notes(
      "  CP{} of {} GPUs: {:.4g} requests/s, prefills take {:.0f} % of the time{}; {:.1f} % of the prompts' "
      "tokens are "
      "found in a cache of {} tokens\n",
      r.ranks, r.ranks * study.thresholds().tpa, r.rate, 100 * r.load,
      r.load >= 1 ? " (the queue grows as long as requests come)" : "", 100 * r.found,
      count(static_cast<std::size_t>(r.room)));
  print_notes(
      "    by the faster variant in each of {} steps: TTFT mean {}, p99 {}{}\n", count(r.judged_steps),
      time_text(r.mean, r.mean_range, calibrated), time_text(r.p99, r.p99_range, calibrated),
      calibrated
          ? fmt::format("; in {} of them either may be the faster, as prices may be off (nominal 90 %)",
                        count(r.open_steps))
          : "");
  print_notes("    fitted in context: h = {:.3f} ln T + {:.3f} ln(T/(T+P)) {} {:.3f}\n", r.in_context.alpha(),
              r.in_context.beta(), r.in_context.gamma() < 0 ? "-" : "+", std::abs(r.in_context.gamma()));
  Table t({"rule", "asked", "right", calibrated ? "mean TTFT (90 %)" : "mean TTFT", "p99 TTFT", "computing"});
  for (const ContextRegret& c : r.rules) {
    t.add(
        {c.rule, c.asked == RuleAsked::once ? "once" : "each step",
         fmt::format("{:.1f} %", 100.0 * static_cast<double>(c.right) / static_cast<double>(r.judged_steps)),
         loss(c.mean) + (calibrated ? interval(c.mean_range) : ""), loss(c.p99), loss(c.computing)});
  }
  print_notes("{}\n", fitted(t));
}

}  // namespace

void add_context(Arguments& a, ContextOptions& o) {
  a.add("--trace", o.trace,
        "Also what rules lose where the choice is made: recorded requests, as serve takes them, whose "
        "prompts a "
        "replica of each ring prefills in the order in which they come")
      .files();
  a.add("--rate", o.rate,
        "Of --trace: requests that come to each replica, \"2/s\" (default: as --load says)");
  a.add("--load", o.load, "Of --trace: the part of the time that prefills take (default: 0.7)")
      .real_range(0.001, 0.999);
  a.add("--chunk", o.chunk, "Of --trace: tokens of a prompt that a step computes, at most (default: 8192)");
  a.add("--requests", o.requests, "Of --trace: at most (default: all)").range(2, 100'000'000);
}

api::ThresholdsQuestion asked_of(const std::string& scenario, const ContextOptions& o) {
  api::ThresholdsQuestion q;
  q.scenario = scenario;
  if (!o.trace.empty()) q.trace = o.trace;
  if (o.rate) q.requests_per_s = asked_rate("--rate", *o.rate);
  q.load = o.load;
  if (!o.chunk.empty()) q.chunk_tokens = asked_tokens("--chunk", o.chunk);
  q.requests = o.requests.value_or(0);
  return q;
}

std::string context_text(const ContextQuestion& q, const ContextStudy& found) {
  return fmt::format(
      "{} requests of {}, prompts of {} tokens in the mean, one at a time in steps of at most {} "
      "tokens, {}",
      count(found.requests), std::filesystem::path(q.trace).filename().string(),
      count(static_cast<std::uint64_t>(std::llround(found.input))),
      count(static_cast<std::uint64_t>(q.chunk)),
      q.rate > 0
          ? fmt::format("{:.4g} requests/s to each replica", q.rate)
          : fmt::format("as many requests/s as keep a replica at it for {:.4g} % of the time", 100 * q.load));
}

void print_context(const Study& study, const ContextQuestion& q, const ContextStudy& found) {
  print_notes(
      "in context: {}\n  rules are judged on the last {} requests: by how much their TTFT and computing are "
      "longer "
      "than by the faster variant in each step; the rule fitted in context is of the others\n\n",
      context_text(q, found), count(found.judged));
  for (const ContextRing& ring : found.rings) print_ring(study, ring);
}

}  // namespace shardline::cli
