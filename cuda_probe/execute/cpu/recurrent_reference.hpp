// Linear attention by the delta rule as it is defined, token by token: what every split of its heads and of a
// prompt has to reproduce.
#pragma once

#include "cuda_probe/execute/core/tensors.hpp"

namespace shardline {

/// Sizes of one layer's linear attention; none without key heads.
struct RecurrenceDefinition {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 0;
  bool channel_decay = false;  // decays per channel of a key, and a gate by the logistic function
  // Mamba-2: key heads are groups, nothing is corrected or normed but the outputs of a group, gated before.
  bool added = false;
};

/// Random inputs of all tokens (channels, decays, betas, gates, conv_weight), and from them state and
/// attention_output, gated. `t.first_row` is set. Gated DeltaNet: arXiv 2412.06464, Equation 10; Kimi Delta
/// Attention: arXiv 2510.26692, Equation 1; normed queries and keys, and the gated norm, as transformers
/// models/qwen3_next/modeling_qwen3_next.py (torch_recurrent_gated_delta_rule, Qwen3NextRMSNormGated).
/// Mamba-2: arXiv 2405.21060, Equation 1 with decays exp(step A), and
/// models/nemotron_h/modeling_nemotron_h.py (NemotronHMamba2Mixer, MambaRMSNormGated); without the
/// convolution's bias.
void set_recurrence(const RecurrenceDefinition& d, std::uint64_t seed, Tensors<double>& t);

}  // namespace shardline
