// Multi-token prediction in a step: which layer drafts, what a step yields. planner/README.md [P29].
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/cost/error_terms.hpp"
#include "models/ir/schedule.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// The kinds of the model's layers that its draft modules have: of Model::attentions and Model::ffns.
struct DraftLayer {
  int attention = 0, ffn = 0;
};
/// Nothing where the model has no modules, or modules of a kind that none of its layers has.
std::optional<DraftLayer> draft_layer(const Model& model);

/// Why the case has no steps with the plan's drafts; nothing where it has, or the plan has none.
std::optional<std::string> no_drafts(const Case& c, const Plan& plan);

/// Whether the plan's step copies the states of recurrent layers behind the last draft that is accepted.
bool accepts_states(const Case& c, const Plan& plan);

/// What plans of a pair of which one drafts are told.
inline constexpr const char* kDraftsOfBoth =
    "drafts are of both servers of a pair, or of neither: the module's cache of a prompt is built by the one "
    "that prefills";

/// Tokens that a step yields of each request that decodes in the mean: 1, with drafts what is accepted of
/// them beside it [P28]; 1 of steps in which none does. The plan passes no_drafts().
double tokens_per_step(const Case& c, const Plan& plan);

/// What the form of accepted drafts makes times per token of such steps be off by [P28]; nothing of steps
/// without drafts, and where the mean of so many is given.
ErrorTerms acceptance_errors(const Case& c, const Plan& plan);

/// What the case's engine takes for granted, a line each: of drafts, if the case has an
/// acceptance of any, or that there are none, and its profile's. Needs c.engine.
std::vector<std::string> assumed_of_engine(const Case& c);

/// Passes of the module behind the first, each over one token of a request: 1 less than the plan's drafts;
/// none beside prompts under an engine that leaves them to the step that decodes (SGLang).
int later_passes(const Case& c, const Plan& plan);

/// The case of such a pass beside prompts: one token of every request of the step, those of prompts behind
/// their own.
Case drafting_case(const Case& c);

/// The case whose matrices have the types of the modules that draft (Precision::drafts).
Case module_case(const Case& c);

/// Whether passes behind the first attend to what the first has chosen: the model's module says so, and the
/// engine does it; bare kernels do.
bool takes_first_choice(const Case& c);
/// The case of such a pass: the module's kind of attention takes a choice that is there, as layers that share
/// one do, and neither projects nor scores for one of its own.
Case choice_taking_case(const Case& c);

/// What enters a module: the norms of hidden state and embedding, and the product [rows, 2H] x [2H, H] of
/// both, whole on every rank (vllm model_executor/models/deepseek_mtp.py, DeepSeekMultiTokenPredictorLayer,
/// eh_proj, at v0.24.0). Of n residual streams two products, [rows, H] x [H, H] of the embedding and
/// [n rows, H] x [H, H] of the streams, and their sum. Rows are the view's: with its drafts those that were
/// verified and those of prompts, else one of a request.
void add_draft_input(ScheduleBuilder& b, const Case& c, const Plan& view);

/// Elements of those products' matrices, of one module, and what type they are: the activations', of several
/// streams that of the module's attention.
double draft_input_weights(const Model& model);
ModuleType draft_input_type(const Case& c);

}  // namespace shardline
