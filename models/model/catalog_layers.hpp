// Kinds of layers in our YAML: attention, attentions, ffn, moe, ffns and order. README.md, "Catalogue".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/model/model.hpp"
#include "sim/base/reader.hpp"

namespace shardline::catalog {

/// One kind as the file gives it.
template <class Value>
struct Kind {
  std::string name;  // the file's own; empty where there is one kind without a name
  Value value;
  Reader at;
};

/// A kind's index and how often in a row.
using Step = std::pair<int, int>;

/// Which layer is of which kind: `first` once, then `then` again and again.
struct Order {
  std::vector<Step> first, then;
  std::optional<Reader> at;
};

/// What a file says of its layers, before it is known to be sound.
struct Layers {
  std::vector<Kind<Attention>> attentions;
  std::vector<Kind<FeedForward>> ffns;
  Order attention_order, ffn_order;
  std::optional<Reader> ffn, moe;
  int ffn_inner = 0;
  int first_dense_layers = 0;
  int drafts = 0;                            // modules of multi-token prediction
  bool one_choice = false;                   // DraftModules::one_choice
  int draft_attention = -1, draft_ffn = -1;  // their layers' kinds; -1: those of the last layer
};

/// Reads all keys about kinds of layers, and ffn_kind, ffn_bias, qk_norm and attention_bias into `model`.
/// Faults are recorded in the document.
Layers read_layers(const Reader& root, Model& model);

/// Sets the model's kinds and runs. Rules between fields that break are recorded in the document.
void apply(const Layers& layers, int count, Model& model);

/// Where the file says `field`, a path in Model ("ffns[1].experts_per_token"), and that path in the file.
std::pair<Reader, std::string> locate(const Layers& layers, const Reader& root, const Model& model,
                                      std::string_view field);

}  // namespace shardline::catalog
