// Recorded requests: who asked for how much, and when.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/line_reader.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// Tokens of a block of a recorded prefix: Mooncake's, and ours.
inline constexpr std::int64_t kTraceBlock = 512;
/// The latest arrival, in seconds: three centuries since 1970, at which a double still tells microseconds
/// apart.
inline constexpr double kLatestArrival = 1e10;
/// The earliest behind the beginning, in seconds: no recorder's clock tells less, and rates by a span that is
/// all but nothing are beyond a double.
inline constexpr double kEarliestArrival = 1e-9;

struct TraceRequest {
  Seconds arrival;          // since the beginning of the trace, not before the request above
  std::int64_t input = 1;   // tokens, at least one
  std::int64_t output = 1;  // likewise
  /// Ids of the input's blocks of kTraceBlock tokens, the last one perhaps not full; equal ids at the
  /// beginning of two requests are equal text. Empty where the trace says nothing of prefixes.
  std::vector<std::uint64_t> blocks;
  /// [R12] Of an engine that decodes what others prefill: it prefills this one itself.
  bool local_prefill = false;
  /// [R16] Which of all that are sent: what is drawn for it is of this number, whichever engine has it.
  std::uint64_t number = 0;
};

/// The requests of a trace, one at a time in the order of arrival: memory is one row, whatever the length.
/// The format is told from the first line:
/// - Mooncake (JSON lines): {"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [id, ...]},
/// the last
///   optional;
/// - Azure (CSV): TIMESTAMP,ContextTokens,GeneratedTokens, with timestamps such as 2023-11-16
/// 18:17:03.9799600;
/// - ours (CSV): a header with arrival_s or arrival_ms, input_tokens, output_tokens and perhaps block_ids
/// (runs such as
///   "0-13 20"), in any order; lines that begin with # are comments.
class TraceReader {
 public:
  /// Refers to `in`; `name` is what messages show. Throws UserError if the first line is of no format.
  TraceReader(std::istream& in, std::string name);

  /// Reads the next request, if there is one. At a row that is broken, out of order, or without positive
  /// lengths it throws UserError, with the faults of all rows that follow too (at most 50): nothing is left
  /// out silently.
  bool next(TraceRequest& out);

 private:
  enum class Format : std::uint8_t { mooncake, azure, own };
  enum class Column : std::uint8_t { arrival_s, arrival_ms, input, output, blocks };

  void read_header();
  bool advance();
  bool read_row(TraceRequest& out);
  void read_mooncake(TraceRequest& out);
  void read_cells(TraceRequest& out);
  void read_blocks(std::string_view text, std::size_t column, TraceRequest& out);
  void read_timestamp(std::string_view text, std::size_t column, TraceRequest& out);
  std::int64_t read_tokens(std::string_view text, std::size_t column, std::string_view name);
  double read_number(std::string_view text, std::size_t column, std::string_view name);
  void check(const TraceRequest& row, std::size_t arrival_column);
  void fault(std::size_t column, std::string what, std::vector<std::string> details = {});
  std::size_t faults() const { return faults_.size() + unlisted_; }
  bool hopeless() const;
  [[noreturn]] void refuse();

  LineReader lines_;
  Format format_ = Format::own;
  std::vector<Column> columns_;
  std::optional<std::int64_t> first_tick_;  // of Azure's clock, 100 ns
  std::optional<Seconds> last_;
  int last_line_ = 0;
  bool held_ = false;               // the first row was read as the header
  std::vector<Diagnostic> faults_;  // the first 50
  std::size_t unlisted_ = 0;        // more of them
};

}  // namespace shardline
