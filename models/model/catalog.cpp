#include "models/model/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include "models/model/catalog_layers.hpp"
#include "models/model/hf_config.hpp"
#include "sim/base/error.hpp"
#include "sim/base/file_name.hpp"
#include "sim/base/folder.hpp"
#include "sim/base/harmless.hpp"
#include "sim/base/reader.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

int count(const Reader& at, std::int64_t highest) { return static_cast<int>(at.integer(1, highest)); }

bool optional_flag(const Reader& map, std::string_view key) {
  const auto at = map.find(key);
  return at && at->boolean();
}

template <class E>
E optional_choice(const Reader& map, std::string_view key, const std::vector<std::string>& names) {
  const auto at = map.find(key);
  return at ? static_cast<E>(at->one_of(names)) : E{};
}

std::string required_text(const Reader& at) {
  std::string text = at.text();
  if (at.is_scalar() && text.empty()) at.fault(at.path() + " is empty");
  return text;
}

/// The name of a model is also that of the folder of its results.
std::string required_name(const Reader& at) {
  std::string name = required_text(at);
  const auto why = not_a_file_name(name);
  if (why && !name.empty() && !is_harmful(name))
    at.fault(fmt::format("{} {}", at.path(), *why), {"expected a plain file name"});
  return name;
}

Model read_model(const Document& document) {
  const Reader root = document.root();
  if (root.is_map() && root.has("models") && root.has("strategies"))
    throw UserError({Diagnostic{root.location(),
                                "this is a scenario, not a model",
                                {fmt::format("shardline sweep \"{}\"", root.location().file)}}});
  Model m;
  m.name = required_name(root.at("name"));
  m.source = required_text(root.at("source"));
  if (const auto name = root.find("architecture")) m.architecture = required_text(*name);
  if (const auto notes = root.find("notes")) {
    for (const Reader& note : notes->items()) m.notes.push_back(required_text(note));
  }
  const int layers = count(root.at("layers"), limits::kLayers);
  m.hidden = count(root.at("hidden"), limits::kWidth);
  m.vocab = count(root.at("vocab"), limits::kVocab);
  m.max_context = root.at("max_context").tokens(1, limits::kContext);
  m.norm = optional_choice<NormKind>(root, "norm", {"rms", "layer"});
  m.tied_embeddings = optional_flag(root, "tied_embeddings");
  m.parallel_attention_ffn = optional_flag(root, "parallel_attention_ffn");
  m.sandwich_norms = optional_flag(root, "sandwich_norms");
  if (const auto streams = root.find("residual_streams")) m.residual.streams = count(*streams, 1024);
  if (const auto block = root.find("residual_block")) m.residual.block = count(*block, limits::kLayers);
  if (const auto vision = root.find("vision_parameters"))
    m.vision_parameters = vision->integer(1, std::int64_t{1} << 40);
  const catalog::Layers kinds = catalog::read_layers(root, m);
  root.no_other_keys();
  document.finish();  // rules between fields need sound fields
  catalog::apply(kinds, layers, m);
  document.finish();
  for (const ModelFault& fault : check(m)) {
    const auto [at, path] = catalog::locate(kinds, root, m, fault.field);
    at.fault(path + ": " + fault.what);
  }
  document.finish();
  return m;
}

bool is_yaml(const fs::path& path) { return path.extension() == ".yaml" || path.extension() == ".yml"; }

[[noreturn]] void throw_unknown(const std::string& name, const fs::path& catalog_dir) {
  Diagnostic d;
  d.what = fmt::format("unknown model {}", name);
  d.details = expected_one_of(name, catalog_names(catalog_dir));
  d.details.push_back("or the path of a .yaml file, a config.json or a folder that holds one");
  throw UserError(std::vector<Diagnostic>{std::move(d)});
}

}  // namespace

std::vector<std::string> catalog_names(const fs::path& catalog_dir) {
  std::error_code error;
  const std::vector<fs::path> entries = folder_entries(catalog_dir, error);
  if (error) {
    throw UserError(
        fmt::format("cannot read the model catalogue {}: {}", catalog_dir.string(), error.message()));
  }
  std::vector<std::string> names;
  for (const fs::path& entry : entries) {
    if (entry.extension() == ".yaml") names.push_back(entry.stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Model parse_model(const std::string& file, const std::string& text) {
  return read_model(Document::parse(file, text));
}

Model load_model(const std::string& name_or_path, const fs::path& catalog_dir, const std::string& as) {
  const fs::path path(name_or_path);
  const bool plain_name = path.filename() == path && !is_yaml(path) && path.extension() != ".json";
  const auto of_config = [&](const char* what) {
    if (!as.empty())
      throw UserError(fmt::format("{}: {} is not read as {}: only a config.json is", name_or_path, what, as));
  };
  if (plain_name) {
    const auto names = catalog_names(catalog_dir);
    if (std::binary_search(names.begin(), names.end(), name_or_path)) {
      of_config("a model of the catalogue");
      return read_model(Document::load(catalog_dir / (name_or_path + ".yaml")));
    }
  }
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (!fs::exists(path / "config.json", error)) {
      throw UserError(fmt::format("{}: the folder holds no config.json", name_or_path));
    }
    return load_hf_config(path / "config.json", as);
  }
  if (plain_name) throw_unknown(name_or_path, catalog_dir);
  if (!fs::exists(path, error)) throw UserError(fmt::format("{}: no such file or folder", name_or_path));
  if (is_yaml(path)) {
    of_config("a .yaml");
    return read_model(Document::load(path));
  }
  if (path.extension() == ".json") return load_hf_config(path, as);
  throw UserError(
      fmt::format("{}: a model is a .yaml file, a .json file or a folder with a config.json", name_or_path));
}

}  // namespace shardline
