// What there is to choose from.
#include "planner/api/convert_list.hpp"

#include "planner/engines/launchable.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/strategies/columns.hpp"
#include "planner/studies/listing.hpp"

namespace shardline::api {

namespace {

std::vector<ListedModel> models() {
  std::vector<ListedModel> out;
  for (const shardline::ListedModel& m : list_models(shipped_catalogs()))
    out.push_back({m.name, m.model.source, m.parameters, m.active, m.model.layers(), m.model.max_context,
                   m.kv_per_token.value, m.kv_local.value, attention_text(m.model)});
  return out;
}

std::vector<ListedSystem> systems() {
  std::vector<ListedSystem> out;
  for (const auto& [name, s] : list_systems(shipped_catalogs()))
    out.push_back({name, s.summary, s.gpus(), s.device.memory.value, s.device.memory_bandwidth.value,
                   calibration_text(s)});
  return out;
}

std::vector<ListedStrategy> strategies_listed() {
  std::vector<ListedStrategy> out;
  for (const Strategy* s : strategies()) {
    ListedStrategy& listed = out.emplace_back(
        ListedStrategy{s->name, s->summary, s->source, {}, s->exact, engines_with(s->launched_as)});
    for (const auto& [kind, name] :
         {std::pair{StepKind::decode, "decode"}, std::pair{StepKind::prefill, "prefill"},
          std::pair{StepKind::mixed, "mixed"}}) {
      if (s->runs(kind)) listed.phases.emplace_back(name);
    }
  }
  return out;
}

std::vector<ListedOption> options() {
  std::vector<ListedOption> out;
  for (const OptionRow& row : option_rows()) out.push_back({row.key, row.values, row.strategies, row.help});
  return out;
}

std::vector<ListedScenario> scenarios() {
  std::vector<ListedScenario> out;
  for (const auto& [name, summary] : list_scenarios()) out.push_back({name, summary});
  return out;
}

std::vector<ListedAcceptance> acceptance() {
  std::vector<ListedAcceptance> out;
  for (const PublishedAcceptance& c : load_published_acceptance(shipped_catalogs().acceptance())) {
    ListedAcceptance& listed = out.emplace_back(ListedAcceptance{c.name(),
                                                                 c.model,
                                                                 c.method,
                                                                 c.thinking,
                                                                 c.form.p,
                                                                 c.form.g,
                                                                 c.most_drafts,
                                                                 c.median_error,
                                                                 c.largest_error,
                                                                 {},
                                                                 {},
                                                                 c.source});
    for (const MeasuredAcceptance& point : c.points) {
      listed.drafts.push_back(point.k);
      listed.tokens_per_step.push_back(point.mean);
    }
  }
  return out;
}

}  // namespace

void nothing_called(const std::string& what, std::vector<std::string> hints) {
  const std::vector<std::string> names{"models",  "systems",   "strategies",
                                       "options", "scenarios", "acceptance"};
  const std::string several = what.ends_with("y") ? what.substr(0, what.size() - 1) + "ies" : what + "s";
  std::vector<std::string> details = expected_one_of(what, names);
  if (const auto one = name_in_any_case(several, names); one && details.size() == 1)
    details.push_back("did you mean " + *one + "?");
  details.insert(details.end(), hints.begin(), hints.end());
  throw UserError({shardline::Diagnostic{{}, "nothing to list is called " + what, std::move(details)}});
}

ListResult listed(const std::string& what) {
  ListResult out;
  out.what = what;
  if (what == "models")
    out.models = models();
  else if (what == "systems")
    out.systems = systems();
  else if (what == "strategies")
    out.strategies = strategies_listed();
  else if (what == "options")
    out.options = options();
  else if (what == "scenarios")
    out.scenarios = scenarios();
  else if (what == "acceptance")
    out.acceptance = acceptance();
  else
    nothing_called(what);
  return out;
}

}  // namespace shardline::api
