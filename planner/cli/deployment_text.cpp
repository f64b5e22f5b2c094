#include "planner/cli/deployment_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/cli/serve_text.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/scenario/titles.hpp"
#include "planner/search/provenance.hpp"
#include "planner/serving/served.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "planner/studies/played_cost.hpp"
#include "planner/studies/saved_question.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline::cli {

namespace {

constexpr std::size_t kShown = 5;

std::string basis_text(const api::AskedDeployment& asked, const ServiceQuestion& load) {
  const Case& c = asked.plan.study.study;
  const auto& settings = asked.question.knobs;
  const bool tokens = std::any_of(settings.begin(), settings.end(), says_step_tokens);
  const std::string& why = asked.plan.defaults.engine_why;
  const std::string cache = assumed_cache_text(c);
  return fmt::format("played request by request under {}{}: {}; {}{}; assumed: {}{}{}", title_of(*c.engine),
                     why.empty() ? "" : " (" + why + ")", load_text(load), weights_text(c), stored_text(c),
                     cache, cache.empty() ? "" : ", ", assumed_text(c, tokens));
}

std::string answer_text(const api::AskedDeployment& asked, const DeploymentAnswer& a,
                        const std::string& slo) {
  if (!a.cheapest.empty()) {
    const int gpus = a.cheapest.front().gpus();
    const std::size_t met = a.cheapest.size(), tried = met + a.certificate.beside;
    return fmt::format("{} keep{} {}; {} of {} deployment{} on as many do{}{}", gpus_text(gpus),
                       gpus == 1 ? "s" : "", slo, met, tried, tried == 1 ? "" : "s", met == 1 ? "es" : "",
                       gpus == 1 ? "" : ", and none on fewer of plans that can be played");
  }
  return fmt::format("no deployment on up to {} keeps {}; nearest:", gpus_text(asked.question.most_gpus),
                     slo);
}

// Replicas and the GPUs of each, those that prefill first: "1 x 4 + 2 x 8".
std::string gpus_of(const ServiceQuestion& q) {
  const std::string own = fmt::format("{} x {}", q.replicas, q.plan.gpus());
  return q.prefill ? fmt::format("{} x {} + {}", q.prefill->replicas, q.prefill->plan.gpus(), own) : own;
}

std::string plans_of(const ServiceQuestion& q) {
  const std::string own = sharding_text(q.plan);
  return q.prefill ? fmt::format("prompts {}, answers {}", sharding_text(q.prefill->plan), own) : own;
}

std::string table_text(const std::vector<const PlayedDeployment*>& shown) {
  std::vector<std::string> header{"#", "GPUs"};
  for (const TargetResult& t : shown.front()->answer.load.targets)
    header.push_back(fmt::format("{} {}", to_string(t.target.of), quantile_text(t.target.quantile)));
  for (const char* const column : {"goodput/s", "tokens/s/GPU", "idle"}) header.emplace_back(column);
  Table table(header);
  std::string plans;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const ServiceQuestion& q = shown[i]->answer.question;
    const ServedLoadAnswer& load = shown[i]->answer.load;
    std::vector<std::string> row{std::to_string(i + 1), gpus_of(q)};
    for (const TargetResult& t : load.targets)
      row.push_back(to_string(Seconds(t.measured), 3) + (t.met ? "" : " *"));
    row.push_back(three_digits(load.goodput));
    row.push_back(three_digits(load.output_per_s_gpu));
    row.push_back(fmt::format("{:.0f} %", 100 * load.idle));
    table.add(std::move(row));
    plans += fmt::format("  {}  {}{}{}\n", i + 1, plans_of(q), q.knobs.empty() ? "" : "  ",
                         fmt::join(q.knobs, " "));
  }
  return fitted(table) + plans;
}

// Which bound or play shows that the others miss.
std::string certificate_text(const DeploymentAnswer& a) {
  const DeploymentCertificate& c = a.certificate;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < kRuledOut; ++i)
    if (c.ruled_out[i] > 0)
      parts.push_back(fmt::format("{} by {}", c.ruled_out[i], to_string(static_cast<RuledOut>(i))));
  std::string out =
      fmt::format("certificate: {} candidates of {} plan{}{}, ", c.candidates, c.plans,
                  c.plans == 1 ? "" : "s", c.pairs > 0 ? fmt::format(" and {} pairs of plans", c.pairs) : "");
  if (c.dearer > 0) out += fmt::format("{} on more GPUs not looked at; ", c.dearer);
  out += parts.empty() ? "none misses" : fmt::format("ruled out {}", fmt::join(parts, ", "));
  return out + fmt::format("; {} requests played", c.requests);
}

// What beside its targets keeps a load from being served.
std::string unserved_text(const ServedLoadAnswer& load) {
  if (load.refused > 0)
    return fmt::format(
        "row 1: {} of {} requests are refused, as the engine would: they are longer than the model or than "
        "its KV cache",
        load.refused, load.sent);
  if (load.growth_per_s)
    return fmt::format("row 1: the queue grows by {} requests a second, as long as the load lasts",
                       three_digits(*load.growth_per_s));
  return "";
}

std::string certainty_text(const Study& study, const PlayedDeployment& first,
                           const std::optional<OtherDraws>& others) {
  const ErrorRange time = served_time_error(*study.study.engine, first.answer.step_errors);
  std::string out = fmt::format(
      "how sure (90 %): TPOT {} by prices; of TTFT nothing was measured under such a load", range_text(time));
  if (others) {
    out += fmt::format("; in {} of {} other draws of the same load (--seed) row 1 keeps them", others->kept,
                       others->draws);
    if (others->stops > 0) out += fmt::format(", the engine ends with an error in {}", others->stops);
    if (others->kept + others->stops < others->draws)
      out += fmt::format(", else it misses by up to {:.2g} %: more GPUs keep them more surely",
                         100 * (others->used - 1));
  }
  if (api::may_miss(study, first.answer)) out += "; row 1 may miss its target, as prices may be off";
  return out;
}

// Of the first row, and of the others their joules alone.
std::string costs_text(const api::AskedDeployment& asked, const std::vector<const PlayedDeployment*>& shown,
                       std::size_t width) {
  const ServiceAnswer& first = shown.front()->answer;
  std::string out;
  if (const auto cost = api::cost_per_million(asked, first))
    out +=
        wrapped(fmt::format("costs: {:.3g} per million tokens of answers at {:g} per GPU-hour, idle ones too",
                            *cost, asked.plan.question.gpu_hour),
                width, "  ");
  std::string energy = energy_text(asked.plan.study, first);
  if (energy.empty()) return out;
  std::vector<std::string> others;
  for (const PlayedDeployment* d : shown) {
    const auto joules = played_cost(asked.plan.study, d->answer).joules_per_token;
    others.push_back(joules ? cost_digits(joules->value) : "-");
  }
  others.erase(others.begin());
  if (!others.empty()) energy += fmt::format("; J per token of the other rows: {}", fmt::join(others, ", "));
  return out + wrapped(energy, width, "  ");
}

}  // namespace

std::string deployment_text(const api::AskedDeployment& asked, const DeploymentAnswer& a,
                            const std::string& slo, const std::string& saved, std::size_t width,
                            bool everything) {
  const Study& study = asked.plan.study;
  std::string out =
      wrapped(question_text(asked.plan.question, asked.plan.defaults) + "; " + slo, width, "  ");
  std::vector<const PlayedDeployment*> shown;
  for (const PlayedDeployment& d : a.cheapest) shown.push_back(&d);
  if (shown.size() > kShown) shown.resize(kShown);
  if (a.nearest) shown.push_back(&*a.nearest);
  // How many requests there are is said by the default or by the trace.
  const ServiceQuestion& load = shown.empty() ? asked.question.load : shown.front()->answer.question;
  out +=
      wrapped(basis_text(asked, load), width, "  ") + "\n" + wrapped(answer_text(asked, a, slo), width, "  ");
  if (!shown.empty()) {
    out += table_text(shown);
    if (a.nearest) {
      const ServedLoadAnswer& nearest = a.nearest->answer.load;
      if (!std::all_of(nearest.targets.begin(), nearest.targets.end(),
                       [](const TargetResult& t) { return t.met; }))
        out += "  *: misses the target\n";
      if (const std::string why = unserved_text(nearest); !why.empty()) out += wrapped(why, width, "  ");
    }
    out += "\n" + wrapped(certainty_text(study, *shown.front(), a.others), width, "  ");
    if (shown.front()->answer.accepted)
      out += wrapped("row 1: " + drafts_line(shown.front()->answer), width, "  ");
  }
  if (!shown.empty()) out += costs_text(asked, shown, width);
  out += wrapped(certificate_text(a), width, "  ");
  if (!a.not_played.empty())
    out += wrapped(fmt::format("{} plan{} that the engine starts cannot be played{}", a.not_played.size(),
                               a.not_played.size() == 1 ? "" : "s", everything ? ":" : ": -v says why"),
                   width, "  ");
  if (everything) {
    std::map<std::string, std::vector<std::string>> of_reason;
    for (const auto& [plan, why] : a.not_played) of_reason[why].push_back(to_string(plan));
    for (const auto& [why, plans] : of_reason)
      out += "  " + wrapped(fmt::format("{}: {}", why, fmt::join(plans, " ")), width - 2, "    ");
  }
  if (!a.no_pairs.empty())
    out += wrapped("prompts and answers on GPUs of their own were not looked at: " + a.no_pairs, width, "  ");
  for (const auto& knobs : a.knobs_refused)
    out += wrapped(fmt::format("no plan has {}", fmt::join(knobs, " ")), width, "  ");
  if (shown.empty()) return out;
  const std::string file = saved.empty() ? api::kUnsavedQuestion : saved;
  if (!saved.empty())
    out += saved_text(saved, "",
                      api::saved_load_options(asked, a, slo) + settings_beside(asked.plan.question), width);
  out += wrapped(saved.empty() ? "next, after the same with --save " + file + ":" : "next:", width, "  ");
  const ServiceQuestion& best = shown.front()->answer.question;
  return out + wrapped_command(
                   api::serve_command(best, slo, file, settings_beside(asked.plan.question)) + " -o out",
                   width, "  ");
}

}  // namespace shardline::cli
