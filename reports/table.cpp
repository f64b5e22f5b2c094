#include "reports/table.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <optional>
#include <span>
#include <system_error>

#include "reports/terminal.hpp"

namespace shardline {

namespace {

using TableRows = std::vector<std::vector<std::string>>;

bool numeric(const std::string& cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell.front())) != 0 ||
                           ((cell.front() == '-' || cell.front() == '+') && cell.size() > 1));
}

// Columns of the terminal that a UTF-8 text takes, for the few symbols we print.
std::size_t width(const std::string& s) {
  return static_cast<std::size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// How a table is drawn.
struct TableForm {
  bool header_words = false;  // headers wider than their cells go on in further lines
  bool words = false;         // so do cells of several words
  bool last_below = false;    // cells of the last column stand below their rows
  bool dense = false;         // cells of words have less room than can be read well
};

constexpr std::size_t kWordsRoom = 20;  // columns in which words can be read well
constexpr std::size_t kPartOfLine = 4;  // dense cells have one of so many parts of a line at least
constexpr std::size_t kBelow = 6;       // blanks before a cell below its row

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    out.push_back(text.substr(at, end - at));
  return out;
}

std::size_t longest_word(const std::string& text) {
  std::size_t most = 0;
  for (const std::string& word : lines_of(wrapped(text, 1, ""))) most = std::max(most, width(word));
  return most;
}

struct TableColumns {
  std::vector<std::size_t> widths;
  std::vector<bool> right;  // aligned
};

TableColumns columns_of(const TableRows& rows, bool header_words) {
  std::size_t count = 0;
  for (const auto& row : rows) count = std::max(count, row.size());
  TableColumns out{std::vector<std::size_t>(count, 0), std::vector<bool>(count, rows.size() > 1)};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < rows[r].size(); ++c) {
      const std::string& cell = rows[r][c];
      out.widths[c] = std::max(out.widths[c], r == 0 && header_words ? longest_word(cell) : width(cell));
      if (r > 0 && !cell.empty() && !numeric(cell)) out.right[c] = false;
    }
  }
  return out;
}

std::size_t width_with(const TableColumns& columns, std::size_t end, std::size_t indent) {
  for (std::size_t c = 0; c < end; ++c) indent += columns.widths[c] + 2;
  return indent - std::min<std::size_t>(end, 1) * 2;
}

// The least width of each column: of words that go on in further lines their longest one, or what can be
// read.
std::vector<std::size_t> least_widths(const TableRows& rows, const TableColumns& columns, std::size_t room) {
  std::vector<std::size_t> out = columns.widths;
  for (std::size_t c = 0; c < out.size(); ++c) {
    std::size_t word = std::min(out[c], room);
    for (const auto& row : rows) {
      if (c < row.size()) word = std::max(word, longest_word(row[c]));
    }
    out[c] = word;
  }
  return out;
}

// The longest word of the last of `count` columns.
std::size_t last_word(const TableRows& rows, std::size_t count) {
  std::size_t word = 0;
  for (const auto& row : rows) {
    if (row.size() == count && count > 0) word = std::max(word, longest_word(row.back()));
  }
  return word;
}

// The columns in this form if they take at most `most`.
std::optional<TableColumns> columns_within(const TableRows& rows, std::size_t indent, std::size_t most,
                                           TableForm form) {
  TableColumns columns = columns_of(rows, form.header_words);
  const std::size_t count = columns.widths.size(), beside = count - (form.last_below ? 1 : 0);
  if (form.last_below && (count < 2 || columns.right.back() || kBelow + last_word(rows, count) > most))
    return std::nullopt;
  const std::size_t room = form.dense ? std::min(kWordsRoom, most / kPartOfLine) : kWordsRoom;
  const std::vector<std::size_t> least = form.words ? least_widths(rows, columns, room) : columns.widths;
  // The widest column gives way first.
  while (width_with(columns, beside, indent) > most) {
    std::size_t widest = beside;
    for (std::size_t c = 0; c < beside; ++c) {
      if (columns.widths[c] > least[c] && (widest == beside || columns.widths[c] >= columns.widths[widest]))
        widest = c;
    }
    if (widest == beside) return std::nullopt;
    --columns.widths[widest];
  }
  return columns;
}

// The first form, from the plainest, in which the table has at most `most` columns; `below`: of all, else of
// those that are read as well as the plainest.
std::optional<TableForm> fitting(const TableRows& rows, std::size_t indent, std::size_t most, bool below) {
  for (const TableForm form :
       {TableForm{}, TableForm{.header_words = true}, TableForm{.words = true},
        TableForm{.header_words = true, .words = true}, TableForm{.header_words = true, .last_below = true},
        TableForm{.header_words = true, .words = true, .dense = true}}) {
    if ((below || (!form.last_below && !form.dense)) && columns_within(rows, indent, most, form)) return form;
  }
  return std::nullopt;
}

// A row in lines, without what stands below it: cells of several lines begin together, headers end together.
std::string drawn_row(std::span<const std::string> row, const TableColumns& columns, bool header,
                      const std::string& indent) {
  std::vector<std::vector<std::string>> cells;
  std::size_t height = 1;
  for (std::size_t c = 0; c < row.size(); ++c) {
    const std::size_t room = columns.widths[c];
    cells.push_back(width(row[c]) <= room ? std::vector<std::string>{row[c]}
                                          : lines_of(wrapped(row[c], room, "")));
    height = std::max(height, cells.back().size());
  }
  std::string out;
  for (std::size_t line = 0; line < height; ++line) {
    std::string text = indent;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::size_t skipped = header ? height - cells[c].size() : 0;
      const std::string piece =
          line >= skipped && line - skipped < cells[c].size() ? cells[c][line - skipped] : "";
      const std::string pad(columns.widths[c] - std::min(columns.widths[c], width(piece)), ' ');
      text += (c == 0 ? "" : "  ") + (columns.right[c] ? pad + piece : piece + pad);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

// In columns of these widths; where `below`, the last of them below its rows, in lines of at most `most`
// columns.
std::string drawn_table(const TableRows& rows, const std::string& indent, const TableColumns& columns,
                        bool below, std::size_t most) {
  const std::size_t count = columns.widths.size(), beside = count - (below ? 1 : 0);
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    out += drawn_row(std::span(rows[r]).first(std::min(beside, rows[r].size())), columns, r == 0, indent);
    if (!below || rows[r].size() < count || rows[r].back().empty()) continue;
    for (const std::string& line : lines_of(wrapped(rows[r].back(), most - kBelow, "")))
      out += std::string(kBelow, ' ') + line + "\n";
  }
  return out;
}

// The table in a form in which it has at most `most` columns, as fitting() says.
std::string drawn_within(const TableRows& rows, const std::string& indent, std::size_t most, TableForm form) {
  const auto columns = columns_within(rows, indent.size(), most, form);
  return drawn_table(rows, indent, columns ? *columns : columns_of(rows, form.header_words),
                     columns && form.last_below, most);
}

// All columns in tables one below the other, each of which begins with the columns that tell rows apart: the
// first, with those to its right that are words, or stand before such, as far as the third and as room is
// left.
std::string in_parts(const TableRows& rows, const std::string& indent, std::size_t most) {
  const TableColumns columns = columns_of(rows, true);
  const std::size_t count = columns.widths.size();
  const std::vector<std::size_t> least = least_widths(rows, columns, kWordsRoom);
  std::size_t keys = 1;
  for (std::size_t c = 1; c < std::min<std::size_t>(3, count); ++c) {
    const std::size_t room = *std::max_element(least.begin() + static_cast<std::ptrdiff_t>(c), least.end());
    if (!columns.right[c] && width_with(columns, c + 1, indent.size()) + 2 + room <= most) keys = c + 1;
  }
  std::string out;
  for (std::size_t begin = keys; begin < count;) {
    std::size_t end = begin + 1, sum = width_with(columns, keys, indent.size()) + 2 + columns.widths[begin];
    while (end < count && sum + 2 + columns.widths[end] <= most) sum += 2 + columns.widths[end++];
    TableRows part;
    for (const auto& row : rows) {
      std::vector<std::string>& cells = part.emplace_back();
      for (std::size_t c = 0; c < std::min(end, row.size()); ++c) {
        if (c < keys || c >= begin) cells.push_back(row[c]);
      }
    }
    const auto form = fitting(part, indent.size(), most, true);
    out += (out.empty() ? "" : "\n") +
           drawn_within(part, indent, most, form.value_or(TableForm{.header_words = true}));
    begin = end;
  }
  return out.empty() ? drawn_within(rows, indent, most, TableForm{}) : out;
}

}  // namespace

std::string Table::text(const std::string& indent) const {
  return drawn_table(rows_, indent, columns_of(rows_, false), false, 0);
}

std::string Table::text_within(std::size_t width, std::span<const std::string_view> least) const {
  if (width == 0) return text();
  const std::string indent(2, ' ');
  // Words that do not break, such as plans, and take more than half of the width.
  const bool below = 2 * last_word(rows_, columns_of(rows_, true).widths.size()) > width;
  TableRows shown = rows_;
  std::string missing;
  std::optional<TableForm> form = fitting(shown, indent.size(), width, below);
  for (auto name = least.begin(); !form && name != least.end(); ++name) {
    const std::size_t before = shown.front().size();
    for (std::size_t c = before; c-- > 0;) {
      if (shown.front()[c] != *name) continue;
      for (auto& row : shown) {
        if (c < row.size()) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
      }
    }
    if (shown.front().size() == before) continue;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", *name);
    form = fitting(shown, indent.size(), width, below);
  }
  if (!form) form = fitting(shown, indent.size(), width, true);
  if (!form) return in_parts(rows_, indent, width);
  const std::string out = drawn_within(shown, indent, width, *form);
  if (missing.empty()) return out;
  return out + wrapped_lines(fmt::format("  left out, for {} columns: {}; all of them: in a pipe, or "
                                         "COLUMNS=200\n",
                                         width, missing),
                             width);
}

bool Progress::terminal() { return isatty(STDERR_FILENO) == 1 && !dumb_terminal(); }

Progress::Progress(std::string what, bool enabled, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      enabled_(enabled),
      start_(std::chrono::steady_clock::now()),
      first_(start_),
      last_(start_) {
  if (!enabled_) return;
  try {
    waiting_ = std::jthread([this](const std::stop_token& stop) { wait_for_first(stop); });
  } catch (const std::system_error&) {  // no thread is to be had: then the first steps are not told of
  }
}

Progress::~Progress() {
  waiting_ = {};
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::wait_for_first(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, stop, std::chrono::seconds(1), [this] { return first_done_ > 0; })) {
    if (stop.stop_requested()) return;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    std::fputs(fmt::format("\r\033[K{}: at the first {} for {:.0f} s", what_, unit_, seconds).c_str(),
               stderr);
    shown_ = true;
  }
}

bool Progress::tells_time_left(double seconds, std::uint64_t done, std::uint64_t total) {
  constexpr double kBegun = 1, kLong = 10;  // seconds
  constexpr double kPart = 0.01;
  return seconds >= kLong ||
         (seconds >= kBegun && static_cast<double>(done) >= kPart * static_cast<double>(total));
}

void Progress::show(std::uint64_t done, std::uint64_t total) {
  if (!enabled_ || done == 0 || total == 0) return;
  done = std::min(done, total);
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (first_done_ == 0) {
    first_done_ = done;
    first_ = now;
    changed_.notify_all();
  }
  if (now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  const auto since = [&](std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  const std::uint64_t later = done - std::min(done, first_done_);
  const bool told = tells_time_left(since(first_), later, total);
  const double rate = told && later > 0 ? static_cast<double>(later) / since(first_)
                                        : static_cast<double>(done) / since(start_);
  constexpr int kWidth = 24;
  const auto filled = static_cast<std::size_t>(kWidth * done / total);
  const std::string left =
      told ? fmt::format(", {:.0f} s left", static_cast<double>(total - done) / rate) : "";
  std::fputs(fmt::format("\r\033[K{} [{}{}] {}/{} {}, {:.0f} {}/s{}", what_, std::string(filled, '#'),
                         std::string(kWidth - filled, '.'), done, total, unit_, rate, unit_, left)
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
