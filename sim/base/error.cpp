#include "sim/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "sim/base/harmless.hpp"
#include "sim/base/nearest.hpp"

namespace shardline {
namespace {

constexpr int kWidest = 100;  // terminal cells of source shown

/// One character of a source line, ready to print: a part of that line, or a literal.
struct Glyph {
  std::string_view text;
  int cells = 1;
};

bool within(char32_t c, char32_t low, char32_t high) { return c >= low && c <= high; }

/// Controls, and the bidirectional marks that could make a message read differently from the file.
bool harmful(char32_t c) {
  return c < 0x20 || within(c, 0x7f, 0x9f) || within(c, 0x200e, 0x200f) || within(c, 0x2028, 0x202e) ||
         within(c, 0x2066, 0x2069) || c == 0xfeff;
}

int cells_of(char32_t c) {
  if (within(c, 0x300, 0x36f) || within(c, 0x200b, 0x200d) || within(c, 0xfe00, 0xfe0f)) return 0;
  const bool wide = within(c, 0x1100, 0x115f) || within(c, 0x2e80, 0xa4cf) || within(c, 0xac00, 0xd7a3) ||
                    within(c, 0xf900, 0xfaff) || within(c, 0xfe30, 0xfe6f) || within(c, 0xff00, 0xff60) ||
                    within(c, 0x1f300, 0x1faff) || within(c, 0x20000, 0x3fffd);
  return wide ? 2 : 1;
}

bool is_plain(char c) { return c >= 0x20 && c < 0x7f; }

/// Decodes one UTF-8 character at the front of `text` and removes it; a bad byte becomes '?'.
Glyph take(std::string_view& text) {
  if (is_plain(text.front())) {
    const std::string_view one = text.substr(0, 1);
    text.remove_prefix(1);
    return {one, 1};
  }
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  char32_t c = length == 1 ? first : first & (0xffU >> (length + 1));
  bool good = length == 1 || (first >= 0xc2 && first <= 0xf4 && text.size() >= length);
  for (std::size_t i = 1; good && i < length; ++i) {
    good = (byte(i) & 0xc0) == 0x80;
    c = (c << 6) | (byte(i) & 0x3fU);
  }
  const std::string_view bytes = text.substr(0, good ? length : 1);
  text.remove_prefix(bytes.size());
  if (c == '\t' && good) return {" ", 1};
  if (!good || harmful(c)) return {"?", 1};
  return {bytes, cells_of(c)};
}

/// The source line, cut around the caret where it is too wide, and the caret below it.
std::string source_and_caret(const Location& where) {
  std::vector<Glyph> line;
  line.reserve(where.source_line.size());
  for (std::string_view rest = where.source_line; !rest.empty();) line.push_back(take(rest));
  const int first = std::max(where.source_column, 1);
  const int caret = std::clamp(where.column - first, 0, static_cast<int>(line.size()));
  const auto width = [&](int begin, int end) {
    int cells = 0;
    for (int i = begin; i < end; ++i) cells += line[static_cast<std::size_t>(i)].cells;
    return cells;
  };
  int begin = 0;
  int end = static_cast<int>(line.size());
  if (width(begin, end) > kWidest) {
    const auto cells = [&](int i) { return line[static_cast<std::size_t>(i)].cells; };
    begin = caret;
    int shown = 0;
    while (begin > 0 && shown + cells(begin - 1) <= kWidest / 2) shown += cells(--begin);
    end = caret;
    while (end < static_cast<int>(line.size()) && shown + cells(end) <= kWidest) shown += cells(end++);
  }
  std::string source = begin > 0 || first > 1 ? "..." : "";
  const std::size_t pad = source.size() + static_cast<std::size_t>(width(begin, caret));
  for (int i = begin; i < end; ++i) source += line[static_cast<std::size_t>(i)].text;
  if (end < static_cast<int>(line.size()) || where.source_cut) source += "...";
  while (!source.empty() && source.back() == ' ') source.pop_back();
  return fmt::format("  {}\n  {:>{}}\n", source, '^', pad + 1);
}

std::string message_of(std::span<const Diagnostic> diagnostics) {
  std::string out;
  for (const Diagnostic& d : diagnostics) out += to_string(d);
  return out;
}

std::vector<Diagnostic> placeless(std::string message) {
  std::vector<Diagnostic> out(1);
  out[0].what = std::move(message);
  return out;
}

// Of ASCII alone, whatever the locale is: names are of ASCII.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_small(char c) { return c >= 'a' && c <= 'z'; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

/// Damerau-Levenshtein distance (optimal string alignment), or `limit` + 1 where it is greater.
std::size_t distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) return limit + 1;
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return std::min(above[b.size()], limit + 1);
}

/// "llama3-70B" -> {"llama", "3", "70b"}: parts of a name between signs, and where digits follow letters.
std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> out;
  char before = '-';
  for (const char c : lower(name)) {
    if (is_digit(c) || is_small(c)) {
      if (!(is_digit(before) || is_small(before)) || (is_small(before) && is_digit(c))) out.emplace_back();
      out.back() += c;
    }
    before = c;
  }
  return out;
}

/// The one name that has all parts of `found` and fewest others: llama-3.1-70b of llama3-70b, which is fewer
/// letters away from llama-30b. Empty where there is none, or several.
std::string with_all_parts(std::string_view found, std::span<const std::string> names) {
  const std::vector<std::string> asked = parts_of(found);
  std::string best;
  std::size_t fewest = asked.size() + 4;  // a name of many other parts is another one
  if (asked.size() < 2) return best;
  for (const std::string& name : names) {
    std::vector<std::string> has = parts_of(name);
    const bool all = std::all_of(asked.begin(), asked.end(), [&](const std::string& part) {
      const auto at = std::find(has.begin(), has.end(), part);
      if (at == has.end()) return false;
      has.erase(at);
      return true;
    });
    const std::size_t size = has.size() + asked.size();
    if (!all || size > fewest) continue;
    best = size < fewest ? name : std::string();
    fewest = size;
  }
  return best;
}

constexpr std::size_t kLongestName = 200;  // nobody mistypes a longer one, and the distance is quadratic

}  // namespace

std::string harmless(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t plain =
        static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (!text.empty()) out += take(text).text;
  }
  return out;
}

bool is_harmful(std::string_view text) {
  const auto plain = [](char c) { return is_plain(c) || c == '\t' || c == '\n'; };
  if (std::all_of(text.begin(), text.end(), plain)) return false;
  std::string tabs_as_spaces(text);
  std::replace(tabs_as_spaces.begin(), tabs_as_spaces.end(), '\t', ' ');
  return harmless_lines(tabs_as_spaces) != tabs_as_spaces;
}

std::string harmless_lines(std::string_view text) {
  std::string out;
  for (std::size_t end = 0; !text.empty(); text.remove_prefix(std::min(end + 1, text.size()))) {
    end = text.find('\n');
    out += harmless(text.substr(0, end));
    if (end == std::string_view::npos) break;
    out += '\n';
  }
  return out;
}

std::string harmless_json(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const auto byte = [&](std::size_t k) -> char32_t {
      return i + k < json.size() ? static_cast<unsigned char>(json[i + k]) : 0;
    };
    const auto further = [&](std::size_t k) { return (byte(k) & 0xc0) == 0x80; };
    // All of them are of one to three bytes.
    std::size_t length = 1;
    char32_t c = byte(0) == 0x7f ? 0x7f : U'a';
    if (byte(0) == 0xc2 && further(1)) {
      length = 2;
      c = byte(1);
    } else if ((byte(0) == 0xe2 || byte(0) == 0xef) && further(1) && further(2)) {
      length = 3;
      c = (byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    }
    if (!harmful(c)) {
      out += json[i];
      continue;
    }
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    i += length - 1;
  }
  return out;
}

namespace {

// A text of UTF-8 without its middle. A part of it ends where a character does.
std::string without_middle(std::string_view text, std::size_t first, std::size_t last) {
  const auto further = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  while (first > 0 && further(first)) --first;
  std::size_t begin = text.size() - last;
  while (begin + 1 < text.size() && further(begin)) ++begin;
  return fmt::format("{}... ({} bytes left out) ...{}", text.substr(0, first), begin - first,
                     text.substr(begin));
}

// What a message quotes may be of any length, and a terminal has few lines. Paths have their name at the end.
std::string shown(std::string_view raw) {
  constexpr std::size_t kWord = 1000, kLine = 4000;
  const std::string text = harmless(raw);
  if (text.size() <= kWord) return text;
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    out += word.size() > kWord ? without_middle(word, kWord / 2, kWord / 4) : std::string(word);
    rest.remove_prefix(word.size());
    const std::size_t blanks = std::min(rest.find_first_not_of(' '), rest.size());
    out += rest.substr(0, blanks);
    rest.remove_prefix(blanks);
  }
  return out.size() > kLine ? without_middle(out, kLine / 2, kLine / 4) : out;
}

}  // namespace

std::string to_string(const Diagnostic& diagnostic) {
  const Location& where = diagnostic.where;
  std::string out;
  if (!where.file.empty()) out += fmt::format("{}:", shown(where.file));
  if (where.line > 0) out += fmt::format("{}:{}:", where.line, where.column);
  if (!out.empty()) out += ' ';
  out += fmt::format("{}\n", shown(diagnostic.what));
  if (where.line > 0 && !where.source_line.empty()) out += source_and_caret(where);
  for (const std::string& detail : diagnostic.details) out += fmt::format("{}\n", shown(detail));
  return out;
}

UserError::UserError(std::vector<Diagnostic> diagnostics)
    : std::runtime_error(message_of(diagnostics)), diagnostics_(std::move(diagnostics)) {}

UserError::UserError(std::string message) : UserError(placeless(std::move(message))) {}

std::string nearest_within(std::string_view found, std::span<const std::string> names, std::size_t limit) {
  if (found.size() > kLongestName) return {};
  const std::string name = lower(found);
  std::size_t least = limit + 1;
  std::string best;
  for (const std::string& candidate : names) {
    const std::size_t d = distance(name, lower(candidate), limit);
    if (d >= least) continue;
    least = d;
    best = candidate;
  }
  return best;
}

std::string nearest_name(std::string_view found, std::span<const std::string> names) {
  if (found.size() > kLongestName) return {};
  if (const std::string whole = with_all_parts(found, names); !whole.empty()) return whole;
  const std::string name = lower(found);
  if (const std::string best = nearest_within(found, names, name.size() / 3); !best.empty()) return best;
  std::string within;
  for (const std::string& candidate : names) {
    const std::string other = lower(candidate);
    // A name with a few letters around it: nvfp4.
    if (2 * other.size() >= name.size() && other.size() > within.size() &&
        name.find(other) != std::string::npos)
      within = candidate;
  }
  return within;
}

std::optional<std::string> name_in_any_case(std::string_view found, std::span<const std::string> names) {
  if (std::find(names.begin(), names.end(), found) != names.end()) return std::string(found);
  const auto same = [&](const std::string& name) {
    return name.size() == found.size() && lower(name) == lower(found);
  };
  const auto at = std::find_if(names.begin(), names.end(), same);
  return at == names.end() ? std::nullopt : std::optional(*at);
}

namespace {

std::string letters_of(std::string_view text) {
  std::string out = lower(text);
  std::erase_if(out, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return out;
}

// Several names of which the one that was found is the beginning, signs apart: "h100" of four systems,
// "llama3" of llama-3.1-8b and others.
std::string names_begun_by(std::string_view found, std::span<const std::string> names) {
  constexpr std::size_t kShortest = 3;
  std::string out;
  if (letters_of(found).size() < kShortest) return out;
  for (const std::string& name : names) {
    if (letters_of(name).starts_with(letters_of(found))) out += (out.empty() ? "" : ", ") + name;
  }
  return out;
}

}  // namespace

std::vector<std::string> expected_one_of(std::string_view found, std::span<const std::string> names) {
  if (names.empty()) return {};
  std::string list;
  for (const std::string& name : names) list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
  std::vector<std::string> out{"expected one of: " + list};
  if (const std::string near = nearest_name(found, names); !near.empty())
    out.push_back(fmt::format("did you mean {}?", near));
  else if (const std::string begun = names_begun_by(found, names); !begun.empty())
    out.push_back(
        fmt::format("did you mean {}{}?", begun.find(", ") == std::string::npos ? "" : "one of ", begun));
  return out;
}

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  throw std::logic_error(
      fmt::format("{}:{}: internal check failed: {} ({})", file, line, message, condition));
}

}  // namespace shardline
