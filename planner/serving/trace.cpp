#include "planner/serving/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "planner/serving/trace_row.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

constexpr std::size_t kMostFaults = 50;
// Far above any context; a row's blocks are a few megabytes at most.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;
constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

// Not `quoted`: that of the standard library would be found for a std::string.
std::string in_quotes(std::string_view text) {
  return fmt::format("\"{}{}\"", text.substr(0, 40), text.size() > 40 ? "..." : "");
}

}  // namespace

TraceReader::TraceReader(std::istream& in, std::string name) : lines_(in, std::move(name)) { read_header(); }

void TraceReader::fault(std::size_t column, std::string what, std::vector<std::string> details) {
  if (hopeless())
    ++unlisted_;
  else
    faults_.push_back(lines_.fault(column, std::move(what), std::move(details)));
}

// So many faults that reading on says nothing new.
bool TraceReader::hopeless() const { return faults_.size() >= kMostFaults; }

void TraceReader::refuse() {
  if (unlisted_ > 0) faults_.push_back({{}, fmt::format("{}: {} more faults", lines_.name(), unlisted_), {}});
  throw UserError(std::move(faults_));
}

// To the next line that holds something.
bool TraceReader::advance() {
  while (lines_.next()) {
    const std::string_view line = lines_.line();
    const bool comment = format_ == Format::own && line.starts_with('#');
    if (!comment && line.find_first_not_of(" \t") != std::string_view::npos) return true;
  }
  return false;
}

void TraceReader::read_header() {
  static const std::vector<std::string> kNames{"arrival_s", "arrival_ms", "input_tokens", "output_tokens",
                                               "block_ids"};
  if (!advance()) throw UserError(std::vector{lines_.fault(1, "the trace is empty")});
  const std::string_view line = lines_.line();
  if (line.find_first_not_of(" \t") == line.find('{')) {
    format_ = Format::mooncake;
    held_ = true;
    return;
  }
  if (line == kAzureHeader) {
    format_ = Format::azure;
    return;
  }
  std::array<int, 5> seen{};
  CancelCheck check;
  for (const TraceCell& cell : trace_cells(line)) {
    check();
    // The column may say what its ids are of: "block_ids(512-token blocks; runs a-b)".
    static const std::string kOfBlocks = fmt::format("block_ids({}-token blocks", kTraceBlock);
    const std::string_view name =
        cell.text.starts_with(kOfBlocks) ? std::string_view("block_ids") : cell.text;
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) {
      std::vector<std::string> details = expected_one_of(std::string(cell.text), kNames);
      details.push_back(fmt::format("or a header {}, or JSON lines", kAzureHeader));
      fault(cell.column, fmt::format("unknown column {}", in_quotes(cell.text)), std::move(details));
      continue;
    }
    const auto column = static_cast<std::size_t>(found - kNames.begin());
    if (seen[column]++ > 0) fault(cell.column, fmt::format("column {} stands here a second time", *found));
    columns_.push_back(static_cast<Column>(column));
  }
  if (faults_.empty() && seen[0] + seen[1] != 1)
    fault(1, "a trace has one of the columns arrival_s and arrival_ms");
  if (faults_.empty() && seen[2] + seen[3] != 2)
    fault(1, "a trace has the columns input_tokens and output_tokens");
  if (!faults_.empty()) refuse();
}

bool TraceReader::next(TraceRequest& out) {
  if (!held_ && !advance()) return false;
  held_ = false;
  if (read_row(out)) return true;
  // The rest is read for its faults alone.
  for (TraceRequest row; !hopeless() && advance();) read_row(row);
  refuse();
}

bool TraceReader::read_row(TraceRequest& out) {
  const std::size_t before = faults();
  out.blocks.clear();
  if (lines_.cut()) {
    fault(1, fmt::format("a line has more than {} bytes", LineReader::kLongest));
  } else if (format_ == Format::mooncake) {
    read_mooncake(out);
  } else {
    read_cells(out);
  }
  return faults() == before;
}

double TraceReader::read_number(std::string_view text, std::size_t column, std::string_view name) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(v)) {
    fault(column, fmt::format("{}: expected a number, found {}", name, in_quotes(text)));
  } else if (v < 0) {
    fault(column, fmt::format("{} is negative", name));
  }
  return v;
}

std::int64_t TraceReader::read_tokens(std::string_view text, std::size_t column, std::string_view name) {
  std::int64_t v = 1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  const bool whole = end == text.data() + text.size() && !text.empty();
  if (!whole || error == std::errc::invalid_argument) {
    fault(column, fmt::format("{}: expected a whole number of tokens, found {}", name, in_quotes(text)));
    return 1;
  }
  if (error == std::errc::result_out_of_range || v > kMostTokens) {
    fault(column, fmt::format("{} is above {}", name, kMostTokens));
    return 1;
  }
  if (v < 1) {
    fault(column, fmt::format("{} is {}; a request has at least one token", name, v));
    return 1;
  }
  return v;
}

// What a row must be whatever its format.
void TraceReader::check(const TraceRequest& row, std::size_t arrival_column) {
  if (last_ && row.arrival < *last_) {
    fault(arrival_column, fmt::format("arrives at {} s, before the request of line {} at {} s",
                                      row.arrival.value, last_line_, last_->value));
    return;
  }
  if (row.arrival.value > kLatestArrival)
    fault(arrival_column,
          fmt::format("arrives at {} s: expected at most {:.0f} s, beyond which no time between two "
                      "requests is told",
                      row.arrival.value, kLatestArrival));
  if (row.arrival.value > 0 && row.arrival.value < kEarliestArrival)
    fault(arrival_column,
          fmt::format("arrives at {} s: expected 0 or at least {} s", row.arrival.value, kEarliestArrival));
  last_ = row.arrival;
  last_line_ = lines_.number();
}

void TraceReader::read_cells(TraceRequest& out) {
  const std::vector<TraceCell> cells = trace_cells(lines_.line());
  const std::size_t expected = format_ == Format::azure ? 3 : columns_.size();
  if (cells.size() != expected) {
    const bool many = cells.size() > kMostTraceCells;
    fault(1, fmt::format("expected {} cells, found {}{}", expected, many ? "more than " : "",
                         many ? kMostTraceCells : cells.size()));
    return;
  }
  const std::size_t before = faults();
  std::size_t arrival_column = 1;
  const TraceCell* blocks = nullptr;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto& [text, column] = cells[i];
    if (format_ == Format::azure) {
      if (i == 0) read_timestamp(text, column, out);
      if (i == 1) out.input = read_tokens(text, column, "ContextTokens");
      if (i == 2) out.output = read_tokens(text, column, "GeneratedTokens");
      continue;
    }
    switch (columns_[i]) {
      case Column::arrival_s:
      case Column::arrival_ms: {
        const bool ms = columns_[i] == Column::arrival_ms;
        arrival_column = column;
        out.arrival = Seconds(read_number(text, column, ms ? "arrival_ms" : "arrival_s") / (ms ? 1e3 : 1));
        break;
      }
      case Column::input:
        out.input = read_tokens(text, column, "input_tokens");
        break;
      case Column::output:
        out.output = read_tokens(text, column, "output_tokens");
        break;
      case Column::blocks:
        blocks = &cells[i];
        break;
    }
  }
  if (faults() != before) return;
  check(out, arrival_column);
  if (blocks != nullptr && !blocks->text.empty()) read_blocks(blocks->text, blocks->column, out);
}

// Runs "0-13 20": counted against the input before they are written out, so that no row asks for more than it
// may.
void TraceReader::read_blocks(std::string_view text, std::size_t column, TraceRequest& out) {
  const auto most = static_cast<std::uint64_t>((out.input + kTraceBlock - 1) / kTraceBlock);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view run = text.substr(at, end - at);
    const std::optional<BlockRun> ids = block_run(run);
    if (!ids) {
      fault(column + at,
            fmt::format("block_ids: expected a number or a run such as 3-7, found {}", in_quotes(run)));
      return;
    }
    if (ids->last - ids->first >= most - out.blocks.size()) {
      fault(column + at,
            fmt::format("block_ids: found more than {} of {} tokens, the blocks of an input of {}", most,
                        kTraceBlock, out.input));
      return;
    }
    for (std::uint64_t id = ids->first; id <= ids->last; ++id) out.blocks.push_back(id);
    at = std::min(text.find_first_not_of(' ', end), text.size());
  }
  if (out.blocks.size() != most) {
    fault(column, fmt::format("block_ids: found {} of {} tokens, an input of {} has {}", out.blocks.size(),
                              kTraceBlock, out.input, most));
  }
}

void TraceReader::read_timestamp(std::string_view text, std::size_t column, TraceRequest& out) {
  const std::optional<std::int64_t> tick = clock_tick(text);
  if (!tick) {
    fault(column, fmt::format("TIMESTAMP: expected a time such as 2023-11-16 18:17:03.9799600, found {}",
                              in_quotes(text)));
    return;
  }
  if (!first_tick_) first_tick_ = tick;
  // Differences of whole ticks, so that equal intervals are equal doubles on any day.
  const auto since = static_cast<double>(*tick - *first_tick_) / 1e7;
  if (since < 0) {
    fault(column, "arrives before the first request");
    return;
  }
  out.arrival = Seconds(since);
}

void TraceReader::read_mooncake(TraceRequest& out) {
  static const std::vector<std::string> kKeys{"timestamp", "input_length", "output_length", "hash_ids"};
  const std::size_t before = faults();
  std::array<std::size_t, 4> seen{};  // columns of values
  JsonRow row(lines_.line());
  CancelCheck ask;
  while (row.next()) {
    ask();
    const auto key =
        static_cast<std::size_t>(std::find(kKeys.begin(), kKeys.end(), row.key()) - kKeys.begin());
    if (key == kKeys.size()) {
      fault(row.key_column(), fmt::format("unknown key {}", in_quotes(row.key())),
            hopeless() ? std::vector<std::string>() : expected_one_of(row.key(), kKeys));
    } else if (seen[key] != 0) {
      fault(row.key_column(), fmt::format("{} stands here a second time", kKeys[key]));
    } else if ((key == 3) != row.is_array()) {
      fault(row.column(),
            fmt::format("{}: expected {}", kKeys[key], key == 3 ? "a list of numbers" : "a number"));
    } else if (key == 0) {
      out.arrival = Seconds(read_number(row.value(), row.column(), kKeys[0]) / 1e3);
    } else if (key < 3) {
      (key == 1 ? out.input : out.output) = read_tokens(row.value(), row.column(), kKeys[key]);
    } else {
      out.blocks = row.ids();
    }
    if (key < 4) seen[key] = row.column();
  }
  if (!row.error().empty()) fault(row.column(), row.error());
  if (faults() != before) return;
  for (std::size_t key = 0; key < 3; ++key) {
    if (seen[key] == 0) fault(1, fmt::format("missing key {}", kKeys[key]));
  }
  if (faults() != before) return;
  check(out, seen[0]);
  const std::int64_t blocks = (out.input + kTraceBlock - 1) / kTraceBlock;
  if (seen[3] != 0 && static_cast<std::int64_t>(out.blocks.size()) != blocks) {
    fault(seen[3], fmt::format("hash_ids: found {} of {} tokens, an input of {} has {}", out.blocks.size(),
                               kTraceBlock, out.input, blocks));
  }
}

}  // namespace shardline
