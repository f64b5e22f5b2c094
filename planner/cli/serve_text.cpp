#include "planner/cli/serve_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

#include "hardware/cost/kernel_list.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/serving/served.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "planner/studies/plan_load.hpp"
#include "planner/studies/played_cost.hpp"
#include "planner/studies/replica_failures.hpp"
#include "reports/json.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

std::string quantile_text(double quantile) { return fmt::format("p{:.4g}", 100 * quantile); }

namespace {

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }

std::string lengths_text(const ServiceQuestion& q) {
  if (!q.trace.empty()) return "those of " + q.trace;
  return fmt::format("{} tokens and {} of answer{}", q.input, q.output,
                     q.lengths == LengthLaw::drawn ? ", 80 to 100 % of these" : "");
}

}  // namespace

std::string load_text(const ServiceQuestion& q) {
  const bool one = q.users == 1;
  std::string out;
  if (q.users > 0)
    out = fmt::format(
        "closed loop of {} user{}, {}", count(static_cast<std::uint64_t>(q.users)), one ? "" : "s",
        q.think > Seconds(0) ? fmt::format("who think{} for {} between an answer and the next request",
                                           one ? "s" : "", to_string(q.think))
        : one                ? "who begins at once"
                             : "all of whom begin at once");
  else if (q.rate > 0)
    out = fmt::format("{:.4g} request{}/s{}", q.rate, q.rate == 1 ? "" : "s",
                      q.trace.empty() ? ", by Poisson" : ", the trace's times scaled");
  else
    out = "at the trace's own times";
  return fmt::format("{}; {}; {} requests, seed {}", out, lengths_text(q), q.requests, q.seed);
}

namespace {

// How many engines one replica is, and who comes to which.
std::string groups_line(const ReplicaGroups& groups) {
  return fmt::format(
      "{} attention groups, each with that scheduler and KV; requests are dealt {}; a step takes as long as "
      "the slowest group's",
      groups.count, to_string(groups.routing));
}

std::string latencies_text(const ServedLoadAnswer& load) {
  std::vector<std::string> header{"", "mean"};
  for (const double q : kToldQuantiles) header.push_back(quantile_text(q));
  Table t(header);
  for (const Latency of : kLatencies) {
    const ToldLatency& told = load.latencies[static_cast<std::size_t>(of)];
    if (told.count == 0) continue;
    std::vector<std::string> row{std::string(to_string(of)), to_string(Seconds(told.mean))}, off{"", ""};
    bool any = false;
    for (std::size_t q = 0; q < kToldQuantiles.size(); ++q) {
      row.push_back(to_string(Seconds(told.quantiles[q])));
      off.push_back(told.half_widths[q] ? "+-" + to_string(Seconds(*told.half_widths[q])) : "");
      any = any || told.half_widths[q];
    }
    t.add(row);
    if (any) t.add(off);
  }
  return fitted(t);
}

std::string targets_text(const ServedLoadAnswer& load) {
  std::string out;
  for (const TargetResult& t : load.targets)
    out +=
        fmt::format("  {} {} at most {}: {}, {}\n", to_string(t.target.of), quantile_text(t.target.quantile),
                    to_string(t.target.most), to_string(Seconds(t.measured)), t.met ? "met" : "missed");
  return out;
}

}  // namespace

std::string drafts_line(const ServiceAnswer& a) {
  const AcceptedLength& of = *a.accepted;
  const bool wide = of.band.low != 0 || of.band.high != 0;
  return fmt::format(
      "drafts: {} of each request are verified in a step, which yields {:.2f} tokens of it in the mean "
      "({}{}{}), drawn for each step of each request (seed {}); ITL is from chunk to chunk, of 1 to {} "
      "tokens "
      "each",
      of.k, of.mean, acceptance_basis_name(of.basis), of.curve.empty() ? "" : " of " + of.curve,
      wide ? fmt::format(", {:+.0f}/{:+.0f} % on other curves", 100 * std::expm1(of.band.low),
                         100 * std::expm1(of.band.high))
           : "",
      a.question.seed, of.k + 1);
}

// How far prices may be off, beside what the draw of requests does.
std::string prices_text(const Study& study, const ServiceAnswer& a) {
  const Case& c = study.study;
  const ErrorRange time = served_time_error(*c.engine, a.step_errors);
  const std::uint64_t answered = a.load.answered;
  const std::string few =
      answered < 100
          ? fmt::format(" Of {} requests p99 and p99.9 of TTFT, TPOT and E2E are the longest.", answered)
      : answered < 1000 ? fmt::format(" Of {} requests p99.9 of TTFT, TPOT and E2E is the longest.", answered)
                        : "";
  return fmt::format(
      "+-: 95 % by batch means, of the draw of requests alone.{} Prices add {} to TPOT and ITL ({}); of TTFT "
      "nothing was measured under such a load. Steps between knots of the table are within {:.2f} % of their "
      "lowering.",
      few, range_text(time), what_intervals_are(c), 100 * a.step_error);
}

std::string closed_form_text(const Study& study, const ServiceQuestion& q) {
  const ServedWorkload* const load = workload_of(study);
  const bool in_step = q.users > q.replicas && q.think == Seconds(0) && q.trace.empty();
  if (!in_step || q.lengths == LengthLaw::drawn || load == nullptr || load->equal_lengths) return "";
  return "plan, sweep and simulate have another TTFT of such a loop: that of lengths drawn from 80 to 100 %, "
         "whose prompts come spread out; here users get answers of one length and ask again together; "
         "--lengths drawn plays theirs";
}

std::string counts_text(const EngineProfile& engine, const ServiceAnswer& a) {
  const ServedLoadAnswer& l = a.load;
  std::string out = fmt::format("{} of {} requests answered in {}, {:.4g}/s", l.answered, l.sent,
                                to_string(Seconds(l.seconds)), l.requests_per_s);
  if (!l.targets.empty()) {
    const bool itl = std::any_of(l.targets.begin(), l.targets.end(),
                                 [](const auto& t) { return t.target.of == Latency::itl; });
    out += fmt::format("; goodput {:.4g}/s keep every target{}", l.goodput,
                       itl ? " but that of ITL, which is of all tokens" : "");
  }
  const auto rate = a.rate_error(engine);
  out += fmt::format("; {:.2f} tokens/s/GPU of answers, {:.1f} of prompts{}", l.output_per_s_gpu,
                     l.input_per_s_gpu, rate ? fmt::format(" ({} by prices)", range_text(*rate)) : "");
  if (l.refused > 0)
    out += fmt::format("; {} refused: longer than {} tokens with a token of answer", l.refused,
                       a.knobs.longest());
  if (l.unserved > 0) out += fmt::format("; {} LEFT WITHOUT A REPLICA, for none comes back", l.unserved);
  if (l.found > 0) out += fmt::format("; {} of prompts found in the prefix cache", percent(l.found));
  return out;
}

std::string use_text(const ServiceAnswer& a) {
  const ServedLoadAnswer& l = a.load;
  return fmt::format(
      "time of the GPUs{}: {} steps with prompts, {} steps that decode alone, {} idle{}; {:.1f} requests run "
      "on "
      "average, and one that comes finds {:.1f} waiting; KV {} held, {} at most; {} preemptions",
      l.pair ? " that decode" : "", percent(l.prompting), percent(l.decoding), percent(l.idle),
      l.down > 0 ? fmt::format(", {} down", percent(l.down)) : "", l.running, l.waiting, percent(l.kv_held),
      percent(l.kv_most), l.preemptions);
}

namespace {

std::string part_text(const char* name, const PairPart& part) {
  return fmt::format("{} {} (p99 {})", name, to_string(Seconds(part.mean)), to_string(Seconds(part.p99)));
}

// What a pair of pools shows beside latencies.
std::string pair_text(const ServedPair& p) {
  if (p.local_prefills > 0 && p.tokens_read == 0)
    return fmt::format(
        "no prompt was handed over: all {} were computed by the replicas that decode, which work {} of the "
        "time",
        p.local_prefills, percent(p.decode_busy));
  const bool sends = p.way == CacheWay::sent;
  std::string out = fmt::format(
      "TTFT {}on average: {}, {}, {}, {}; of a request {:.0f} tokens of cache go over links, which are full "
      "for {} "
      "of the time at senders and {} at receivers; replicas that prefill work {} of the time, those that "
      "decode {}; KV of the former {} held at most, {} preemptions there",
      p.local_prefills > 0 ? "of those handed over " : "",
      sends ? part_text("room", p.room) : part_text("prompt", p.prompt),
      sends ? part_text("prompt", p.prompt) : part_text("room", p.room), part_text("transfer", p.transfer),
      part_text(p.way == CacheWay::read ? "first step" : "first token", p.begin), p.tokens_read,
      percent(p.sending), percent(p.reading), percent(p.prefill_busy), percent(p.decode_busy),
      percent(p.prefill_kv), p.preemptions);
  if (p.local_prefills > 0)
    out += fmt::format("; {} prompts were computed by the replicas that decode", p.local_prefills);
  if (p.prefill_dummies + p.decode_dummies > 0)
    out += fmt::format("; dummy batches run {} of the time of the former and {} of the others'",
                       percent(p.prefill_dummies), percent(p.decode_dummies));
  if (p.given_up > 0)
    out += fmt::format("; {} REQUESTS WAITED FOR OVER {:.0f} s, after which {} gives them up", p.given_up,
                       sends ? PairRun::kSent : PairRun::kGiven, sends ? "SGLang" : "TensorRT-LLM");
  return out;
}

// What is played of the hand-off: [R14] the engine's rules, which its options and launch files set.
std::string sends_line(const ServiceKnobs& decode, const ServiceKnobs& prefill) {
  const auto &to = std::get<SglangKnobs>(decode.of), &from = std::get<SglangKnobs>(prefill.of);
  return fmt::format(
      "hand-offs as SGLang's servers send them: a prompt begins when it has room where it is answered, "
      "beside {} tokens for each request there, on {} places beside those that run; pages go when the step "
      "that computed them has ended{}",
      to.num_reserved_decode_tokens, to.disaggregation_decode_extra_slots,
      from.prefill_max_requests > 0
          ? fmt::format("; of prompts at most {} in a step", from.prefill_max_requests)
          : "");
}

// [R21] Likewise.
std::string turns_line(const TrtllmKnobs& to) {
  return fmt::format(
      "hand-offs as TensorRT-LLM's servers ask for them: who has blocks for its whole prompt, one after the "
      "other on each side{}; a place of the {} that decode and wait there is held meanwhile",
      to.max_tokens_in_buffer > 0
          ? fmt::format(", of those with {} tokens together ({})", to.max_tokens_in_buffer, kBufferTokens)
          : "",
      to.max_batch_size);
}

// Which replicas die, and what becomes of their requests.
std::string failures_text(const ServiceAnswer& a) {
  std::vector<std::string> each;
  for (const ReplicaFailure& f : a.question.failures) each.push_back(to_string(f));
  return fmt::format(
      "replicas die: {}; {} request{} lost theirs and began anew{}, from their first sending; ITL is of "
      "lost tokens, too",
      fmt::join(each, ", "), a.load.retried, a.load.retried == 1 ? "" : "s", a.load.pair ? "" : " elsewhere");
}

// Requests of dead replicas come again, so that with failures a queue may grow by more than come.
std::string growth_text(const ServiceAnswer& a) {
  const bool fails = !a.question.failures.empty();
  return fmt::format(
      "THE LOAD DOES NOT DRAIN{}: the queue grows by {:.3g} requests/s of the {:.4g} that come{}, so that "
      "latencies below rise with the number of requests",
      fails ? " while replicas are down, or after" : "", *a.load.growth_per_s, a.load.sent_per_s,
      fails ? " and those of dead replicas that come again" : "");
}

// What failures of a pair cost its hand-offs.
std::string lost_text(const ServiceAnswer& a) {
  const ServedPair& p = *a.load.pair;
  std::string out = fmt::format("of hand-offs {} were cut off, and {:.0f} tokens went over links for nobody",
                                p.cut_transfers, p.lost_tokens);
  if (p.way == CacheWay::read)
    out += fmt::format("; of caches {} were gone before they were read: then {}", p.failed_loads,
                       std::get<VllmKnobs>(a.knobs.of).recompute_failed_loads
                           ? "a prompt is computed where it is answered (kv_load_failure_policy recompute)"
                           : "a request fails and is sent again (kv_load_failure_policy fail)");
  return out + fmt::format("; replicas that prefill are down {} of the time", percent(p.prefill_down));
}

std::string bracket_text(const ServiceAnswer& a) {
  const RateBracket& b = *a.bracket;
  if (b.low <= 0)
    return fmt::format("no rate meets the targets: not {:.4g} requests/s, which is shown", b.high);
  return fmt::format(
      "largest rate that meets the targets: between {:.4g} and {:.4g} requests/s ({} rates, one seed); the "
      "former is shown",
      b.low, b.high, b.plays);
}

std::string basis_text(const Case& c, const std::vector<std::string>& knobs) {
  const std::string cache = assumed_cache_text(c);
  return fmt::format("{}{}; assumed: {}{}{}", weights_text(c), stored_text(c), cache,
                     cache.empty() ? "" : ", ", assumed_text(c, says_step_tokens(knobs)));
}

// vLLM 0.24.0, distributed/kv_transfer/kv_connector/v1/nixl/metadata.py, compute_nixl_compatibility_hash: the
// name of the attention backend is among what both servers compare before anything is read.
template <class Line>
std::string other_system_lines(const Case& prompts, const std::vector<std::string>& knobs,
                               const Case& answers, Line line) {
  std::string out = line(fmt::format("of prompts: {}", basis_text(prompts, knobs)));
  const bool vllm = same_engine(prompts.engine->name, "vllm");
  if (vllm && architecture_of(prompts.system.device) != architecture_of(answers.system.device))
    out += line(
        "vLLM refuses a pair whose attention backends differ, as its defaults on these GPUs do: start both "
        "with one --attention-backend; prices are of its defaults");
  return out;
}

}  // namespace

std::string served_title(const Study& study) {
  const System& system = study.study.system;
  return fmt::format("{} on {}{}: requests one by one{}", study.study.model.name, system.name,
                     set_text(system), system.calibration.empty() ? ", by the system file's parameters" : "");
}

std::string serve_text(const Study& study, const ServiceAnswer& a, std::size_t width) {
  const ServiceQuestion& q = a.question;
  const auto line = [&](const std::string& text) { return "  " + wrapped(text, width - 2, "    "); };
  std::string out = wrapped(served_title(study), width, "  ");
  Plan plan = q.plan;
  plan.batch = 1;
  out += line(fmt::format(
      "{}, {}{}", sharding_text(sharding_of(plan)), gpus_text(plan.gpus()),
      q.replicas > 1 ? fmt::format(" x {} replicas, router {}", q.replicas, to_string(q.router)) : ""));
  if (q.prefill)
    out += line(fmt::format("prompts on {}, {}{}{}; tokens/s/GPU are of the {} GPUs of both pools",
                            sharding_text(sharding_of(q.prefill->plan)), gpus_text(q.prefill->plan.gpus()),
                            q.prefill->on ? " of " + q.prefill->on->study.system.name : "",
                            q.prefill->replicas > 1 ? fmt::format(" x {} replicas", q.prefill->replicas) : "",
                            q.prefill->gpus() + q.plan.gpus() * q.replicas)) +
           line("its engine: " + engine_line(q.prefill->study(study), *a.prefill_knobs));
  if (q.prefill && q.prefill->plan.dp > 1)
    out += line(groups_line(pair_groups(*a.prefill_knobs, q.prefill->plan, PairRole::prefills)));
  out += line(load_text(q)) + line(engine_line(study, a.knobs));
  if (q.prefill && std::holds_alternative<SglangKnobs>(a.knobs.of))
    out += line(sends_line(a.knobs, *a.prefill_knobs));
  if (const auto* to = std::get_if<TrtllmKnobs>(&a.knobs.of); q.prefill && to != nullptr)
    out += line(turns_line(*to));
  if (a.accepted) out += line(drafts_line(a));
  if (!q.failures.empty()) out += line(failures_text(a));
  if (plan.dp > 1) out += line(groups_line(groups_of(a.knobs, plan)));
  const Case& c = study.study;
  out += line(basis_text(c, q.knobs));
  if (q.prefill && q.prefill->on) out += other_system_lines(q.prefill->on->study, q.prefill->knobs, c, line);
  // A play of what nobody can start is told as such.
  Case starts = c;
  starts.disaggregated = c.disaggregated || (q.prefill && q.prefill->max_local == 0);
  if (const auto refusal = does_not_start(starts, sharding_of(plan))) out += line(refusal_text(c, *refusal));
  out += "\n";
  if (a.bracket) out += line(bracket_text(a)) + "\n";
  if (a.load.growth_per_s) out += line(growth_text(a)) + "\n";
  if (a.load.answered > 0) {
    out += latencies_text(a.load) + line(prices_text(study, a));
    if (const std::string other = closed_form_text(study, q); !other.empty()) out += line(other);
    out += "\n";
  }
  if (!a.load.targets.empty()) out += targets_text(a.load) + "\n";
  out += line(counts_text(*study.study.engine, a)) + line(use_text(a));
  for (const std::string& cost : {energy_text(study, a), money_text(study, a)})
    if (!cost.empty()) out += line(cost);
  if (a.load.pair) out += line(pair_text(*a.load.pair));
  return a.load.pair && !q.failures.empty() ? out + line(lost_text(a)) : out;
}

std::string serve_csv(const ServiceAnswer& a) {
  std::string out = csv_line({"latency", "quantile", "value_s", "half_width_s", "mean_s", "count"});
  for (const Latency of : kLatencies) {
    const ToldLatency& told = a.load.latencies[static_cast<std::size_t>(of)];
    for (std::size_t q = 0; q < kToldQuantiles.size() && told.count > 0; ++q)
      out += csv_line({std::string(to_string(of)), number_text(kToldQuantiles[q]),
                       number_text(told.quantiles[q]),
                       told.half_widths[q] ? number_text(*told.half_widths[q]) : "", number_text(told.mean),
                       std::to_string(told.count)});
  }
  return out;
}

std::string series_csv(const ServedSeries& series, int of) {
  std::string out = csv_line(
      {"time_s", "running", "waiting", "kv_held", "time_with_prompts", "time_decoding", "time_idle"});
  const double length = series.length().value, replicas = of;
  for (std::size_t i = 0; i < series.intervals().size(); ++i) {
    const ServedSeries::Interval& v = series.intervals()[i];
    const double prompting = v.prompting / length / replicas, decoding = v.decoding / length / replicas;
    out += csv_line({number_text(length * static_cast<double>(i)), number_text(v.running / length),
                     number_text(v.waiting / length), number_text(v.held / length / replicas),
                     number_text(prompting), number_text(decoding),
                     number_text(std::max(0.0, 1 - prompting - decoding))});
  }
  return out;
}

}  // namespace shardline::cli
