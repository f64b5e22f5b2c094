#include "planner/scenario/speculative_keys.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "planner/layers/drafts.hpp"
#include "planner/scenario/load_at.hpp"

namespace shardline::scenario_parts {

std::shared_ptr<const AcceptanceCurve> read_speculative(const Document& document, const Reader& root,
                                                        StepKind kind, const std::vector<Model>& models,
                                                        bool by_engine) {
  const auto at = root.find("speculative");
  if (!at) return nullptr;
  if (kind != StepKind::decode) at->fault("speculative is for phase: decode, whose steps verify drafts");
  if (by_engine)
    at->fault("speculative is of bare kernels so far: what engines do around drafts is not modelled",
              {"expected engine: ideal"});
  const auto drafts = [](const Model& m) { return draft_layer(m) && !has_recurrence(m); };
  if (!models.empty() && std::none_of(models.begin(), models.end(), drafts))
    at->fault("no listed model has a module that drafts and is timed",
              {"expected a model with drafts, or no speculative"});
  const Reader acceptance = at->at("acceptance");
  at->no_other_keys();
  std::optional<AcceptanceCurve> curve;
  if (!acceptance.is_scalar())
    curve = read_acceptance(document, acceptance);
  else
    curve = load_at(acceptance, [&](const std::string& file) { return load_acceptance(file); });
  return curve ? std::make_shared<const AcceptanceCurve>(std::move(*curve)) : nullptr;
}

}  // namespace shardline::scenario_parts
