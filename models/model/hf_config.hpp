// Import of Hugging Face's config.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/model/model.hpp"

namespace shardline {

/// The supported values of model_type.
std::vector<std::string> hf_model_types();

/// The names under `architectures` that go with them, each once, sorted.
std::vector<std::string> hf_architectures();

/// A model from a config.json; of a wrapper with a vision tower, its text_config. Features that change cost
/// and are not modelled (sparse or linear attention, windows in families that are not known to have them) are
/// refused; keys whose meaning is unknown here are listed in Model::notes. UserError with every fault.
Model load_hf_config(const std::filesystem::path& file);

/// As load_hf_config, from a text; `file` is what messages show, and names the model.
Model parse_hf_config(const std::string& file, const std::string& text);

}  // namespace shardline
