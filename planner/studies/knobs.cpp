#include "planner/studies/knobs.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/studies/searched_partition.hpp"

namespace shardline {

namespace {

struct KnobText {
  std::string_view name, meaning;
};
constexpr std::array<KnobText, kKnobs> kTexts{{
    {"HBM bandwidth", "device.memory.bandwidth"},
    {"FLOP/s", "all of device.compute: tensor cores and exponentials"},
    {"link bandwidth", "of NVLink, network and host links"},
    {"message latency", "of links, and the fixed times of fitted messages"},
    {"kernels' fixed times",
     "launches, ramps, waits, a top-k's passes: what no rate shortens, but messages' and the host's"},
    {"host times", "of the engine's host, and of launching kernel by kernel"},
    {"context", "tokens of a request"},
    {"batch", "requests at once"},
}};

void scale(BytesPerSecond& v, double f) { v = v * f; }
void scale(FlopsPerSecond& v, double f) { v = v * f; }
void scale(Seconds& v, double f) { v = v * f; }

void scale_flops(System& s, double f) {
  for (FlopsPerSecond& peak : s.device.peak) scale(peak, f);
  scale(s.device.exponentials, f);
}

void scale_links(System& s, double f) {
  scale(s.fabric.nvlink.bandwidth, f);
  scale(s.fabric.network.bandwidth, f);
  scale(s.fabric.network.host_link, f);
}

bool is_message(const KernelFit& fit) {
  const std::string_view family = fit.form->family;
  return family == "nccl" || family == "allreduce" || family == "alltoall";
}

// Parameters of fitted messages that are times do not depend on the port's rate.
void scale_latency(System& s, double f) {
  NetworkSpec& n = s.fabric.network;
  for (Seconds* v :
       {&s.fabric.nvlink.latency, &n.latency, &n.spine_latency, &n.send_recv_extra, &n.all_to_all_extra})
    scale(*v, f);
  for (KernelFit& fit : s.calibration.fits.edit()) {
    if (!is_message(fit)) continue;
    const auto parameters = fit.form->parameters;
    for (std::size_t i = 0; i < parameters.size() && i < fit.parameters.size(); ++i) {
      const std::string_view unit = parameters[i].unit;
      if (unit == "us" || unit == "ns") fit.parameters[i] *= f;
    }
  }
}

void scale_host(Case& c, double f) {
  System& s = c.system;
  for (Seconds* v :
       {&s.host.step, &s.host.request, &s.host.prompt_token, &s.host.launch, &s.runtime.ring_step,
        &s.runtime.send_recv, &s.runtime.all_to_all, &s.runtime.persistent_layer, &s.runtime.host_layer,
        &s.runtime.host_gather, &s.runtime.distribute})
    scale(*v, f);
  if (!c.engine) return;
  auto engine = std::make_shared<EngineProfile>(*c.engine);
  for (Seconds* v :
       {&engine->host.step, &engine->host.request, &engine->host.prompt_token, &engine->host.path})
    scale(*v, f);
  for (auto& [architecture, launch] : engine->launch) scale(launch, f);
  c.engine = std::move(engine);
}

// A time is fixed times F and work W over rates: so many times F as before is F + W/f on rates f times as
// high, all of it f times as long. Times of messages and of the host are not to change, and shrink
// beforehand.
void scale_kernels(ChangedStudy& s, double f) {
  System& system = s.study.study.system;
  scale(system.device.memory_bandwidth, f);
  scale_flops(system, f);
  scale_links(system, f);
  scale_latency(system, 1 / f);
  scale_host(s.study.study, 1 / f);
  s.times = f;
}

bool has_host(const Case& c) {
  const StepHost& h = c.system.host;
  const Runtime& r = c.system.runtime;
  Seconds all = h.step + h.request + h.prompt_token + h.launch + r.ring_step + r.send_recv + r.all_to_all +
                r.persistent_layer + r.host_layer + r.host_gather + r.distribute;
  if (c.engine) all += c.engine->host.path;
  return all > Seconds(0);
}

// So that the fits still are of such a machine: [H63] widens bands for others, which a small change is none
// of.
void keep_kin(const System& before, System& after) {
  MeasuredMachine& machine = after.calibration.machine;
  for (std::size_t i = 0; i < machine.figures.size(); ++i) {
    const MachineFigure& f = machine_figures()[i];
    const double old = f.of(before), now = f.of(after);
    if (f.use != FigureUse::parameter && old > 0) machine.figures[i] *= now / old;
  }
}

long long scaled(long long tokens, double f, long long least) {
  return std::max(least, std::llround(static_cast<double>(tokens) * f));
}

bool scale_context(ChangedStudy& s, double f) {
  Case& c = s.study.study;
  if (takes_partition(c, s.plan) || strategy(s.plan.strategy).parts != nullptr || c.placement) return false;
  const long long before = c.longest();
  if (before < 1) return false;
  Sweep& sweep = s.study.sweep();
  if (sweep.search.workload) {
    ServedWorkload& load = *sweep.search.workload;
    load.input = scaled(load.input, f, 1);
    c.served.input = load.input;
    c.batch = decode_batch(load.context());
  } else {
    for (Segment& d : c.batch.decode) d.cached = scaled(d.length(), f, 1) - d.fresh;
    for (Segment& p : c.batch.prefill) {
      p.cached = scaled(p.cached, f, 0);
      p.fresh = scaled(p.fresh, f, 1);
    }
  }
  s.factor = static_cast<double>(c.longest()) / static_cast<double>(before);
  return s.factor != 1;
}

bool scale_batch(ChangedStudy& s, double f) {
  const int before = s.plan.batch;
  int after = static_cast<int>(std::lround(before * f));
  if (after == before) after += f > 1 ? 1 : -1;
  if (after < 1) return false;
  s.plan.batch = after;
  s.factor = static_cast<double>(after) / before;
  return true;
}

bool has_links(const System& s) { return s.fabric.nvlink.switches > 0 || s.fabric.network.present; }

bool change(ChangedStudy& s, Knob knob, double f) {
  Case& c = s.study.study;
  switch (knob) {
    case Knob::hbm:
      scale(c.system.device.memory_bandwidth, f);
      return true;
    case Knob::flops:
      scale_flops(c.system, f);
      return true;
    case Knob::links:
      scale_links(c.system, f);
      return has_links(c.system);
    case Knob::latency:
      scale_latency(c.system, f);
      return has_links(c.system);
    case Knob::kernels:
      // The kernels' own: what one takes at least, of a system without measurements, too.
      scale_kernels(s, f);
      return true;
    case Knob::host:
      scale_host(c, f);
      return has_host(c);
    case Knob::context:
      return scale_context(s, f);
    case Knob::batch:
      return scale_batch(s, f);
  }
  return false;
}

ServedPlan served_by(const Study& study, const Plan& plan, ServedEvaluator& evaluator) {
  ServedWorkload load = *study.sweep().search.workload;
  load.users = plan.users();
  return evaluator.of(plan, load);
}

bool is_served(const Study& study, const Plan& plan) {
  return study.sweep().search.workload && study.study.engine && serves_prompts(study.study, plan.strategy);
}

}  // namespace

std::string_view to_string(Knob k) { return kTexts[static_cast<std::size_t>(k)].name; }
std::string_view meaning(Knob k) { return kTexts[static_cast<std::size_t>(k)].meaning; }

std::optional<ChangedStudy> changed(const Study& study, const Plan& plan, Knob knob, double factor,
                                    ChangedMachine machine) {
  ChangedStudy out{study, plan, factor, 1};
  if (!change(out, knob, factor)) return std::nullopt;
  if (machine == ChangedMachine::own) keep_kin(study.study.system, out.study.study.system);
  return out;
}

Study without_throttling(Study study) {
  Calibration& c = study.study.system.calibration;
  c.power_limit = 0;  // or another board's limit would bring it back
  for (KernelFit& fit : c.fits.edit()) {
    const auto parameters = fit.form->parameters;
    for (std::size_t i = 0; i < parameters.size() && i < fit.parameters.size(); ++i) {
      if (parameters[i].name == std::string_view("throttle")) fit.parameters[i] = 0;
    }
  }
  return study;
}

std::optional<std::string> cannot_run(const Study& study, const Plan& plan) {
  if (auto reason = check_plan(study.study, plan)) return reason;
  return does_not_fit(study.study, memory_use(study.study, plan));
}

Plan running(const Study& study, Plan plan) {
  if (!study.sweep().search.queues || !is_served(study, plan)) return plan;
  const int room = largest_batch(with_room(study.study), plan, plan.batch);
  if (room >= std::max(1, least_batch(study.study, plan))) plan.batch = room;
  return plan;
}

PlanTimes times_of(const Study& study, const Plan& asked, double times) {
  const Case& c = study.study;
  const Plan plan = running(study, asked);
  const AllReduceRule rule = study.sweep().search.all_reduce;
  Evaluator e(c, rule);
  const Breakdown b = break_down(e, plan);
  PlanTimes out;
  out.step = b.time * times;
  out.errors = b.errors;
  for (const Basis basis : {Basis::extrapolated, Basis::assumed})
    out.extrapolated += b.bases[static_cast<std::size_t>(basis)] / b.time;
  if (c.batch.kind() == StepKind::prefill) {
    const PrefillMetrics m = prefill_metrics(c, out.step, plan);
    out.users = m.requests;
    out.tokens_per_s_gpu = m.new_tokens_per_s_gpu;
    return out;
  }
  const DecodeMetrics m = decode_metrics(c, out.step, plan);
  out.users = m.users;
  out.tokens_per_s_gpu = m.tokens_per_s_gpu;
  if (!is_served(study, plan)) return out;
  ServedEvaluator evaluator(c, rule);
  const ServedPlan got = served_by(study, asked, evaluator);
  if (!got.serves()) return out;
  out.users = static_cast<double>(asked.users());
  out.waiting = static_cast<double>(asked.users() - plan.users());
  out.tpot = got.served.tpot * times;
  out.ttft = got.served.ttft * times;
  out.tokens_per_s_gpu = got.output_per_s_gpu / times;
  ServedWorkload all = *study.sweep().search.workload;
  all.users = asked.users();
  out.preempts = preempts(c, plan, all);
  out.ttft_errors = evaluator.prompt_rating(plan, study.sweep().search.workload->input).errors *
                    std::max(0.0, 1 - c.engine->host.path / got.served.ttft);
  return out;
}

ErrorRange rate_error(const Study& study, const PlanTimes& t) {
  return t.served() ? served_rate_error(*study.study.engine, t.errors) : rate_error(t.errors);
}

std::optional<ErrorRange> ttft_error(const Study& study, const PlanTimes& t) {
  if (!t.served() || t.preempts) return std::nullopt;
  return served_ttft_error(*study.study.engine, study.sweep().search.workload->equal_lengths, t.users,
                           t.ttft_errors);
}

Seconds time_of(const Study& study, const Plan& plan, double times) {
  const AllReduceRule rule = study.sweep().search.all_reduce;
  if (is_served(study, plan)) {
    ServedEvaluator evaluator(study.study, rule);
    if (const ServedPlan got = served_by(study, plan, evaluator); got.serves())
      return got.served.tpot * times;
  }
  return Evaluator(study.study, rule).simulate(running(study, plan)) * times;
}

}  // namespace shardline
