// Steps that draft, as an engine runs them around its kernels: which graphs they have, what steps with
// prompts do. planner/README.md [P29].
#pragma once

#include <string>
#include <vector>

#include "sim/base/reader.hpp"

namespace shardline {

/// The part `drafts` of an engine's profile.
struct DraftSteps {
  bool told = false;  // whether the profile says anything of drafts
  /// What sizes of graphs count where every request has 1 + k new tokens. requests: as many requests,
  /// whatever k is (SGLang, TensorRT-LLM). tokens: each size of the profile is rounded up to a multiple of 1
  /// + k, if that is no larger than the largest (vLLM).
  enum class Counts : unsigned char { requests, tokens };
  Counts counts = Counts::requests;
  std::vector<int> graphs;  // of requests, ascending, in place of those without drafts; empty: the same
  bool all_beside_prompts = true;  // steps with prompts run all passes of the module, else the first alone
  /// Where states lie that recurrent layers leave behind each token that is verified. places: in the pool,
  /// and the next step reads the accepted one's (vLLM). copied: in a cache of their own, from which the
  /// accepted one is copied (SGLang, TensorRT-LLM). unsaid: such layers have no drafts.
  enum class States : unsigned char { unsaid, places, copied };
  States states = States::unsaid;
  /// Whether passes behind the first take its choice where the model says so (DraftModules::one_choice): a
  /// release that reads the key, and whose reuse engages; else each pass scores and chooses for itself.
  bool one_choice = false;
  std::string assumes;  // what is not measured, printed with every answer that has drafts
};

/// Reads the mapping `drafts`.
DraftSteps read_draft_steps(const Reader& at);

/// Sizes that a reader gives as `sizes`, ascending, and behind them evenly spaced ones (`then`).
std::vector<int> read_graph_sizes(const Reader& at);

/// Requests of the graph that is replayed for `requests` with `each` new tokens: the least that holds them;
/// 0: none does. `graphs`: the profile's sizes.
long long graph_of_drafts(const DraftSteps& steps, const std::vector<int>& graphs, long long requests,
                          long long each);

}  // namespace shardline
