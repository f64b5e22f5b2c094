#include "sim/base/yaml_scalar.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shardline {

namespace {

// Letters and digits of ASCII, whatever the locale.
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_plain(char c) {
  return is_letter(c) || (c >= '0' && c <= '9') || std::string_view("-_./").find(c) != std::string_view::npos;
}

}  // namespace

std::string yaml_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string yaml_word(std::string_view text) {
  const bool begins = !text.empty() && (is_letter(text.front()) || text.starts_with("./"));
  const bool nothing = text == "null" || text == "Null" || text == "NULL";  // a node without a value
  return begins && !nothing && std::all_of(text.begin(), text.end(), is_plain) ? std::string(text)
                                                                               : yaml_quoted(text);
}

}  // namespace shardline
