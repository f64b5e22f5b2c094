#include "planner/api/convert.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/engines/checkpoints.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/scenario/bare_kernels.hpp"
#include "planner/search/provenance.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline::api {

namespace {

std::string phase_of(const Case& c) {
  switch (c.batch.kind()) {
    case StepKind::decode:
      return "decode";
    case StepKind::prefill:
      return "prefill";
    case StepKind::mixed:
      return "mixed";
  }
  return "";
}

Diagnostic diagnostic_of(const shardline::Diagnostic& d) {
  const bool set = d.where.file == kSettingOrigin;  // which the library calls otherwise
  return {set ? argument_name("set") : d.where.file,
          d.where.line,
          d.where.line > 0 ? d.where.column : 0,
          d.where.key,
          d.what,
          d.details};
}

std::vector<MatrixTypes> matrices_of(const Case& c) {
  std::vector<MatrixTypes> out;
  const auto add = [&](const char* matrices, Module m) {
    const ModuleType type = c.precision.of(m);
    out.push_back({matrices, std::string(to_string(type.weights)), std::string(to_string(type.math))});
  };
  add("attention", Module::attention);
  add("out_proj", Module::out_proj);
  if (std::any_of(c.model.attentions.begin(), c.model.attentions.end(),
                  [](const Attention& a) { return has_own_index(a); }))
    add("index", Module::index);
  if (has_dense(c.model)) add("dense_ffn", Module::dense_ffn);
  if (has_experts(c.model)) add("experts", Module::experts);
  if (std::any_of(c.model.ffns.begin(), c.model.ffns.end(),
                  [](const FeedForward& f) { return f.shared_experts > 0; }))
    add("shared_experts", Module::shared_experts);
  if (has_experts(c.model)) add("router", Module::router);
  add("head", Module::head);
  if (!c.model.tied_embeddings) add("embedding", Module::embedding);
  if (!c.model.drafts || !c.precision.drafts) return out;
  const auto add_draft = [&](const char* matrices, ModuleType type) {
    out.push_back({matrices, std::string(to_string(type.weights)), std::string(to_string(type.math))});
  };
  add_draft("drafts_attention", c.precision.drafts->attention);
  add_draft("drafts_out_proj", c.precision.drafts->out_proj);
  if (c.model.drafts->ffn.dense()) {
    add_draft("drafts_dense_ffn", c.precision.drafts->dense_ffn);
  } else {
    add_draft("drafts_experts", c.precision.drafts->experts);
    if (c.model.drafts->ffn.shared_experts > 0)
      add_draft("drafts_shared_experts", c.precision.drafts->shared);
  }
  return out;
}

std::string precision_source(const Case& c) {
  if (!c.model.checkpoint) return "the scenario";
  const std::string& own = c.model.checkpoint->assumed;
  if (own.empty()) return "the scenario and the model's checkpoint";
  if (!c.precision.assumed.weights) return "the scenario";
  return names_checkpoint(own) ? "the checkpoint that was assumed, " + own : own;
}

}  // namespace

const char* version() { return SHARDLINE_VERSION; }

std::vector<Diagnostic> diagnostics_of(std::span<const shardline::Diagnostic> faults) {
  std::vector<Diagnostic> out;
  for (const shardline::Diagnostic& d : faults) out.push_back(diagnostic_of(d));
  return out;
}

std::vector<Diagnostic> warnings_of(const std::vector<shardline::Diagnostic>& unread,
                                    const std::vector<shardline::Diagnostic>& narrow) {
  std::vector<Diagnostic> out = diagnostics_of(unread);
  for (const shardline::Diagnostic& d : narrow) out.push_back(diagnostic_of(d));
  return out;
}

std::string what_of(const Study& study) { return rates_of_what(study); }

Costs costs_of(const System& s) {
  Costs out;
  out.kind = s.calibration.empty() ? "parameters" : "calibrated";
  out.text = costs_text(s);
  if (s.calibration.empty()) return out;
  const Calibration& c = s.calibration;
  out.source = c.source;
  out.date = c.date;
  out.hash = c.hash;
  out.framework = s.kernels.framework;
  out.framework_version = s.kernels.version;
  if (!c.like.empty())
    out.borrowed_from = c.like;
  else if (!c.machine.empty() && !c.machine.differences(s).empty())
    out.borrowed_from = c.machine.system;
  return out;
}

Precision precision_of(const Case& c) {
  const shardline::Precision& p = c.precision;
  Precision out;
  out.matrices = matrices_of(c);
  out.kv_cache = to_string(p.kv);
  out.activations = to_string(p.activations);
  out.dispatch = to_string(p.dispatch);
  out.source = precision_source(c);
  for (const auto& [assumed, name] :
       {std::pair{p.assumed.weights, "weights"}, std::pair{p.assumed.math, "arithmetic"},
        std::pair{p.assumed.expert_math, "expert_arithmetic"}, std::pair{p.assumed.kv, "kv_cache"},
        std::pair{p.assumed.dispatch, "dispatch"}}) {
    if (assumed) out.assumed.emplace_back(name);
  }
  return out;
}

Engine engine_of(const Case& c) {
  if (!c.engine) {
    const EngineProfile bare = bare_kernels();
    return {bare.name, std::nullopt, bare.title, bare.assumes};
  }
  return {c.engine->name, c.engine->version, c.engine->title, assumed_of_engine(c)};
}

std::optional<Workload> asked_workload(const Study& study) {
  const ServedWorkload* load = workload_of(study);
  if (load == nullptr) return std::nullopt;
  return Workload{load->input, load->output, load->equal_lengths ? "equal" : "drawn"};
}

std::optional<Acceptance> acceptance_of(const Case& c) {
  if (!c.acceptance) return std::nullopt;
  const AcceptanceOrigin& from = c.acceptance->origin();
  Acceptance out{from.name, from.method, from.source, {}, {}, {}};
  for (const int k : c.acceptance->usual()) {
    const AcceptedLength length = c.acceptance->mean_at(k);
    out.drafts.push_back(k);
    out.tokens_per_step.push_back(length.mean);
    out.bases.emplace_back(acceptance_basis_name(length.basis));
  }
  return out;
}

Setting setting_of(const Study& study) {
  const Case& c = study.study;
  Setting out;
  out.title = study.title;
  out.model = c.model.name;
  out.system = c.system.name;
  out.system_gpus = c.system.gpus();
  out.phase = phase_of(c);
  out.what = what_of(study);
  out.intervals = what_intervals_are(c);
  out.engine = engine_of(c);
  out.workload = asked_workload(study);
  out.acceptance = acceptance_of(c);
  out.precision = precision_of(c);
  out.costs = costs_of(c.system);
  return out;
}

std::optional<Estimate> estimate_of(const std::optional<CostNumber>& number) {
  if (!number) return std::nullopt;
  return estimate(number->value, number->error);
}

Estimate estimate(double value, const ErrorRange& error) {
  return {value, value * (1 + error.low), value * (1 + error.high)};
}

Shares shares_of(const shardline::Shares& s) { return {s.measured, s.fitted, s.extrapolated, s.assumed}; }

NoiseSpec noise_of(const shardline::NoiseSpec& n) {
  const char* links = n.links == NoiseLinks::nvlink    ? "nvlink"
                      : n.links == NoiseLinks::network ? "network"
                                                       : "all";
  return {links, n.load, n.burst.value, n.flows, n.pairs, n.seeds, static_cast<long long>(n.seed)};
}

NoisyPlan noisy_plan(const Plan& plan, const NoiseEffect& e) {
  return {to_string(plan),   plan.gpus(),   e.quiet.value, e.mean.value,
          e.deviation.value, e.least.value, e.most.value,  e.loss()};
}

}  // namespace shardline::api
