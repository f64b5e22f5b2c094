#include "planner/scenario/speculative_keys.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "planner/engines/draft_rules.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/scenario/load_at.hpp"

namespace shardline::scenario_parts {

std::shared_ptr<const AcceptanceCurve> read_speculative(const Document& document, const Reader& root,
                                                        StepKind kind, const std::vector<Model>& models,
                                                        const EngineProfile* engine,
                                                        const Catalogs& catalogs) {
  const auto at = root.find("speculative");
  if (!at) return nullptr;
  if (kind == StepKind::prefill) at->fault("speculative is for phase: decode, whose steps verify drafts");
  const auto drafts = [](const Model& m) { return draft_layer(m).has_value(); };
  if (!models.empty() && std::none_of(models.begin(), models.end(), drafts))
    at->fault("no listed model has a module that drafts and is timed",
              {"expected a model with drafts, or no speculative"});
  // A sweep would look at no plan with drafts and not say so.
  const auto lacks = [&](const Model& m) { return !drafts(m) || no_module_of(*engine, m).has_value(); };
  if (engine != nullptr && std::any_of(models.begin(), models.end(), drafts) &&
      std::all_of(models.begin(), models.end(), lacks)) {
    const auto one = std::find_if(models.begin(), models.end(), drafts);
    at->fault(no_module_of(*engine, *one).value_or("no drafts"),
              {"expected another model or engine, or no speculative"});
  }
  const Reader acceptance = at->at("acceptance");
  at->no_other_keys();
  std::optional<AcceptanceCurve> curve;
  if (!acceptance.is_scalar())
    curve = read_acceptance(document, acceptance);
  else
    curve = load_at(acceptance,
                    [&](const std::string& file) { return acceptance_named(file, catalogs.acceptance()); });
  return curve ? std::make_shared<const AcceptanceCurve>(std::move(*curve)) : nullptr;
}

}  // namespace shardline::scenario_parts
