// Deterministic mutation of texts: inserted syntax, deleted and changed bytes, moved lines, other numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace shardline::testing {

class Mutator {
 public:
  /// `words` are inserted beside the general pieces of syntax.
  Mutator(std::uint64_t seed, const std::vector<std::string>& words) : rng_(seed), words_(words) {}

  std::string mutate(std::string text, const std::string& other) {
    const std::size_t changes = 1 + below(4);
    for (std::size_t i = 0; i < changes; ++i) change(text, other);
    return text;
  }
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(rng_() % n); }

 private:
  std::string piece() {
    static const std::vector<std::string> kPieces = {"0",
                                                     "-1",
                                                     "010",
                                                     "1e308",
                                                     "9223372036854775808",
                                                     "nan",
                                                     "null",
                                                     "~",
                                                     "{}",
                                                     "[]",
                                                     "[[",
                                                     "\"",
                                                     "'",
                                                     ": ",
                                                     "\n",
                                                     "  ",
                                                     "\t",
                                                     "&a ",
                                                     "*a",
                                                     "!!int ",
                                                     "<<: ",
                                                     "- ",
                                                     "? ",
                                                     "#",
                                                     "%",
                                                     "true",
                                                     std::string(1, '\0'),
                                                     "\xff",
                                                     "\xef\xbb\xbf",
                                                     "65536",
                                                     "131072",
                                                     "1.5",
                                                     ",",
                                                     "}",
                                                     "]"};
    const std::size_t i = below(kPieces.size() + words_.size());
    return i < kPieces.size() ? kPieces[i] : words_[i - kPieces.size()];
  }
  void change(std::string& text, const std::string& other) {
    const std::size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        text.insert(at, piece());
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
        text.insert(at, other.substr(below(other.size()), below(60)));
        break;
      case 5:
        move_line(text);
        break;
      default:
        replace_number(text, at);
        break;
    }
  }
  void move_line(std::string& text) {
    const std::size_t from = text.find('\n', below(text.size() + 1));
    if (from == std::string::npos) return;
    const std::size_t end = std::min(text.find('\n', from + 1), text.size());
    const std::string line = text.substr(from, end - from);
    if (below(2) == 0) text.erase(from, end - from);
    const std::size_t to = text.find('\n', below(text.size() + 1));
    if (to != std::string::npos) text.insert(to, line);
  }
  void replace_number(std::string& text, std::size_t at) {
    const std::size_t from = text.find_first_of("0123456789", at);
    if (from == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_not_of("0123456789", from), text.size());
    static const std::vector<std::string> kNumbers = {"0",    "1",    "2",     "3",       "7",
                                                      "4095", "4096", "16384", "67108864"};
    text.replace(from, end - from, kNumbers[below(kNumbers.size())]);
  }

  std::mt19937_64 rng_;
  const std::vector<std::string>& words_;
};

}  // namespace shardline::testing
