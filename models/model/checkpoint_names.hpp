// Internal to checkpoint.cpp: what files call the matrices of a model, family by family.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {
struct Model;
}

namespace shardline::checkpoint {

/// What a matrix is counted as; an index and latents have no class of their own in a Checkpoint.
enum class MatrixPart : std::uint8_t { attention, out_proj, dense, experts, shared, head, index, latents };

/// One matrix and all names that files may give it: below several roots ("model.", "model.language_model."),
/// alone and in what engines fuse it into (qkv_proj, gate_up_proj). Of routed experts the first one stands
/// for all of its layer.
struct Matrix {
  MatrixPart part;
  bool draft = false;  // of a module of multi-token prediction
  std::vector<std::string> names;
};

/// All matrices that have a type, layer by layer in the order of the file's own numbers, then drafts, then
/// the head.
std::vector<Matrix> matrices_of(const Model& model);

/// Whether a name or pattern is of modules that have no type here whatever a file says: norms, embeddings,
/// routers, convolutions, towers of images and sound.
bool without_type(std::string_view pattern);

/// The same name with every number of an expert replaced by 0: "layers.3.mlp.experts.17.up_proj".
std::string of_first_expert(std::string_view name);
/// Whether that changes it.
bool has_expert(std::string_view name);

}  // namespace shardline::checkpoint
