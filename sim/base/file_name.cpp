#include "sim/base/file_name.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

namespace shardline {

namespace {

constexpr std::size_t kLongest = 128;  // bytes

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
// A backslash separates folders where a result may be copied to.
bool is_separator(char c) { return c == '/' || c == '\\'; }

// Names that Windows keeps for devices, with any ending: a folder of results may be copied there.
bool is_device(std::string_view name) {
  std::string stem(name.substr(0, name.find('.')));
  std::transform(stem.begin(), stem.end(), stem.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const char* const one : {"CON", "PRN", "AUX", "NUL"}) {
    if (stem == one) return true;
  }
  const bool numbered = stem.size() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT"));
  return numbered && stem[3] >= '1' && stem[3] <= '9';
}

// So are called what is not yet finished of an output folder (reports/staged_folder.cpp) and of a file
// (reports/atomic_file.cpp).
bool is_unfinished(std::string_view name) { return name.starts_with(".shardline-"); }

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
  if (is_device(name)) return fmt::format("is {}, a device on Windows", name);
  if (is_unfinished(name)) return "begins with .shardline-, as what is not yet written";
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
  std::string out = is_device(text) ? "_" : "";
  const bool dot_first = is_unfinished(text);
  for (const char c : text) {
    if (only_dots || is_control(c) || is_separator(c) || (dot_first && out.empty()))
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  if (out.size() <= kLongest) return out;
  const std::string end = fmt::format("-{:016x}", hash_of(text));
  return out.substr(0, kLongest - end.size()) + end;
}

}  // namespace shardline
