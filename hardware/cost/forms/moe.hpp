// What a rank's experts do in one layer, and how long it takes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "hardware/cost/forms/form.hpp"

namespace shardline {

/// Tokens that a kernel of experts passes over, beside the rows that it computes. group: all, before they are
/// routed, and their pairs. received: those that an exchange brought to the rank. none: rows arrive sorted by
/// expert. group_tiles: as group, and the rows of a tile go by the pairs of the group too, as if all were the
/// rank's.
enum class MoeTokens : std::uint8_t { group, received, none, group_tiles };
inline bool of_group(MoeTokens t) { return t == MoeTokens::group || t == MoeTokens::group_tiles; }

struct MoeLoad {
  double tokens = 0;             // that the kernel passes over
  double passed = 0;             // (token, expert) pairs that it passes over, other ranks' included
  double hidden = 0, width = 0;  // of the model, of one expert on this rank
  double held = 1;               // experts of this rank
  double rows = 0;               // its (token, expert) pairs
  double active = 1;             // its experts with at least one
};

/// How a kernel of experts stores its weights, and its arithmetic, by the name that measurements give it.
struct ExpertTypes {
  std::string_view name;
  Dtype stored, math;
};
/// null: no type of ours. Kernels called fp8 have one scale per tensor, which the checkpoint holds (static).
const ExpertTypes* expert_types(std::string_view measured);

MoeTokens tokens_of(const FormContext& context);

/// [H44] Rows of a tile of group_tiles: the power of two from 8 to 256 that is not below the group's pairs
/// per expert of the rank.
double tile_by_group(const MoeLoad& load);

/// [H44] Seconds of the whole layer; p in the order of the form's parameters, `uneven` not looked at.
double moe_seconds(const MoeLoad& load, const FormContext& context, std::span<const double> p);
void moe_coordinates(const MoeLoad& load, double* out);

}  // namespace shardline
