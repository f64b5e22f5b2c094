#include "sim/base/option_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace shardline {

std::optional<std::string> name_here(std::span<const Meaning> others, std::span<const std::string> names,
                                     const std::string& name) {
  std::string plain = name;
  for (char& c : plain) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto has = [&](std::string_view option) {
    return std::find(names.begin(), names.end(), option) != names.end();
  };
  if (has(plain)) return "its name here is " + plain;
  for (const Meaning& m : others) {
    const std::string_view meant = m.meaning;
    if (plain != m.name) continue;
    if (!meant.starts_with("-")) return std::string(meant);
    if (has(meant.substr(0, meant.find(' ')))) return fmt::format("its name here is {}", meant);
  }
  return std::nullopt;
}

}  // namespace shardline
