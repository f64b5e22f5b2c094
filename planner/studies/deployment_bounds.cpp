#include "planner/studies/deployment_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "planner/requests/group_times.hpp"

namespace shardline {

std::string_view to_string(RuledOut by) {
  switch (by) {
    case RuledOut::ttft:
      return "TTFT of a prompt alone";
    case RuledOut::tpot:
      return "TPOT of one request";
    case RuledOut::prompts:
      return "work of all prompts";
    case RuledOut::answers:
      return "work of all answers";
    case RuledOut::early:
      return "a play that broke a target too often";
    case RuledOut::whole:
      return "a play to its end";
  }
  return "";
}

namespace {

// Ranks are rounded down, and one more is left out: a bound of fewer requests is a bound.
std::size_t least_rank(double quantile, std::size_t n) {
  const double kept = std::floor(quantile * static_cast<double>(n)) - 1;
  return kept > 1 ? static_cast<std::size_t>(kept) - 1 : 0;
}

std::vector<StageTime> in_stages(const StageTimes& times, const StepBatch& batch) {
  std::vector<StageTime> out(times.count());
  times.of(batch, out);
  return out;
}

std::uint32_t u32(std::int64_t tokens) { return static_cast<std::uint32_t>(tokens); }

}  // namespace

DeploymentBounds::DeploymentBounds(const RequestService& service, const ServiceKnobs& knobs,
                                   const OfferedLoad& load, const ServiceQuestion& question, Seconds path,
                                   BoundedWork work)
    : service_(service),
      question_(question),
      groups_(std::max(1, question.plan.dp)),
      yields_(1 + question.plan[kDrafts]),
      budget_(knobs.step_tokens()),
      found_(load.shared && knobs.finds()),
      path_(path),
      last_(load.arrivals.empty() ? 0 : load.arrivals.back()),
      prompts_(load.input) {
  for (std::size_t i = 0; i < load.output.size(); ++i) {
    if (load.output[i] > 1) with_answer_.push_back(load.input[i]);
    answers_.push_back(load.output[i] - 1);
  }
  for (auto* of : {&prompts_, &with_answer_, &answers_}) std::sort(of->begin(), of->end());
  const double shortest = prompts_.empty() ? 1 : static_cast<double>(prompts_.front());
  const double tokens = static_cast<double>(knobs.blocks()) * knobs.block();
  // Text that requests share is held once.
  at_once_ = found_ ? knobs.requests()
                    : std::clamp<std::int64_t>(static_cast<std::int64_t>(tokens / shortest) + 1, 1,
                                               static_cast<std::int64_t>(knobs.requests()));
  look_at_work(work);
  look_at_targets();
}

// By how much later the next step ends at least: as if all other groups had nothing to do. [R36] In a
// pipeline steps pass the last stage one after the other, whose time holds nothing of the host.
Seconds DeploymentBounds::step(const StepBatch& batch) const {
  if (const StageTimes* stages = service_.times().stages()) return in_stages(*stages, batch).back().busy;
  const StepBatch nothing;
  std::vector<const StepBatch*> groups(static_cast<std::size_t>(groups_), &nothing);
  groups.front() = &batch;
  return step_of_groups(service_.times(), groups) * kNoShorter;
}

// From its beginning to its tokens.
Seconds DeploymentBounds::pass(const StepBatch& batch) const {
  const StageTimes* stages = service_.times().stages();
  if (stages == nullptr) return step(batch);
  Seconds out;
  for (const StageTime& s : in_stages(*stages, batch)) out += s.busy + s.handed;
  return out;
}

// Parts of a prompt are in different stages at once: the first stage has one after the other.
Seconds DeploymentBounds::prompt_alone(std::int64_t tokens) const {
  // All but the last token may be found.
  if (found_) return pass({0, 0, 0, {{1, u32(tokens - 1)}}});
  const StageTimes* stages = service_.times().stages();
  Seconds out(0);
  for (std::int64_t past = 0; past < tokens; past += budget_) {
    const StepBatch part{0, 0, 0, {{u32(std::min(budget_, tokens - past)), u32(past)}}};
    const bool last = past + budget_ >= tokens;
    out += last || stages == nullptr ? pass(part) : in_stages(*stages, part).front().occupied;
  }
  return out;
}

// A latency is the difference of two times of a long play, which are rounded.
constexpr double kRounding = 1 - 1e-9;

Seconds DeploymentBounds::least_ttft(double quantile) const {
  if (prompts_.empty()) return Seconds(0);
  return (path_ + prompt_alone(prompts_[least_rank(quantile, prompts_.size())])) * kRounding;
}

Seconds DeploymentBounds::least_tpot(double quantile) const {
  if (with_answer_.empty()) return Seconds(0);
  const std::int64_t cached = with_answer_[least_rank(quantile, with_answer_.size())];
  StepBatch one;
  one.decodes = 1;
  one.cached = static_cast<std::uint64_t>(cached);
  one.longest = u32(cached);
  return pass(one) * (kRounding / yields_);
}

// The least seconds of a group per token: a step of more than n tokens takes no less than one of n, so that
// between two numbers that are looked at none is shorter than the smaller one's time over the larger one.
void DeploymentBounds::look_at_work(BoundedWork work) {
  constexpr double kApart = 1.1;
  if (prompts_.empty()) return;
  const auto least = [&](std::int64_t most, auto time) {
    double out = std::numeric_limits<double>::infinity();
    for (std::int64_t n = 1; n <= most;) {
      const std::int64_t next = std::max(n + 1, static_cast<std::int64_t>(static_cast<double>(n) * kApart));
      out = std::min(out, time(n).value / static_cast<double>(std::min(next, most + 1) - 1));
      n = next;
    }
    return out;
  };
  const std::int64_t shortest = prompts_.front();
  // The pairs of a step are fewest where its prompts are shortest, none of which has a beginning in cache.
  if (!found_ && work != BoundedWork::answers)
    per_prompt_token_ = least(budget_, [&](std::int64_t tokens) {
      StepBatch batch;
      constexpr std::int64_t kMostParts = 512;
      const std::int64_t part = std::max(shortest, (tokens + kMostParts - 1) / kMostParts);
      if (part > shortest) return Seconds(0);  // too many to list: no bound
      for (std::int64_t left = tokens; left > 0; left -= part)
        batch.prompts.push_back({u32(std::min(left, part)), 0});
      return step(batch);
    });
  if (work == BoundedWork::prompts) return;
  per_answer_token_ = least(at_once_, [&](std::int64_t requests) {
    StepBatch batch;
    batch.decodes = u32(requests);
    batch.cached = static_cast<std::uint64_t>(requests) * static_cast<std::uint64_t>(shortest);
    batch.longest = u32(shortest);
    return step(batch) * (1 / yields_);
  });
}

namespace {

// Of the shortest ones that a target may not leave out.
double sum_of(const std::vector<std::int64_t>& of, double share) {
  const double kept = std::floor(share * static_cast<double>(of.size())) - 1;
  const auto n = static_cast<std::ptrdiff_t>(std::max(0.0, kept));
  return std::accumulate(of.begin(), of.begin() + n, 0.0);
}

}  // namespace

// The closest of several targets of one kind.
void DeploymentBounds::look_at_targets() {
  std::optional<LatencyTarget> first, token;
  const auto closest = [](std::optional<LatencyTarget>& to, const LatencyTarget& t) {
    if (!to || t.most < to->most) to = t;
  };
  for (const LatencyTarget& t : question_.targets) {
    if (t.of == Latency::ttft || t.of == Latency::e2e) closest(first, t);
    if (t.of == Latency::tpot) closest(token, t);
  }
  if (!first) return;
  prompt_work_ = per_prompt_token_ * sum_of(prompts_, first->quantile);
  prompts_by_ = last_ + first->most.value;
  if (!token || answers_.empty()) return;
  // Requests that keep both targets have their last token by then.
  answer_work_ = per_answer_token_ * sum_of(answers_, first->quantile + token->quantile - 1);
  answers_by_ = prompts_by_ + token->most.value * static_cast<double>(answers_.back());
}

// A prompt alone, or the step of one request, is too long: for any number of replicas.
std::optional<RuledOut> DeploymentBounds::late_alone(bool prompts, bool answers) const {
  for (const LatencyTarget& t : question_.targets) {
    const bool first = t.of == Latency::ttft || t.of == Latency::e2e;
    if (prompts && first && least_ttft(t.quantile) > t.most) return RuledOut::ttft;
    if (answers && t.of == Latency::tpot && least_tpot(t.quantile) > t.most) return RuledOut::tpot;
  }
  return std::nullopt;
}

bool DeploymentBounds::late_prompts(int replicas) const {
  return prompt_work_ > static_cast<double>(replicas) * groups_ * prompts_by_;
}

bool DeploymentBounds::late_answers(int replicas) const {
  return answer_work_ > static_cast<double>(replicas) * groups_ * answers_by_;
}

std::optional<RuledOut> DeploymentBounds::rules_out(int replicas) const {
  if (const auto alone = late_alone(true, true)) return alone;
  if (late_prompts(replicas)) return RuledOut::prompts;
  if (late_answers(replicas)) return RuledOut::answers;
  return std::nullopt;
}

std::optional<RuledOut> DeploymentBounds::rules_out_prompts(int replicas) const {
  if (const auto alone = late_alone(true, false)) return alone;
  return late_prompts(replicas) ? std::optional(RuledOut::prompts) : std::nullopt;
}

std::optional<RuledOut> DeploymentBounds::rules_out_answers(int replicas) const {
  if (const auto alone = late_alone(false, true)) return alone;
  return late_answers(replicas) ? std::optional(RuledOut::answers) : std::nullopt;
}

}  // namespace shardline
