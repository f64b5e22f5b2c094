// Internal to hf_config.cpp and hf_families.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model/model.hpp"
#include "sim/base/reader.hpp"

namespace shardline::hf {

/// One import: the text's root, the model in the making, and which keys were understood.
struct Import {
  Reader root;
  Model m;
  std::set<std::string, std::less<>> understood = {};
  std::vector<std::function<void()>> rules = {};  // between fields; run when every field is sound

  /// The value of `key` unless it is missing or null.
  std::optional<Reader> find(std::string_view key) {
    understood.emplace(key);
    auto at = root.find(key);
    if (at && at->is_null()) at.reset();
    return at;
  }
  Reader need(std::string_view key) {
    understood.emplace(key);
    return root.at(key);
  }
  int number(const Reader& at, std::int64_t highest, std::int64_t lowest = 1) {
    return static_cast<int>(at.integer(lowest, highest));
  }
  int need_number(std::string_view key, std::int64_t highest, std::int64_t lowest = 1) {
    return number(need(key), highest, lowest);
  }
  std::optional<int> find_number(std::string_view key, std::int64_t highest, std::int64_t lowest = 1) {
    const auto at = find(key);
    return at ? std::optional(number(*at, highest, lowest)) : std::nullopt;
  }
  /// The same field under its current and its older name.
  int need_number(std::string_view key, std::string_view older, std::int64_t highest);
  bool flag(std::string_view key, bool when_missing = false) {
    const auto at = find(key);
    return at ? at->boolean() : when_missing;
  }
  /// A fault if `key` is set to anything but null, false, 0 or an empty list.
  void refuse(std::string_view key, std::string_view why);
};

/// One model_type, the architectures that go with it, and its reader.
struct Family {
  const char* model_type;
  std::array<std::string_view, 2> architectures;  // empty: none
  void (*read)(Import&);
};

std::span<const Family> families();

}  // namespace shardline::hf
