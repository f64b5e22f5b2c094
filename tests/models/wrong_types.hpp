// A value of a config.json in turn replaced by those of each other type, and the fault that each must be.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model/hf_config.hpp"
#include "models/model/hf_import.hpp"
#include "sim/base/error.hpp"

namespace shardline::testing {

using Json = nlohmann::ordered_json;

enum class Holds : std::uint8_t {
  number,
  real,
  flag,
  text,
  map,
  numbers,          // a list
  texts,            // a list
  list,             // refused whatever it holds
  blocks,           // a list of mappings
  number_or_list,   // moe_layer_freq: of all layers, or one for each
  text_or_numbers,  // moe_layers_enum: "3,4,5", or a list
  flag_or_text,     // use_bidirectional_attention: "vision"
  text_or_map,      // kv_cache_scheme
};

/// Values of each other type; of a list also elements that are none of it.
inline std::vector<Json> wrong(Holds holds) {
  const Json map = {{"a", 1}}, texts = Json::array({"x"}), numbers = Json::array({1});
  switch (holds) {
    case Holds::number:
      return {"7", true, 1.5, numbers, map};
    case Holds::real:
      return {"7", true, numbers, map};
    case Holds::flag:
      return {"true", "false", 7, 0, numbers, Json::array(), map};
    case Holds::text:
      return {7, true, false, texts, map};
    case Holds::map:
      return {7, 0, "x", "", true, false, numbers, Json::array()};
    case Holds::numbers:
      return {7, "1", true, map, texts, Json::array({1.5}), Json::array({numbers}), Json::array({map})};
    case Holds::texts:
      return {7, "x", true, map, numbers, Json::array({true}), Json::array({texts}), Json::array({map})};
    case Holds::list:
      return {7, "x", true, map};
    case Holds::blocks:
      return {7, "x", true, map, numbers, texts, Json::array({numbers})};
    case Holds::number_or_list:
      return {"7", true, 1.5, map};
    case Holds::text_or_numbers:
      return {7, true, map, texts};
    case Holds::flag_or_text:
      return {"true", "false", 7, texts, map};
    case Holds::text_or_map:
      return {7, true, texts};
  }
  return {};
}

inline std::vector<Diagnostic> faults_of(const Json& config) {
  try {
    parse_hf_config("t.json", config.dump(1));
  } catch (const UserError& e) {
    return {e.diagnostics().begin(), e.diagnostics().end()};
  }
  return {};
}

/// The path of a pointer as messages have it: text_config.block_configs[0].ffn of "/text_config/...".
inline std::string path_of(const Json::json_pointer& at) {
  std::vector<std::string> parts;
  for (Json::json_pointer p = at; !p.empty(); p.pop_back()) parts.insert(parts.begin(), p.back());
  std::string out;
  for (const std::string& part : parts) {
    const bool index = part.find_first_not_of("0123456789") == std::string::npos;
    out += index ? "[" + part + "]" : (out.empty() ? "" : ".") + part;
  }
  return out;
}

/// Where the value at `at` begins in dump(1): found by putting a mark in its place.
inline int line_of(Json config, const Json::json_pointer& at) {
  config[at] = "\x1f";
  const std::string text = config.dump(1);
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(text.find("\\u001f"));
  return 1 + static_cast<int>(std::count(text.begin(), end, '\n'));
}

/// Whether a key is refused, a list whatever it holds, unless a family reads it.
inline bool refused_whole(const std::string& key, const Json& value) {
  const auto refusals = hf::refusals();
  return value.is_array() &&
         std::ranges::any_of(refusals, [&](const hf::Refusal& r) { return r.key == key; });
}

/// A fault at the value, or at an element of it, that names it and says what was expected and found.
inline void expect_refused(Json config, const Json::json_pointer& at, const Json& value) {
  const int line = line_of(config, at);
  config[at] = value;
  const int last = line + static_cast<int>(std::ranges::count(value.dump(1), '\n'));
  const std::string path = path_of(at);
  std::string all;
  for (const Diagnostic& d : faults_of(config)) {
    all += to_string(d) + "\n";
    const bool says =
        d.what.starts_with(path) &&
        ((d.what.find(": expected ") != std::string::npos && d.what.find(", found ") != std::string::npos) ||
         (d.what.find(": unknown name ") != std::string::npos && !d.details.empty()) ||
         (value.is_array() && d.what.find(" entries for ") != std::string::npos) ||
         refused_whole(at.back(), value));
    if (says && d.where.key.starts_with(path) && d.where.line >= line && d.where.line <= last &&
        d.where.column > 1)
      return;
  }
  ADD_FAILURE() << path << ": " << value.dump() << " is not refused in lines " << line << " to " << last
                << ":\n"
                << all;
}

}  // namespace shardline::testing
