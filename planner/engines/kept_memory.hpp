// What an engine keeps of memory from weights and caches. planner/README.md [P18].
#pragma once

#include <algorithm>
#include <vector>

#include "sim/base/reader.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// Of what a server is made, as far as it matters here.
struct KeptOf {
  int gpus = 1;                 // of it, attention groups included
  int groups = 1;               // of attention
  long long step_tokens = 0;    // budget of its steps
  long long requests = 0;       // of a group that its largest graph is of
  bool latents = false;         // MLA
  bool prompt_graphs = false;   // steps with prompts have graphs, too
  bool shares_context = false;  // ranks that share sequences
};

struct KeptMemory {
  /// Sizes that graphs are captured for: evenly spaced up to `to`, behind those before.
  struct Sizes {
    long long step = 1, to = 0;
  };

  Bytes fixed, step_token, request, gpu;       // once, and for each of them
  long long least_tokens = 0;                  // of a step that it reckons with
  Bytes group_request, group_request_of_many;  // attention DP: for each request and group
  long long many = 0;                          // requests beyond which it is the latter
  Bytes prompt_graph;                          // for each graph of steps with prompts, without MLA
  std::vector<Sizes> prompt_sizes;             // which there are, up to the budget of a step
  Bytes latent_prompts;                        // all of them, under MLA
  Bytes least;                                 // of all the above
  bool holds_activations = false;              // they are in the above
  Bytes context_of_one, context_of_several;    // beside it: CUDA and its messages, of one GPU and of more

  /// Without the context: what the engine sets aside.
  Bytes set_aside(const KeptOf& of) const;
  Bytes context(const KeptOf& of) const { return of.gpus > 1 ? context_of_several : context_of_one; }
  /// Whether it is one size for all servers, which no formula of the engine's gives.
  bool one_size() const {
    return step_token == Bytes(0) && request == Bytes(0) && gpu == Bytes(0) && context_of_one == Bytes(0) &&
           fixed > Bytes(0);
  }
  /// Where nothing else is set aside: activations take what they need.
  KeptMemory context_alone() const;
};

/// A size, or a mapping of the above.
KeptMemory read_kept(const Reader& r);

}  // namespace shardline
