#include "sim/base/file_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace shardline {

namespace {

constexpr std::size_t kLongest = 128;  // bytes

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
// A backslash separates folders where a result may be copied to.
bool is_separator(char c) { return c == '/' || c == '\\'; }

// FNV-1a: the same on every machine, unlike std::hash.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::optional<std::string> not_a_file_name(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name == "." || name == "..") return fmt::format("is {}", name);
  if (std::any_of(name.begin(), name.end(), is_control)) return "holds a control character";
  const auto separator = std::find_if(name.begin(), name.end(), is_separator);
  if (separator != name.end()) return fmt::format("holds a {}", *separator);
  if (name.size() > kLongest)
    return fmt::format("has {} bytes; at most {} are allowed", name.size(), kLongest);
  return std::nullopt;
}

std::string file_name_of(std::string_view text) {
  if (!not_a_file_name(text)) return std::string(text);
  if (text.empty()) return "unnamed";
  const bool only_dots = text == "." || text == "..";
  std::string out;
  for (const char c : text) {
    if (only_dots || is_control(c) || is_separator(c))
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  if (out.size() <= kLongest) return out;
  const std::string end = fmt::format("-{:016x}", hash_of(text));
  return out.substr(0, kLongest - end.size()) + end;
}

}  // namespace shardline
