// Which plans a serving engine starts, by rules that were read in its source. planner/README.md [P21].
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/strategies/strategy.hpp"

namespace shardline {

/// Why an engine does not start a plan.
struct Refusal {
  std::string rule;    // "expert_layout"
  std::string says;    // the rule in a sentence, whatever the plan
  std::string text;    // what it has against this one
  std::string source;  // "vllm-project/vllm vllm/config/parallel.py:503@ee0da84ab9"
};

/// Why it runs none of a case's plans: its types or its lengths, at a key of a scenario.
struct CaseRefusal : Refusal {
  std::string key;      // "precision.kv", "models"; "tokens" for whichever key says how long requests are
  std::string instead;  // the nearest that works: "fp8 or bf16"
  std::vector<Dtype> weights =
      {};  // types that all matrices may have in place of refused ones, nearest first
};

/// Nothing where the case's engine starts the plan, or the case has no engine (bare kernels). Throws
/// UserError of an engine or a version whose rules nobody has read.
std::optional<Refusal> does_not_start(const Case& c, const Plan& plan);
std::optional<CaseRefusal> does_not_start(const Case& c);

/// Files of the case's model that its engine does not read, whatever types stand in their place: one of the
/// reasons of does_not_start().
std::optional<CaseRefusal> does_not_read(const Case& c);

/// "vLLM 0.24.0 reads these files, by kernels that nobody here has measured": of a model whose files' types
/// are not read here, under an engine (which may be none) that does_not_read() has nothing against; else
/// empty.
std::string started_unpriced(const Model& model, const EngineProfile* engine);

/// What the case's engine starts by kernels that no measurement here has, so that it has no price. Of a case
/// that it does start; throws likewise.
std::optional<CaseRefusal> has_no_price(const Case& c);

/// Nothing where the engine hands caches from servers of one plan to those of the other. Throws likewise.
std::optional<Refusal> does_not_pair(const EngineProfile& engine, const Case& c, const Plan& prefill,
                                     const Plan& decode);

/// "vLLM 0.24.0".
std::string title_of(const EngineProfile& engine);

/// Whether the engine has the feature that a strategy needs.
bool has_feature(const EngineProfile& engine, const Strategy& s);
/// Whether it runs the strategy in servers that others compute the prompts for.
bool answers_alone(const EngineProfile& engine, const Strategy& s);
/// Engines and versions that have it, of those whose rules were read: "TensorRT-LLM 1.3.0rc20"; empty: none.
std::vector<std::string> engines_with(LaunchedAs feature);

/// Ranks that share the dense networks of a plan as an engine ("vllm") starts it, which may be others than
/// the plan's.
int dense_ranks_under(const std::string& engine, const Case& c, const Plan& plan);

/// Names of the engines that have the strategy's feature, as --engine takes them: "trtllm vllm"; "none" where
/// no engine runs the strategy, whatever its flags. Not that one starts a certain plan.
std::string engine_names_of(const Strategy& s);

/// Tokens of a block of the cache, where an engine ("trtllm") has kernels for one size alone of the case's
/// model on its device; nothing where blocks are a choice.
std::optional<int> block_of(const std::string& engine, const Case& c);
/// The same where nobody says another: the engine's default.
int own_block_of(const std::string& engine, const Case& c);

/// The variable that, set to 1, lets an engine ("vllm") start lengths beyond a model's maximum.
std::string variable_for_long_context(const std::string& engine);
/// The engine's rule about requests longer than a model has positions for, with its source.
std::string length_rule(const EngineProfile& engine);
/// The engine's rule about strategies, with its source.
std::string strategy_rule(const EngineProfile& engine);
/// Of requests longer than the model has positions for: what a user has to say to start them
/// (Case::any_context), or that bare kernels are timed all the same. Nothing where they are not.
std::optional<std::string> longer_than_model(const Case& c);

}  // namespace shardline
