// Settings and knobs that change nothing of a play.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <variant>

#include "planner/search/evaluate.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/serving/plan_steps.hpp"
#include "planner/studies/idle_settings.hpp"
#include "planner/studies/knob_tables.hpp"
#include "planner/studies/request_service.hpp"
#include "planner/studies/served_pair.hpp"
#include "planner/studies/service_knobs.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline {

namespace {

bool equal(double x, double y) {
  constexpr double kAlike = 1e-9;
  return std::abs(x - y) <= kAlike * std::max(std::abs(x), std::abs(y));
}

// What a scheduler asks of its engine: steps of few and of many requests, short and long, and of a prompt.
std::vector<StepBatch> looked_at() {
  std::vector<StepBatch> out;
  for (const auto& [requests, tokens] : {std::pair{1U, 512U}, {1U, 16384U}, {32U, 4096U}, {256U, 1024U}}) {
    StepBatch step;
    step.decodes = requests;
    step.cached = std::uint64_t{requests} * tokens;
    step.longest = tokens;
    out.push_back(step);
    step.prompts.push_back({2048, 0});
    out.push_back(step);
  }
  return out;
}

// Of one server: how long its steps take, and what it has room for.
bool same_server(const Study& a, const Study& b, const Plan& plan, const std::vector<std::string>& knobs,
                 const LoadLengths& lengths, PairRole role) {
  const bool half = role != PairRole::none;
  const auto of = [half](const Study& s) { return half ? half_of_pair(s.study) : s.study; };
  const auto knobs_on = [&](const Study& s) {
    return half ? pair_knobs(s.study, plan, role, knobs, lengths)
                : service_knobs(s.study, plan, knobs, lengths.mean);
  };
  const Case with = of(a), without = of(b);
  if (check_plan(with, plan) != check_plan(without, plan)) return false;
  const ServiceKnobs x = knobs_on(a), y = knobs_on(b);
  if (x.blocks() != y.blocks() || x.block() != y.block() || x.longest() != y.longest()) return false;
  const PlanStepTimes first(with, plan, a.sweep().search.all_reduce),
      second(without, plan, b.sweep().search.all_reduce);
  const std::vector<StepBatch> steps = looked_at();
  return std::all_of(steps.begin(), steps.end(), [&](const StepBatch& step) {
    return equal(first.of(step).value, second.of(step).value);
  });
}

}  // namespace

std::vector<Diagnostic> idle_in_play(const Study& study, const ServiceQuestion& q,
                                     const std::vector<std::string>& settings,
                                     const std::function<Study(const std::vector<std::string>&)>& without,
                                     const std::function<bool(const Study&)>& same_plans) {
  const LoadLengths lengths{std::max(2LL, q.input + q.output), q.input};
  const int drafts = q.plan[kDrafts];
  std::vector<Diagnostic> all = idle_settings(
      settings, !study.study.system.calibration.empty(), [&](const std::vector<std::string>& others) {
        const Study other = without(others);
        if (same_plans && !same_plans(other)) return false;
        const ServedRequest &x = study.study.served, &y = other.study.served;
        const auto accepted = [&](const Study& s) {
          return drafts > 0 && s.study.acceptance ? s.study.acceptance->at(drafts).mean : 0.0;
        };
        if (x.input != y.input || x.output != y.output || !equal(accepted(study), accepted(other)) ||
            !equal(study.study.engine->host.path.value, other.study.engine->host.path.value))
          return false;
        const PairRole role = q.prefill ? PairRole::decodes : PairRole::none;
        if (!same_server(study, other, q.plan, q.knobs, lengths, role)) return false;
        return !q.prefill || q.prefill->on ||
               same_server(study, other, q.prefill->plan, q.prefill->knobs, lengths, PairRole::prefills);
      });
  if (!same_plans) std::erase_if(all, [](const Diagnostic& d) { return says_plans(d.where.source_line); });
  return all;
}

std::vector<Diagnostic> idle_knob_notes(const ServiceAnswer& a) {
  const auto idle = [](const ServiceKnobs& knobs, const std::vector<std::string>& given, PairRole role) {
    return std::visit([&](const auto& k) { return idle_knobs(k, given, role); }, knobs.of);
  };
  std::vector<Diagnostic> out;
  const auto note = [&](const IdleKnob& k, const char* option, const char* server) {
    const std::string name = argument_name(option) + " " + k.name;
    out.push_back(
        {{},
         k.needs.empty()
             ? fmt::format("{} changes nothing: a server that {} for another does not read it", name, server)
             : fmt::format("{} changes nothing without {}", name, k.needs),
         {}});
  };
  const ServiceQuestion& q = a.question;
  const std::vector<IdleKnob> of_prompts =
      q.prefill ? idle(*a.prefill_knobs, q.prefill->knobs, PairRole::prefills) : std::vector<IdleKnob>{};
  // Given for both pools at once it may be read in one.
  const bool of_both = q.prefill && std::string_view(q.prefill->knobs_option) == "knob";
  for (const IdleKnob& k : idle(a.knobs, q.knobs, q.prefill ? PairRole::decodes : PairRole::none)) {
    const auto same = [&](const IdleKnob& other) { return other.name == k.name; };
    if (!of_both || std::any_of(of_prompts.begin(), of_prompts.end(), same)) note(k, "knob", "decodes");
  }
  if (of_both) return out;
  for (const IdleKnob& k : of_prompts) note(k, q.prefill->knobs_option, "computes prompts");
  return out;
}

}  // namespace shardline
