#include "reports/table.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "reports/terminal.hpp"

namespace shardline {

namespace {

bool numeric(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell.front())) != 0 ||
                           ((cell.front() == '-' || cell.front() == '+') && cell.size() > 1));
}

// Columns of the terminal that a UTF-8 text takes, for the few symbols we print.
std::size_t width(const std::string& s) {
  return static_cast<std::size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string Table::text(const std::string& indent) const { return lines(indent, 0); }

std::string Table::lines(const std::string& indent, std::size_t width_of_all) const {
  std::size_t columns = 0;
  for (const auto& row : rows_) columns = std::max(columns, row.size());
  std::vector<std::size_t> widths(columns, 0);
  std::vector<bool> right(columns, rows_.size() > 1);
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t c = 0; c < rows_[r].size(); ++c) {
      widths[c] = std::max(widths[c], width(rows_[r][c]));
      if (r > 0 && !rows_[r][c].empty() && !numeric(rows_[r][c])) right[c] = false;
    }
  }
  constexpr std::size_t kRoom = 24;  // columns in which words can be read
  std::size_t before = indent.size();
  for (std::size_t c = 0; c + 1 < columns; ++c) before += widths[c] + 2;
  const bool wraps =
      columns > 0 && !right.back() && before + widths.back() > width_of_all && before + kRoom <= width_of_all;
  std::string out;
  for (const auto& row : rows_) {
    std::string line = indent;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (wraps && c + 1 == columns) {
        line += wrapped(row[c], width_of_all - before, std::string());
        for (std::size_t at = line.find('\n'); at + 1 < line.size(); at = line.find('\n', at + 1))
          line.insert(at + 1, before, ' ');
        break;
      }
      const std::string pad(widths[c] - width(row[c]), ' ');
      line += right[c] ? pad + row[c] : row[c] + pad;
      if (c + 1 < row.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(" \n") + 1);
    out += line + "\n";
  }
  return out;
}

std::string Table::text_within(std::size_t width, std::span<const std::string_view> least) const {
  const auto widest = [](const std::string& text) {
    std::size_t most = 0;
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
      most = std::max(most, ::shardline::width(text.substr(at, end - at)));
    return most;
  };
  Table shown = *this;
  std::string out = shown.text(), missing;
  for (auto name = least.begin(); width > 0 && name != least.end() && widest(out) > width; ++name) {
    const std::size_t before = shown.rows_.front().size();
    for (std::size_t c = before; c-- > 0;) {
      if (shown.rows_.front()[c] != *name) continue;
      for (auto& row : shown.rows_) {
        if (c < row.size()) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
      }
    }
    if (shown.rows_.front().size() == before) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", *name);
    out = shown.text();
  }
  if (width > 0 && widest(out) > width) out = shown.lines("  ", width);
  if (missing.empty()) return out;
  return out + fmt::format("  left out, for {} columns: {}; all of them: in a pipe, or COLUMNS=200\n", width,
                           missing);
}

bool Progress::terminal() { return isatty(STDERR_FILENO) == 1; }

Progress::Progress(std::string what, bool enabled, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      enabled_(enabled),
      start_(std::chrono::steady_clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::show(std::uint64_t done, std::uint64_t total) {
  if (!enabled_ || done == 0 || total == 0) return;
  done = std::min(done, total);
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = static_cast<double>(done) / seconds;
  constexpr int kWidth = 24;
  const auto filled = static_cast<std::size_t>(kWidth * done / total);
  std::fputs(fmt::format("\r\033[K{} [{}{}] {}/{} {}, {:.0f} {}/s, {:.0f} s left", what_,
                         std::string(filled, '#'), std::string(kWidth - filled, '.'), done, total, unit_,
                         rate, unit_, static_cast<double>(total - done) / rate)
                 .c_str(),
             stderr);
  shown_ = true;
}

void StepProgress::expect(std::uint64_t more) {
  const std::lock_guard lock(mutex_);
  total_ += more;
}

void StepProgress::step() {
  const std::lock_guard lock(mutex_);
  progress_.show(begun_++, total_);
}

}  // namespace shardline
