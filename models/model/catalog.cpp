#include "models/model/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>
#include <system_error>

#include "models/model/catalog_layers.hpp"
#include "models/model/hf_config.hpp"
#include "models/model/hf_import.hpp"
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

std::string letters_and_digits(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// The longest model_type that a name begins with, signs apart: mixtral of "Mixtral-8x7B"; empty: none.
std::string model_type_begun(std::string_view name) {
  const std::string letters = letters_and_digits(name);
  std::string out;
  for (const hf::Family& f : hf::families()) {
    const std::string_view type = f.model_type;
    if (type.size() > out.size() && letters.starts_with(letters_and_digits(type))) out = type;
  }
  return out;
}

// Of these neither weights nor a configuration are published, whatever the rest of the name is.
bool is_closed(std::string_view name) {
  constexpr std::array<std::string_view, 7> kClosed{"gpt-3.5", "gpt-4",  "gpt-5", "gpt4",
                                                    "chatgpt", "claude", "gemini"};
  std::string low(name);
  for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(kClosed.begin(), kClosed.end(), [&](auto prefix) { return low.starts_with(prefix); });
}

// "did you mean qwen3-32b?", of a beginning of several names the first of them; empty: none is near.
std::string near_text(const std::string& name, const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 3;
  const std::vector<std::string> lines = expected_one_of(name, names);
  if (lines.empty() || !lines.back().starts_with("did you mean")) return "";
  std::string text = lines.back();
  std::size_t end = 0;
  for (std::size_t i = 0; i < kShown && end != std::string::npos; ++i) end = text.find(", ", end + 1);
  if (end == std::string::npos) return text;
  const auto others = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), ',');
  return fmt::format("{} or {} other{}?", text.substr(0, end), others, others == 1 ? "" : "s");
}

// Short: the catalogue has more names than anybody reads who has mistyped one.
[[noreturn]] void throw_unknown(const std::string& name, const fs::path& catalog_dir) {
  const std::vector<std::string> names = catalog_names(catalog_dir);
  const std::string near = near_text(name, names);
  constexpr const char* kGiven = "hf download OWNER/NAME config.json --local-dir DIR, then ./DIR";
  Diagnostic d{{}, fmt::format("unknown model {}", name), {}};
  if (!near.empty()) {
    d.details = {near, fmt::format("or another of {} (shardline list models), or its config.json: {}",
                                   names.size(), kGiven)};
    throw UserError(std::vector<Diagnostic>{std::move(d)});
  }
  d.details = {
      fmt::format("the catalogue has none like it ({} models: shardline list models)", names.size())};
  const std::string type = model_type_begun(name);
  if (is_closed(name))
    d.details.emplace_back("it is published without weights and config.json: its sizes are not known");
  else
    d.details.push_back(fmt::format("give its config.json{}: {}",
                                    type.empty() ? "" : ", whose model_type " + type + " is read", kGiven));
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
    std::error_code error;  // a folder of just this name goes before a name in other capitals
    const auto name = fs::exists(path, error) && !std::binary_search(names.begin(), names.end(), name_or_path)
                          ? std::nullopt
                          : name_in_any_case(name_or_path, names);
    if (name) {
      of_config("a model of the catalogue");
      return read_model(Document::load(catalog_dir / (*name + ".yaml")));
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
