#include "calibrate/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/base/cancel.hpp"
#include "sim/base/harmless.hpp"

namespace shardline {

namespace {

constexpr std::size_t kMostFaults = 50;
// Of kernels and messages in us, of steps in ms: nothing runs for less than 1 ns, or for 1000 s.
constexpr double kLeastTime = 0.001, kMostTime = 1e9;
// Bytes of a line, and of what a message says of one, which quotes cells.
constexpr std::size_t kLongestLine = std::size_t{1} << 16, kLongestMessage = 400;

// Not in the middle of a character of UTF-8.
void cut(std::string& text) {
  if (text.size() <= kLongestMessage) return;
  std::size_t size = kLongestMessage;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  text.resize(size);
  text += "...";
}

}  // namespace

std::vector<CsvCell> csv_cells(std::string_view line, CsvStyle style) {
  std::vector<CsvCell> out;
  for (std::size_t at = 0;;) {
    std::size_t first = std::min(line.find_first_not_of(" \t", at), line.size());
    std::size_t past = at;  // of the quotes; a comma before it separates nothing
    const bool quoted = style == CsvStyle::quotes && first < line.size() && line[first] == '"';
    if (quoted) {
      const std::size_t close = line.find('"', first + 1);
      if (close != std::string_view::npos) past = close;
    }
    const std::size_t comma = line.find(',', past);
    std::size_t last = std::min(comma, line.size());
    first = std::min(first, last);
    while (last > first && (line[last - 1] == ' ' || line[last - 1] == '\t')) --last;
    const int column = static_cast<int>(first) + 1;
    if (quoted && last - first >= 2 && line[last - 1] == '"') {
      ++first;
      --last;
    }
    out.push_back({line.substr(first, last - first), column});
    if (comma == std::string_view::npos || out.size() > kMostColumns) return out;
    at = comma + 1;
  }
}

std::string_view CsvLines::operator[](std::size_t line) const {
  const std::size_t begin = line == 0 ? 0 : ends_[line - 1] + std::size_t{1};
  std::string_view out(text_.data() + begin, ends_[line] - begin);
  if (!out.empty() && out.back() == '\r') out.remove_suffix(1);
  return out;
}

CsvText::CsvText(const std::string& file, const std::string& text) : file_(file), lines_(text) {
  constexpr std::size_t kPiece = std::size_t{1} << 18;  // a millisecond or two
  std::size_t lines = 1;
  for (std::size_t at = 0; at < text.size(); at += kPiece) {
    check_cancelled();
    const std::string_view piece = std::string_view(text).substr(at, kPiece);
    lines += static_cast<std::size_t>(std::count(piece.begin(), piece.end(), '\n'));
  }
  lines_.reserve(lines);
  std::size_t asked = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= asked) {
      check_cancelled();
      asked = at + kPiece;
    }
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines_.add(end);
    if (end - at > kLongestLine) {
      fault(lines_.size() - 1, fmt::format("a line of more than {} bytes", kLongestLine));
      finish();
    }
    at = end + 1;
    // Cells are shown and written as they are.
    if (faults_.empty() && is_harmful(lines_[lines_.size() - 1]))
      fault(lines_.size() - 1,
            "control characters, marks of text direction and bytes that are no UTF-8 are not accepted");
  }
}

std::vector<CsvCell> CsvText::cells(std::size_t line, CsvStyle style) {
  std::vector<CsvCell> out = csv_cells(lines_[line], style);
  if (out.size() <= kMostColumns) return out;
  fault(line, out.back(), "", fmt::format("more than {} columns", kMostColumns));
  finish();
  return {};
}

void CsvText::fault(std::size_t line, std::string what, std::vector<std::string> details) {
  fault(line, {"", 1}, "", std::move(what), std::move(details));
}

void CsvText::fault(std::size_t line, const CsvCell& cell, std::string_view name, std::string what,
                    std::vector<std::string> details) {
  last_fault_ = line;
  if (hopeless()) {
    ++unlisted_;
    return;
  }
  cut(what);
  Location where;
  where.file = file_;
  where.line = static_cast<int>(line) + 1;
  where.column = cell.column;
  where.key = name.substr(0, kLongestMessage);
  where.source_line = std::string(lines_[line].substr(0, 200));
  where.source_cut = lines_[line].size() > 200;
  faults_.push_back({where, std::move(what), std::move(details)});
}

bool CsvText::hopeless() const { return faults_.size() >= kMostFaults; }

void CsvText::finish() {
  if (faults_.empty()) return;
  std::string more;
  if (unlisted_ > 0) more = fmt::format("{} more fault{}", unlisted_, unlisted_ == 1 ? "" : "s");
  if (hopeless() && last_fault_ + 1 < lines_.size())
    more += fmt::format("{}what follows line {} was not read", more.empty() ? "" : "; ", last_fault_ + 1);
  if (!more.empty()) faults_.push_back({{}, fmt::format("{}: {}", file_, more), {}});
  throw UserError(std::move(faults_));
}

std::map<std::string_view, std::size_t> CsvText::places(std::size_t line,
                                                        const std::vector<CsvCell>& header) {
  std::map<std::string_view, std::size_t> out;
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (!out.emplace(header[i].text, i).second)
      fault(line, header[i], header[i].text, fmt::format("column {} stands twice", header[i].text));
  }
  return out;
}

std::optional<double> CsvText::number(std::size_t line, const CsvCell& c, std::string_view what) {
  double v = 0;
  const auto [end, error] = std::from_chars(c.text.data(), c.text.data() + c.text.size(), v);
  if (error == std::errc{} && end == c.text.data() + c.text.size() && std::isfinite(v)) return v;
  fault(line, c, what, fmt::format("{}: expected a number, found \"{}\"", what, c.text));
  return std::nullopt;
}

std::optional<double> CsvText::integer(std::size_t line, const CsvCell& c, std::string_view what,
                                       double lowest, double highest) {
  const auto v = number(line, c, what);
  if (!v || (*v >= lowest && *v <= highest && *v == std::floor(*v))) return v;
  fault(line, c, what,
        fmt::format("{}: expected an integer from {:.0f}{}, found {}", what, lowest,
                    *v > highest ? fmt::format(" to {:.0f}", highest) : "", c.text));
  return std::nullopt;
}

std::optional<double> CsvText::time(std::size_t line, const CsvCell& c, std::string_view what) {
  const auto v = number(line, c, what);
  if (!v || (*v >= kLeastTime && *v <= kMostTime)) return v;
  fault(line, c, what,
        fmt::format("{}: expected a time from {} to {:.0f}, found {}", what, kLeastTime, kMostTime, c.text));
  return std::nullopt;
}

}  // namespace shardline
