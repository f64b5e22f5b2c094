#include "calibrate/measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <unordered_map>

namespace shardline {

namespace {

using enum ColumnKind;

constexpr std::array kGemmTypes{"bf16", "fp8", "fp8_block", "nvfp4"};
constexpr std::array kTypes{"bf16", "fp16", "fp8"};
constexpr std::array kScopes{"kernel", "module", "kernel_paged"};
constexpr std::array kNcclOps{"all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"};
constexpr std::array kBmmOps{"mla_gen_pre", "mla_gen_post"};
constexpr std::array kPhases{"prepare", "dispatch", "combine", "combine_low_precision"};

constexpr std::array kGemm{ColumnSpec{"m"}, ColumnSpec{"n"}, ColumnSpec{"k"},
                           ColumnSpec{"dtype", name, kGemmTypes}, ColumnSpec{"kernel", name}};
constexpr std::array kPrefill{ColumnSpec{"batch"},
                              ColumnSpec{"seq_q"},
                              ColumnSpec{"kv_cached", size},
                              ColumnSpec{"heads_q"},
                              ColumnSpec{"heads_kv"},
                              ColumnSpec{"head_dim"},
                              ColumnSpec{"window", size},
                              ColumnSpec{"dtype_compute", name, kTypes},
                              ColumnSpec{"dtype_kv", name, kTypes},
                              ColumnSpec{"kernel", name}};
constexpr std::array kDecode{ColumnSpec{"batch"},
                             ColumnSpec{"kv_len"},
                             ColumnSpec{"heads_q"},
                             ColumnSpec{"heads_kv"},
                             ColumnSpec{"head_dim"},
                             ColumnSpec{"window", size},
                             ColumnSpec{"dtype_compute", name, kTypes},
                             ColumnSpec{"dtype_kv", name, kTypes},
                             ColumnSpec{"kernel", name}};
constexpr std::array kMlaPrefill{ColumnSpec{"scope", name, kScopes},
                                 ColumnSpec{"batch"},
                                 ColumnSpec{"seq_q"},
                                 ColumnSpec{"heads_local"},
                                 ColumnSpec{"dtype_compute", name},
                                 ColumnSpec{"dtype_kv", name},
                                 ColumnSpec{"dtype_gemm", optional_name}};
constexpr std::array kMlaDecode{ColumnSpec{"scope", name, kScopes},
                                ColumnSpec{"batch"},
                                ColumnSpec{"kv_len"},
                                ColumnSpec{"heads_local"},
                                ColumnSpec{"dtype_compute", name},
                                ColumnSpec{"dtype_kv", name},
                                ColumnSpec{"dtype_gemm", optional_name}};
constexpr std::array kMlaBmm{ColumnSpec{"op", name, kBmmOps}, ColumnSpec{"tokens"}, ColumnSpec{"heads_local"},
                             ColumnSpec{"dtype", name}};
constexpr std::array kMoe{ColumnSpec{"kernel", name}, ColumnSpec{"dtype", name}, ColumnSpec{"tokens"},
                          ColumnSpec{"hidden"},       ColumnSpec{"inter"},       ColumnSpec{"topk"},
                          ColumnSpec{"experts"},      ColumnSpec{"tp"},          ColumnSpec{"ep"},
                          ColumnSpec{"routing", name}};
constexpr std::array kNccl{ColumnSpec{"op", name, kNcclOps}, ColumnSpec{"dtype", name}, ColumnSpec{"gpus"},
                           ColumnSpec{"message_bytes"}};
constexpr std::array kAllReduce{ColumnSpec{"implementation", name}, ColumnSpec{"dtype", name},
                                ColumnSpec{"gpus"}, ColumnSpec{"message_bytes"}};
constexpr std::array kAllToAll{ColumnSpec{"implementation", name},
                               ColumnSpec{"phase", name, kPhases},
                               ColumnSpec{"dtype", name},
                               ColumnSpec{"gpus"},
                               ColumnSpec{"nodes"},
                               ColumnSpec{"tokens_per_rank"},
                               ColumnSpec{"hidden"},
                               ColumnSpec{"topk"},
                               ColumnSpec{"experts"},
                               ColumnSpec{"sms", size}};
constexpr std::array kMerge{ColumnSpec{"rows"}, ColumnSpec{"heads"}, ColumnSpec{"head_dim"},
                            ColumnSpec{"parts"}, ColumnSpec{"dtype", name, kTypes}};
constexpr std::array kCopy{ColumnSpec{"copied_bytes"}};
constexpr std::array kRead{ColumnSpec{"read_bytes"}};
constexpr std::array kWrite{ColumnSpec{"written_bytes"}};
constexpr std::array kRingLanes{"attend", "message", "both"};
constexpr std::array kRing{
    ColumnSpec{"transport", name}, ColumnSpec{"gpus"},       ColumnSpec{"ring_q_rows"},
    ColumnSpec{"ring_kv_rows"},    ColumnSpec{"heads_q"},    ColumnSpec{"heads_kv"},
    ColumnSpec{"head_dim"},        ColumnSpec{"ring_bytes"}, ColumnSpec{"lane", name, kRingLanes}};
constexpr std::array kLaunch{ColumnSpec{"kernels"}, ColumnSpec{"mode", name}};
constexpr std::array kPeer{ColumnSpec{"transport", name}, ColumnSpec{"peer_bytes"}};

constexpr std::array kFamilies{
    FamilySpec{"gemm", "[m, k] x [k, n]", kGemm},
    FamilySpec{"attention_prefill", "causal attention of new tokens", kPrefill},
    FamilySpec{"attention_decode", "one query token per request", kDecode},
    FamilySpec{"mla_prefill", "MLA attention of new tokens", kMlaPrefill},
    FamilySpec{"mla_decode", "absorbed MLA attention", kMlaDecode},
    FamilySpec{"mla_bmm", "MLA's per-head projections", kMlaBmm},
    FamilySpec{"moe", "grouped expert GEMMs of one rank", kMoe},
    FamilySpec{"nccl", "NCCL collectives", kNccl},
    FamilySpec{"allreduce", "all-reduce kernels of an engine", kAllReduce},
    FamilySpec{"alltoall", "dispatch and combine of experts", kAllToAll},
    FamilySpec{"merge", "partial attention outputs by log-sum-exp", kMerge},
    FamilySpec{"hbm_copy", "device copy, bytes read and as many written", kCopy},
    FamilySpec{"hbm_read", "device memory read once", kRead},
    FamilySpec{"hbm_write", "device memory written once", kWrite},
    FamilySpec{"launch", "empty kernels", kLaunch},
    FamilySpec{"p2p", "one message to one peer", kPeer},
    FamilySpec{"ring", "a step of ring attention: attend, message, both at once", kRing},
};

constexpr std::array kSampled{"median_us", "p10_us", "p90_us", "samples"};
constexpr std::size_t kMostFaults = 50;
constexpr double kMostCount = 9007199254740992.0;  // integers are exact up to here

struct Cell {
  std::string_view text;
  int column;  // one-based, in its line
};

std::vector<Cell> cells_of(std::string_view line) {
  std::vector<Cell> out;
  for (std::size_t at = 0;;) {
    const std::size_t comma = line.find(',', at);
    const std::size_t end = comma == std::string_view::npos ? line.size() : comma;
    std::size_t first = at, last = end;
    while (first < last && (line[first] == ' ' || line[first] == '\t')) ++first;
    while (last > first && (line[last - 1] == ' ' || line[last - 1] == '\t')) --last;
    out.push_back({line.substr(first, last - first), static_cast<int>(first) + 1});
    if (comma == std::string_view::npos) return out;
    at = comma + 1;
  }
}

class Parser {
 public:
  Parser(const std::string& file, const std::string& text) : file_(file) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line(text.data() + at, end - at);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      lines_.push_back(line);
      at = end + 1;
    }
  }

  MeasurementTable run() {
    std::size_t header = 0;
    while (header < lines_.size() && (lines_[header].empty() || lines_[header][0] == '#'))
      note(lines_[header++]);
    if (header == lines_.size()) throw UserError(file_ + " has no header line");
    read_header(header);
    finish();  // without its columns no row means anything
    for (std::size_t i = header + 1; i < lines_.size() && faults_.size() < kMostFaults; ++i) {
      if (!lines_[i].empty()) read_row(i);
    }
    if (table_.size() == 0 && faults_.empty()) throw UserError(file_ + " has no rows");
    finish();
    return std::move(table_);
  }

 private:
  // What a cell is: a column of the family (shape), or one of the times.
  struct Role {
    int shape = -1, time = -1;  // time: index into kSampled; 0 for latency_us
  };

  void note(std::string_view line) {
    const std::size_t colon = line.find(": ");
    if (line.size() < 2 || colon == std::string_view::npos) return;
    const std::size_t first = line.find_first_not_of("# ");
    if (first < colon)
      table_.provenance.emplace_back(line.substr(first, colon - first), line.substr(colon + 2));
  }

  void fault(std::size_t line, int column, std::string what, std::vector<std::string> details = {}) {
    Location where;
    where.file = file_;
    where.line = static_cast<int>(line) + 1;
    where.column = column;
    where.source_line = std::string(lines_[line].substr(0, 200));
    where.source_cut = lines_[line].size() > 200;
    faults_.push_back({where, std::move(what), std::move(details)});
  }

  void finish() {
    if (!faults_.empty()) throw UserError(std::move(faults_));
  }

  void read_header(std::size_t line) {
    const std::vector<Cell> cells = cells_of(lines_[line]);
    const auto has = [&](std::string_view wanted) {
      return std::any_of(cells.begin(), cells.end(), [&](const Cell& c) { return c.text == wanted; });
    };
    // The family that shares most columns, and of those the one that lacks fewest.
    std::pair<int, int> best{0, 0};
    for (const FamilySpec& f : kFamilies) {
      int shared = 0;
      for (const ColumnSpec& c : f.columns) shared += has(c.name) ? 1 : 0;
      const std::pair score{shared, shared - static_cast<int>(f.columns.size())};
      if (shared > 0 && (table_.family == nullptr || score > best)) {
        best = score;
        table_.family = &f;
      }
    }
    if (table_.family == nullptr) {
      std::vector<std::string> names;
      for (const FamilySpec& f : kFamilies) names.emplace_back(f.name);
      fault(line, 1, "no column of any family of measurements",
            {"families: " + fmt::format("{}", fmt::join(names, ", "))});
      return;
    }
    sampled_ = std::any_of(kSampled.begin(), kSampled.end(), has);
    std::vector<std::string> expected;
    for (const ColumnSpec& c : table_.family->columns) expected.emplace_back(c.name);
    for (const char* c : kSampled) {
      if (sampled_ || std::string_view(c) == kSampled[0]) expected.emplace_back(sampled_ ? c : "latency_us");
    }
    std::vector<bool> seen(expected.size(), false);
    for (const Cell& c : cells) {
      const auto at =
          static_cast<std::size_t>(std::find(expected.begin(), expected.end(), c.text) - expected.begin());
      if (at == expected.size()) {
        fault(line, c.column, fmt::format("unknown column {} in a table of {}", c.text, table_.family->name),
              expected_one_of(c.text, expected));
        roles_.push_back({});
        continue;
      }
      if (seen[at]) fault(line, c.column, fmt::format("column {} stands twice", c.text));
      seen[at] = true;
      const auto shapes = table_.family->columns.size();
      roles_.push_back(at < shapes ? Role{static_cast<int>(at), -1}
                                   : Role{-1, static_cast<int>(at - shapes)});
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!seen[i])
        fault(line, 1, fmt::format("missing column {} in a table of {}", expected[i], table_.family->name));
    }
    table_.numbers.resize(table_.family->columns.size());
    table_.words.resize(table_.family->columns.size());
  }

  std::optional<double> number(std::size_t line, const Cell& c, std::string_view what, double lowest,
                               bool integer) {
    double v = 0;
    const auto [end, error] = std::from_chars(c.text.data(), c.text.data() + c.text.size(), v);
    if (error != std::errc{} || end != c.text.data() + c.text.size() || !std::isfinite(v)) {
      fault(line, c.column, fmt::format("{}: expected a number, found \"{}\"", what, c.text));
      return std::nullopt;
    }
    if (v < lowest || v > kMostCount || (integer && v != std::floor(v))) {
      fault(line, c.column,
            fmt::format("{}: expected {}, found {}", what,
                        integer ? fmt::format("an integer from {:.0f}", lowest) : "a positive time", c.text));
      return std::nullopt;
    }
    return v;
  }

  void read_row(std::size_t line) {
    const std::vector<Cell> cells = cells_of(lines_[line]);
    if (cells.size() != roles_.size()) {
      fault(line, 1, fmt::format("{} cells, but {} columns", cells.size(), roles_.size()));
      return;
    }
    const std::size_t before = faults_.size();
    const auto columns = table_.family->columns;
    std::vector<double> numbers(columns.size(), 0);
    std::vector<std::string> words(columns.size());
    std::array<double, 4> times{0, 0, 0, 0};
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const Cell& c = cells[i];
      if (roles_[i].time >= 0) {
        const auto t = static_cast<std::size_t>(roles_[i].time);
        const auto v = number(line, c, sampled_ ? kSampled[t] : "latency_us",
                              t == 3 ? 1 : std::numeric_limits<double>::min(), t == 3);
        times[t] = v.value_or(1);
        continue;
      }
      const auto s = static_cast<std::size_t>(roles_[i].shape);
      const ColumnSpec& spec = columns[s];
      if (spec.kind == count || spec.kind == size) {
        numbers[s] = number(line, c, spec.name, spec.kind == count ? 1 : 0, true).value_or(1);
        continue;
      }
      words[s] = std::string(c.text);
      if (c.text.empty() && spec.kind == name) fault(line, c.column, fmt::format("{} is empty", spec.name));
      if (!c.text.empty() && !spec.words.empty() &&
          std::none_of(spec.words.begin(), spec.words.end(), [&](const char* w) { return c.text == w; })) {
        fault(line, c.column, fmt::format("{}: unknown name {}", spec.name, c.text),
              expected_one_of(c.text, std::vector<std::string>(spec.words.begin(), spec.words.end())));
      }
    }
    if (sampled_ && faults_.size() == before && !(times[1] <= times[0] && times[0] <= times[2]))
      fault(
          line, 1,
          fmt::format("p10_us {} <= median_us {} <= p90_us {} does not hold", times[1], times[0], times[2]));
    if (faults_.size() != before) return;
    std::string key;
    for (std::size_t i = 0; i < columns.size(); ++i) key += fmt::format("{}|{}|", numbers[i], words[i]);
    const auto [at, fresh] = shapes_.emplace(std::move(key), line);
    if (!fresh) {
      fault(line, 1, fmt::format("the shape of line {} again", at->second + 1), {"expected each shape once"});
      return;
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool is_word = columns[i].kind == name || columns[i].kind == optional_name;
      if (is_word) {
        table_.words[i].push_back(std::move(words[i]));
      } else {
        table_.numbers[i].push_back(numbers[i]);
      }
    }
    table_.median.emplace_back(times[0] / 1e6);
    table_.low.emplace_back((sampled_ ? times[1] : times[0]) / 1e6);
    table_.high.emplace_back((sampled_ ? times[2] : times[0]) / 1e6);
    table_.samples.push_back(sampled_ ? static_cast<std::int64_t>(times[3]) : 0);
  }

  const std::string& file_;
  std::vector<std::string_view> lines_;
  std::vector<Role> roles_;  // of the file's columns
  bool sampled_ = false;     // median and percentiles, not one value
  MeasurementTable table_;
  std::unordered_map<std::string, std::size_t> shapes_;  // line of each shape
  std::vector<Diagnostic> faults_;
};

std::size_t column_index(const FamilySpec& f, std::string_view column) {
  const auto at =
      std::find_if(f.columns.begin(), f.columns.end(), [&](const ColumnSpec& c) { return c.name == column; });
  SL_CHECK(at != f.columns.end(), fmt::format("{} has no column {}", f.name, column));
  return static_cast<std::size_t>(at - f.columns.begin());
}

}  // namespace

std::span<const FamilySpec> families() { return kFamilies; }

const FamilySpec& family(const std::string& wanted) {
  std::vector<std::string> names;
  for (const FamilySpec& f : kFamilies) {
    if (wanted == f.name) return f;
    names.emplace_back(f.name);
  }
  throw UserError(
      {Diagnostic{{}, "unknown family of measurements " + wanted, expected_one_of(wanted, names)}});
}

const std::vector<double>& MeasurementTable::number(std::string_view column) const {
  const std::size_t i = column_index(*family, column);
  SL_CHECK(family->columns[i].kind == count || family->columns[i].kind == ColumnKind::size,
           "the column holds numbers");
  return numbers[i];
}

const std::vector<std::string>& MeasurementTable::word(std::string_view column) const {
  const std::size_t i = column_index(*family, column);
  SL_CHECK(family->columns[i].kind == name || family->columns[i].kind == optional_name,
           "the column holds names");
  return words[i];
}

MeasurementTable parse_measurements(const std::string& file_name, const std::string& text) {
  return Parser(file_name, text).run();
}

MeasurementTable load_measurements(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) throw UserError("cannot read " + file.string());
  return parse_measurements(file.filename().string(), text.str());
}

std::string measurement_csv(const MeasurementTable& t) {
  const bool sampled = std::any_of(t.samples.begin(), t.samples.end(), [](std::int64_t n) { return n > 0; });
  std::string out;
  for (const auto& [key, value] : t.provenance) out += fmt::format("# {}: {}\n", key, value);
  for (const ColumnSpec& c : t.family->columns) out += fmt::format("{},", c.name);
  out += sampled ? "median_us,p10_us,p90_us,samples\n" : "latency_us\n";
  for (std::size_t row = 0; row < t.size(); ++row) {
    for (std::size_t i = 0; i < t.family->columns.size(); ++i) {
      const ColumnKind kind = t.family->columns[i].kind;
      out += kind == name || kind == optional_name ? t.words[i][row] + ","
                                                   : fmt::format("{:.0f},", t.numbers[i][row]);
    }
    out += fmt::format("{}", t.median[row].value * 1e6);
    if (sampled)
      out += fmt::format(",{},{},{}", t.low[row].value * 1e6, t.high[row].value * 1e6, t.samples[row]);
    out += "\n";
  }
  return out;
}

}  // namespace shardline
