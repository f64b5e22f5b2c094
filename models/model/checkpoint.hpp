// In which types a published checkpoint stores its matrices: config.json's quantization_config and
// hf_quant_config.json beside it. models/README.md, "Hugging Face's config.json".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/ir/dtype.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

struct Model;

/// How a matrix is stored, and the arithmetic of its products: another one where only weights are quantised.
struct MatrixType {
  Dtype weights = Dtype::bf16, math = Dtype::bf16;
  constexpr MatrixType() = default;
  constexpr MatrixType(Dtype stored) : weights(stored), math(arithmetic_of(stored)) {}
  constexpr MatrixType(Dtype stored, Dtype computed) : weights(stored), math(computed) {}
  friend constexpr bool operator==(MatrixType, MatrixType) = default;
};

/// Of the modules that draft (multi-token prediction).
struct DraftMatrices {
  MatrixType attention, out_proj, dense_ffn, experts, shared;
  bool operator==(const DraftMatrices&) const = default;
};

/// The type of most matrices of each class. Routers are never quantised by the tools that write these files.
struct Checkpoint {
  MatrixType attention, out_proj;  // of attention its projections but the output projection
  MatrixType dense_ffn;
  MatrixType experts, shared;  // routed experts, and those that every token visits
  Dtype router = Dtype::bf16;  // computed as it is stored
  MatrixType head;             // the LM head: an embedding beside it is in BF16
  std::optional<Dtype> kv;     // nothing: the engine's choice
  /// That wrote the files: gptq, awq, modelopt, fp8 ... Of compressed-tensors with how the first group's
  /// weights share scales, which an engine may read some of alone: compressed-tensors/channel. Of types that
  /// are not read, too.
  std::string method = {};
  std::string assumed = {};  // nobody named it: "deepseek-ai/DeepSeek-R1" or why none; else empty
  /// Of a description that is not read, what it is and where: then no type here is the file's. Else empty.
  std::string unread = {};
  std::optional<MatrixType> index = {};      // of sparse attention; nothing: as attention
  std::optional<DraftMatrices> drafts = {};  // nothing: as the model's own
  bool zero_points = false;                  // of GPTQ, whose sym is false; AWQ always has them
  bool operator==(const Checkpoint&) const = default;
};

/// Modules that draft in the types of the model's own matrices, which Checkpoint::drafts leaves unsaid.
DraftMatrices drafts_as_model(const Checkpoint& c);

/// `quantization_config` of a config.json, or the root of a hf_quant_config.json: methods fp8, fbgemm_fp8,
/// mxfp4, gptq, awq, compressed-tensors and modelopt. Nothing where the method is not read, of which a note
/// says so and which, or `unread`, where it is given, which ("the method bitsandbytes"); notes also say where
/// matrices of one class differ. Faults are recorded in the document.
std::optional<Checkpoint> read_checkpoint(const Reader& reader, const Model& model,
                                          std::vector<std::string>& notes, std::string* unread = nullptr);

}  // namespace shardline
