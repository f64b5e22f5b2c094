#include "reports/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <utility>
#include <vector>

namespace shardline {

namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

// Words between blanks that, with `quotes`, stand neither in the shell's quotes nor behind its backslash: a
// word with an apostrophe is 'it'\''s', whose second apostrophe begins nothing.
std::vector<std::string> split(std::string_view text, bool quotes) {
  std::vector<std::string> out;
  bool between = true, quoted = false, escaped = false;
  for (const char c : text) {
    const bool plain = std::exchange(escaped, quotes && !quoted && !escaped && c == '\\');
    if (quotes && !plain && c == '\'') quoted = !quoted;
    if (c == ' ' && !quoted && !plain) {
      between = true;
      continue;
    }
    if (between) out.emplace_back();
    between = false;
    out.back() += c;
  }
  return out;
}

// "ms," and "GPUs)", behind a number.
bool is_unit(std::string_view word) {
  static constexpr std::string_view kUnits[] = {"ns", "us",   "ms",   "s",   "min", "h", "B",
                                                "kB", "KB",   "MB",   "GB",  "TB",  "W", "kW",
                                                "J",  "GB/s", "TB/s", "GPU", "GPUs"};
  word = word.substr(0, std::min(word.find_last_not_of(",.;:)") + 1, word.size()));
  return std::find(std::begin(kUnits), std::end(kUnits), word) != std::end(kUnits);
}

bool ends_as_number(std::string_view word) {
  return !word.empty() && word.back() >= '0' && word.back() <= '9';
}

// A number stays with its unit.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  for (std::string& word : split(text, false)) {
    const bool unit = word.starts_with('%') || (is_unit(word) && !out.empty() && ends_as_number(out.back()));
    if (unit && !out.empty()) {
      out.back() += " " + word;
    } else {
      out.push_back(std::move(word));
    }
  }
  return out;
}

// An option stays with its value.
std::vector<std::string> options_of(const std::string& command) {
  std::vector<std::string> out;
  bool option = false;
  for (std::string& word : split(command, true)) {
    const bool starts = word.starts_with('-');
    if (option && !starts) {
      out.back() += " " + word;
    } else {
      out.push_back(std::move(word));
    }
    option = starts;
  }
  return out;
}

// Columns of the terminal that a UTF-8 text takes, for the few symbols we print.
std::size_t columns(std::string_view s) {
  return static_cast<std::size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string joined(const std::vector<std::string>& words, std::size_t width, std::string_view first,
                   std::string_view indent, std::string_view at_break) {
  std::string out, line(first);
  bool empty = true;
  for (const std::string& word : words) {
    const bool fits = width == 0 || columns(line) + 1 + columns(word) + columns(at_break) <= width;
    if (!empty && !fits) {
      out += line + std::string(at_break) + "\n";
      line = std::string(indent);
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return out + line + "\n";
}

std::size_t width_of(int stream) {
  const std::string_view said = variable("COLUMNS");
  std::size_t width = 0;
  const auto [end, code] = std::from_chars(said.data(), said.data() + said.size(), width);
  if (code == std::errc{} && end == said.data() + said.size() && width > 0) return width;
  winsize size{};
  if (isatty(stream) == 1 && ioctl(stream, TIOCGWINSZ, &size) == 0) return size.ws_col;
  return 0;
}

}  // namespace

std::size_t output_width() { return width_of(STDOUT_FILENO); }

std::size_t error_width() { return width_of(STDERR_FILENO); }

bool output_colours() {
  return isatty(STDOUT_FILENO) == 1 && variable("NO_COLOR").empty() && !dumb_terminal();
}

bool dumb_terminal() { return variable("TERM") == "dumb"; }

std::string emphasised(std::string_view text, Emphasis how, bool colours) {
  if (!colours) return std::string(text);
  const char* code = how == Emphasis::strong ? "1" : how == Emphasis::good ? "32" : "31";
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

std::string wrapped(std::string_view text, std::size_t width, std::string_view indent) {
  return joined(words_of(text), width, "", indent, "");
}

std::size_t columns_of_lines(std::string_view text) {
  std::size_t longest = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    longest = std::max(longest, columns(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return longest;
}

std::string wrapped_lines(std::string_view text, std::size_t width) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t blanks = std::min(line.find_first_not_of(' '), line.size());
    if (width == 0 || columns(line) <= width || blanks + 20 > width) {
      out += std::string(line) + "\n";
      continue;
    }
    const std::string before(blanks, ' ');
    const std::string lines = wrapped(line, width - blanks, "  ");
    for (std::size_t at = 0, stop = 0; (stop = lines.find('\n', at)) != std::string::npos; at = stop + 1)
      out += before + lines.substr(at, stop - at) + "\n";
  }
  return out;
}

std::string wrapped_messages(std::string_view text, std::size_t width) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    const std::string_view words = line.ends_with('\n') ? line.substr(0, line.size() - 1) : line;
    const bool whole = width == 0 || columns(words) <= width || words.starts_with(' ');
    out += whole ? std::string(line) : wrapped(words, width, "  ");
  }
  return out;
}

std::string wrapped_command(const std::string& command, std::size_t width, std::string_view indent) {
  return joined(options_of(command), width, indent, std::string(indent) + "  ", " \\");
}

}  // namespace shardline
