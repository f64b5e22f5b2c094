// Prefills under context parallelism that gather caches where an index chooses keys. planner/README.md [C22].
#pragma once

#include "planner/layers/context_step.hpp"

namespace shardline {

/// [C22] Every rank gathers the index keys of all tokens, chooses for its own queries among all of them,
/// gathers latents (of blocks keys and values), and attends to what it has chosen. Layers that take an
/// earlier one's choice gather no index keys. Follows SGLang 0.5.14 (sgl-project/sglang 49e384ce9d,
/// python/sglang/srt: layers/attention/dsa/dsa_indexer.py:554, models/deepseek_v2.py:1923,
/// layers/utils/cp_utils.py:310), which reorders what it gathers.
void attend_gathered_choice(ContextStep& s);
/// [P5] Its buffers.
Bytes gathered_choice_buffers(const Case& c, const Attention& a, const Plan& p);

}  // namespace shardline
