// The knobs of the engine that serves requests on a plan: its defaults for the device, and what memory has
// room for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"
#include "planner/requests/cluster.hpp"
#include "planner/requests/draft_law.hpp"
#include "planner/requests/scheduler.hpp"
#include "planner/requests/sglang_scheduler.hpp"
#include "planner/requests/trtllm_scheduler.hpp"
#include "planner/requests/vllm_scheduler.hpp"
#include "planner/studies/knob_text.hpp"

namespace shardline {

/// Of one engine, under its own names; and what they say alike.
struct ServiceKnobs {
  std::variant<VllmKnobs, SglangKnobs, TrtllmKnobs> of;

  std::uint32_t step_tokens() const;  ///< of prompts in a step, at most (vLLM, TensorRT-LLM: of all)
  std::uint32_t requests() const;     ///< that decode at once
  std::uint32_t block() const;        ///< tokens of a block of the KV cache
  std::uint32_t blocks() const;       ///< of each attention group
  /// Of layers with windows, where they have a pool of their own [R22]; else 0.
  std::uint32_t window_blocks() const;
  std::uint32_t longest() const;  ///< tokens of a prompt and its answer
  bool finds() const;             ///< whether text that is cached is found
};

/// What steps of the plan yield, by the case's acceptance [P28]; no drafts of a plan without.
DraftLaw draft_law(const Case& c, const Plan& plan, std::uint64_t seed);

/// A scheduler with an empty cache, of a plan whose steps yield by `law`. Throws UserError where the engine
/// would not start.
std::unique_ptr<Scheduler> scheduler_of(const ServiceKnobs& knobs, const DraftLaw& law);

/// Why requests cannot be played one by one on a plan; nothing where they can. `prompts`: it has them alone,
/// in a pool of their own.
std::optional<std::string> no_play(const Case& c, const Plan& plan, bool prompts = false);

/// Throws UserError with that reason, and a plan of as many GPUs that can where its attention groups cannot.
void require_play(const Case& c, const Plan& plan, bool prompts = false);

/// The attention groups of a server of the plan, each with a scheduler, and how its engine deals requests to
/// them.
ReplicaGroups groups_of(const ServiceKnobs& knobs, const Plan& plan);

/// The knobs of a server of the plan, of each attention group: the engine's defaults for the device, the
/// blocks that memory has room for beside weights when requests are `mean_tokens` long, and the longest
/// request. `overrides`: "max_num_seqs=256", given with `option`. Throws UserError of names and values, of
/// options that such a server of a pair, or of none, does not have, and where not one request fits. There is
/// a scheduler of the engine (no_play).
ServiceKnobs service_knobs(const Case& c, const Plan& plan, const std::vector<std::string>& overrides,
                           long long mean_tokens, PairRole role = PairRole::none,
                           const char* option = "knob");

/// The same where the engine is vLLM.
VllmKnobs vllm_knobs(const Case& c, const Plan& plan, const std::vector<std::string>& overrides,
                     long long mean_tokens, const KnobsGiven& given = {});

/// What is said of a play: of a plan with a batch, which is not kept; of knobs that turn the engine's work
/// ahead off, where its host times were fitted beside the kernels and steps are priced so.
std::vector<Diagnostic> play_notes(const Case& c, const Plan& plan, const ServiceKnobs& knobs);

}  // namespace shardline
