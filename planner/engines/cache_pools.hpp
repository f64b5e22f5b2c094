// How an engine lays out the caches of models whose layers are of several kinds. planner/README.md [P3],
// [P30].
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hardware/cost/kernel_list.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

/// What an engine keeps of a request in layers whose queries see a window or a chunk alone. The default is
/// what they may still see.
struct WindowCaches {
  bool of_some = false;         // of models with the architectures below alone: others keep all tokens
  std::vector<std::string> of;  // first names under `architectures` of a config.json
  // These layers have a pool of their own, of at most as many tokens as that of the others; a part of them
  // that its launch files name.
  bool split = false;
  long long late = 0;  // tokens of a request that are dropped late
  bool piece = false;  // the last pieces of a request's prompt stay while it is answered
  int steps = 0;       // steps with prompts under way: whatever they compute is kept meanwhile
};

/// What an engine keeps of a request in layers that have a state.
struct StateCaches {
  bool told = false;
  // States of a running request: the one that it works on, and those behind prefixes of others. Models of
  // `buffered_of` have places for states on their way to those, fewer where kernels wait for the host.
  int plain = 1, buffered = 1, buffered_waiting = 1;
  std::vector<std::string> buffered_of;
  bool of_all_stages = false;  // each stage sets aside as much as all stages need
};

/// Of models whose layers are of several kinds.
struct CachePools {
  WindowCaches windows;
  StateCaches states;
  // Layers of all kinds take pages of one size, in groups of as many layers each: a page holds a multiple of
  // so many tokens (under MLA of the latter). 0: every kind has pages of its own.
  long long page = 0, latent_page = 0;
  // Tokens of a block of compressed attention, of which all that a layer keeps takes pages of a few sizes
  // [P34]. 0: the engine's pools of such layers are not known.
  long long compressed_block = 0;
  // Whether layers that take an earlier one's choice have room for index keys, too.
  bool index_everywhere = false;
  // The cache of sparse attention under MLA (DSA) where nobody says its type, on these devices; on others
  // that of the residual stream, as all caches.
  std::map<Architecture, Dtype> sparse_latents;

  /// Whether layers with a window or chunks keep all tokens of models with this architecture.
  bool keeps_windows_whole(const std::string& architecture) const;
  /// Whether states of such a model have places on their way to the prefix cache.
  bool buffers_states(const std::string& architecture) const;
};

/// `windows`, `states`, `pages`, `indexes`, `sparse_latents` and `compressed` of a profile's `memory`, each
/// of which may be absent.
CachePools read_cache_pools(const Reader& memory);

}  // namespace shardline
