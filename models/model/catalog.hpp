// Model descriptions from the catalogue, from our YAML and from Hugging Face's config.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/model/model.hpp"

namespace shardline {

/// Names of the catalogue's models (file names without .yaml), sorted. UserError if the folder cannot be
/// read.
std::vector<std::string> catalog_names(const std::filesystem::path& catalog_dir);

/// A model by catalogue name, or from a path: a .yaml file, a config.json, or a folder that holds one. A
/// catalogue name wins over a folder of the same name in the working directory. UserError with every fault of
/// the file, or with the names in the catalogue. `as`: the model_type to read a config.json as
/// (hf_config.hpp); UserError for anything else.
Model load_model(const std::string& name_or_path, const std::filesystem::path& catalog_dir,
                 const std::string& as = "");

/// Our YAML from a text; `file` is what messages show. UserError with every fault.
Model parse_model(const std::string& file, const std::string& text);

}  // namespace shardline
