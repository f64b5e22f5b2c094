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
/// and are not modelled are refused; keys whose meaning is unknown here are listed in Model::notes. `as`: the
/// model_type to read it as, whatever it says itself; then what would be refused is listed among the keys.
/// UserError with every fault; of an unknown model_type, with all that `as` may be.
Model load_hf_config(const std::filesystem::path& file, const std::string& as = "");

/// Of a model whose file describes a quantisation that is not read: what and where, "types of NAME not read:
/// the method bitsandbytes at config.json:1:830"; else empty. Its checkpoint is then in BF16 for want of
/// types.
std::string unread_types(const Model& model);

/// As load_hf_config, from a text; `file` is what messages show, and names the model.
Model parse_hf_config(const std::string& file, const std::string& text, const std::string& as = "");

}  // namespace shardline
