// Published checkpoints, by the types that their matrices are stored in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/model/checkpoint.hpp"
#include "planner/plan/case.hpp"

namespace shardline {

/// The repository on Hugging Face of the case's model whose experts (of a dense model, its FFN) are stored as
/// the case says; empty: none is known here.
std::string checkpoint_of(const Case& c);
/// Whether an engine loads the checkpoint only if it may run the repository's own code (Kimi's tokenizer and
/// configuration: vllm-project/recipes pull request 116, NVIDIA-NeMo/Megatron-Bridge issue 2881; model card
/// of moonshotai/Kimi-K2-Instruct).
bool runs_repository_code(const Case& c);

/// "types of google/gemma-3-27b-it not read: BF16 assumed", where nobody here has read in which types
/// checkpoint_of() stores its matrices (the second part where they are no choice of the user's); else empty.
std::string types_not_read(const Case& c);

/// Which matrices the published checkpoint of the case (checkpoint_of) stores in another type than the case
/// has them: "attention bf16, output projection bf16"; empty: none, or no such checkpoint is known.
std::string stored_otherwise(const Case& c);

/// The type that files of checkpoint_of() name for the cache; nothing: they leave it to the engine, nobody
/// here has read it, or no checkpoint is known.
std::optional<Dtype> checkpoint_cache(const Case& c);
/// The checkpoint of these types, where nobody here has read which cache its files ask for; else empty.
std::string cache_not_read(const Case& c);

/// A repository on Hugging Face with a checkpoint of a model whose types are known here.
struct PublishedCheckpoint {
  std::string repository;
  Dtype type = Dtype::bf16;  // that it is named by
  bool whole = true;         // of all its quantised matrices
  Checkpoint types = {};
};
/// Those of a model of the catalogue, its maker's first.
std::vector<PublishedCheckpoint> published_checkpoints(const Model& model);

/// What an engine loads where nobody names a checkpoint: that of the model's maker, BF16 where nobody here
/// has read its types. Its `assumed` names it or, of the latter, says so ("types of OWNER/NAME not read: BF16
/// assumed"); the cache is left to the engine (all three: the residual stream's type; of DeepSeek-V4 FP8).
Checkpoint checkpoint_by_default(const Model& model);

/// Whether Checkpoint::assumed names a checkpoint, and is not the text of one whose types were not read.
bool names_checkpoint(const std::string& assumed);

/// Whether a model's name is that of a repository on Hugging Face, "owner/name", and of no file or folder
/// here.
bool looks_like_repository(const std::string& name);

/// The catalogue's model whose configuration a repository on Hugging Face has
/// ("meta-llama/Llama-3.1-70B-Instruct", also of quantised siblings), with the types of that checkpoint (as
/// checkpoint_by_default() where they were not read). Throws UserError with the nearest that is known, or
/// where the types of one are not.
Model published_model(const std::string& repository, const std::filesystem::path& catalog_dir);

/// Repositories whose configuration is known and whose own name begins with `name`, capitals aside:
/// "meta-llama/Llama-3.3-70B-Instruct" of "llama-3.3-70b"; of a whole name that one. Of fewer than six
/// letters none.
std::vector<std::string> repositories_begun_by(const std::string& name);

/// "attention fp8, experts fp4, head bf16": what a checkpoint must be stored as for the plan to be the one
/// that was priced.
std::string stored_types(const Case& c);

}  // namespace shardline
