#include "sim/base/shell_word.hpp"

#include <algorithm>

namespace shardline {

std::string shell_word(std::string_view text) {
  const std::string_view plain = "@%+=:,./-_";
  // zsh puts the path of a program in place of a word that begins with "=".
  const bool safe =
      !text.empty() && text.front() != '=' && std::all_of(text.begin(), text.end(), [&](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               plain.find(c) != std::string_view::npos;
      });
  if (safe) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_operand(std::string_view text) {
  return shell_word(text.starts_with('-') ? "./" + std::string(text) : std::string(text));
}

std::string shell_message(std::string_view text) {
  constexpr std::string_view kRead = "$`\\\"'}<>~";
  std::string out;
  for (const char c : text) {
    if (kRead.find(c) != kRead.npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace shardline
