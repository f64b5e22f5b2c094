// What one plan does.
#include <algorithm>

#include "planner/api/convert.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "planner/studies/plan_launches.hpp"

namespace shardline::api {

namespace {

double share(Seconds part, Seconds whole) { return whole > Seconds(0) ? part / whole : 0; }

// Those that some time falls on, in the order of the enum.
template <class Name, std::size_t N>
std::vector<TimePart> parts_of(const std::array<Seconds, N>& times, Seconds whole) {
  std::vector<TimePart> out;
  for (std::size_t i = 0; i < N; ++i) {
    if (times[i] > Seconds(0))
      out.push_back({std::string(to_string(static_cast<Name>(i))), times[i].value, share(times[i], whole)});
  }
  return out;
}

std::vector<ErrorSource> errors_of(const System& system, const ErrorTerms& errors) {
  std::vector<ErrorSource> out;
  for (const ErrorTerm& t : widest_first(errors))
    out.push_back({source_name(system, t.source), t.low, t.high});
  return out;
}

}  // namespace

Collective collective_of(const PricedCollective& c) {
  Collective out;
  out.name = c.op.name;
  out.kind = to_string(c.op.kind);
  out.ranks = c.op.group.size;
  out.stride = c.op.group.stride;
  out.message_bytes = message_bytes(c.op).value;
  out.message_is = message_meaning(c.op.kind);
  out.algorithm = algorithm_text(c.cost);
  out.time_s = c.alone.value;
  out.basis = to_string(c.cost.basis);
  if (c.cost.fit == nullptr) return out;
  const KernelFit& fit = *c.cost.fit;
  out.fit = fit.name();
  const FitError& error = fit.correction.empty() ? fit.alone : fit.corrected;
  if (error.rows > 0) {
    out.fit_median_error = error.median;
    out.fit_p90_error = error.p90;
  }
  return out;
}

Served served_of(const Study& study, const SimulatedPlan& s) {
  const EngineProfile& engine = *study.study.engine;
  const shardline::Served& got = s.served->served;
  Served out;
  out.users = s.served->users;
  out.serves = s.served->serves();
  out.what = what_of(study);
  if (!out.serves) return out;
  out.tpot_s = estimate(got.tpot.value, served_time_error(engine, s.breakdown.errors));
  ServedWorkload all = *workload_of(study);
  all.users = s.served->users;
  out.memory_capped = preempts(study.study, s.plan, all);
  const auto first =
      *out.memory_capped
          ? std::nullopt
          : served_ttft_error(engine, all.equal_lengths, static_cast<double>(s.served->users), s.ttft_errors);
  out.ttft_s = first ? estimate(got.ttft.value, *first) : Estimate{got.ttft.value};
  out.ttft_burst_s = got.burst.value;
  out.prefill_share = got.prefill_part;
  out.host_share = (1 - got.prefill_part) *
                   share(s.breakdown.parts[static_cast<std::size_t>(Part::host)], s.breakdown.time);
  const ErrorRange rate = served_rate_error(engine, s.breakdown.errors);
  out.tokens_per_s_gpu = estimate(s.served->output_per_s_gpu, rate);
  out.prompt_tokens_per_s_gpu = estimate(s.served->input_per_s_gpu, rate);
  out.decoding_users = got.decoding;
  out.waiting_users = got.waiting;
  return out;
}

// The step by itself: where a workload is served, the one that decodes between prompts.
PlanPoint outcome_of(const Study& study, const SimulatedPlan& s) {
  Study alone = study;
  alone.sweep().search.workload.reset();
  Rating rating;  // watts are of points that a sweep has rated
  rating.shares = shares(s.breakdown);
  rating.errors = s.breakdown.errors;
  return plan_point(alone, {s.plan, s.breakdown.time, s.memory.total()}, &rating, nullptr);
}

namespace {

// The system's own first.
std::vector<FrameworkTime> frameworks_of(const System& system, const shardline::Breakdown& b) {
  std::vector<FrameworkTime> out;
  if (b.others.empty()) return out;
  out.push_back({system.kernels.framework, system.kernels.version, b.time.value});
  for (const shardline::FrameworkTime& f : b.others) out.push_back({f.framework, f.version, f.time.value});
  return out;
}

std::vector<Deployment> deployments_of(const Study& study, const Plan& plan, int copies) {
  std::vector<Deployment> out;
  for (const Launch& launch : launches_of(study.study, plan, "1", copies)) {
    if (!launch.refused.empty()) out.push_back({launch.engine, "", {}, {}, launch.refused});
    for (const LaunchedServer& server : launch.servers)
      out.push_back({launch.engine, server.title, server.lines, server.notes, ""});
  }
  return out;
}

}  // namespace

Breakdown breakdown_of(const System& system, const shardline::Breakdown& b) {
  Breakdown out;
  out.time_s = b.time.value;
  out.parts = parts_of<Part>(b.parts, b.time);
  out.kinds = parts_of<OpKind>(b.kinds, b.time);
  for (std::size_t i = 0; i < kBases; ++i) {
    if (b.bases[i] > Seconds(0))
      out.bases.push_back({std::string(to_string(static_cast<Basis>(i))), b.bases[i].value,
                           share(b.bases[i], b.time), parts_of<Part>(b.basis_parts[i], b.time)});
  }
  out.waiting_s = b.waiting.value;
  out.exposed_communication_s = b.exposed_communication.value;
  out.hidden_communication_s = b.hidden_communication.value;
  out.errors = errors_of(system, b.errors);
  return out;
}

MemoryUse memory_of(const System& system, const shardline::MemoryUse& m) {
  return {m.weights.value, m.kv.value,      m.activations.value,
          m.buffers.value, m.total().value, system.device.memory.value};
}

SimulateResult simulate_result(const Study& study, const SimulatedPlan& s, int copies) {
  SimulateResult out;
  out.setting = setting_of(study);
  out.plan = to_string(s.plan);
  out.fits = !s.misfit;
  out.misfit = s.misfit.value_or("");
  out.met = keeps_constraints(study, s);
  if (s.refusal) out.refusal = Refusal{s.refusal->rule, s.refusal->says, s.refusal->text, s.refusal->source};
  out.memory = memory_of(study.study.system, s.memory);
  if (!out.fits) return out;
  out.outcome = outcome_of(study, s);
  if (s.served) out.served = served_of(study, s);
  out.breakdown = breakdown_of(study.study.system, s.breakdown);
  for (const PricedCollective& c : s.collectives) out.collectives.push_back(collective_of(c));
  out.frameworks = frameworks_of(study.study.system, s.breakdown);
  if (s.noise) {
    out.noise = noise_of(*study.sweep().noise);
    out.noisy = noisy_plan(s.plan, *s.noise);
  }
  out.deployments = deployments_of(study, s.plan, copies);
  out.warnings = warnings_of(s.unread, s.narrow);
  return out;
}

}  // namespace shardline::api
