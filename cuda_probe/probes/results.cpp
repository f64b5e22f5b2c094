#include "cuda_probe/probes/results.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "sim/base/error.hpp"

#ifndef SHARDLINE_COMMIT
#define SHARDLINE_COMMIT "unknown"
#endif
#ifndef SHARDLINE_VERSION
#define SHARDLINE_VERSION "unknown"
#endif

namespace shardline {

namespace {

bool is_word(const ColumnSpec& c) {
  return c.kind == ColumnKind::name || c.kind == ColumnKind::optional_name;
}

std::string or_unknown(const std::string& text) { return text.empty() ? "unknown" : text; }

std::string megahertz(double now, double highest) {
  if (now <= 0) return "unknown";
  return fmt::format("{:.0f} MHz now, {:.0f} MHz highest", now, highest);
}

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

}  // namespace

FamilyResult::FamilyResult(const std::string& family_name) {
  table_.family = &family(family_name);
  table_.numbers.resize(table_.family->columns.size());
  table_.words.resize(table_.family->columns.size());
}

void FamilyResult::add(std::initializer_list<Cell> cells, const Measured& m, Amount amount) {
  const auto columns = table_.family->columns;
  const auto named = [&](const ColumnSpec& column) {
    return std::find_if(cells.begin(), cells.end(),
                        [&](const Cell& c) { return std::string_view(c.column) == column.name; });
  };
  std::size_t known = 0;
  for (const ColumnSpec& column : columns) {
    const bool given = named(column) != cells.end();
    SL_CHECK(given || column.optional, fmt::format("a row of {} has {}", table_.family->name, column.name));
    known += given ? 1 : 0;
  }
  SL_CHECK(known == cells.size(), fmt::format("a row of {} names its own columns", table_.family->name));
  std::string shape;
  for (const Cell& c : cells) {
    shape += fmt::format("{}{}=", shape.empty() ? "" : " ", c.column);
    std::visit([&](const auto& v) { shape += fmt::format("{}", v); }, c.value);
  }
  discarded_ += m.discarded;
  if (!m.valid()) {
    note(fmt::format("dropped {}: {}", shape, m.dropped));
    return;
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto* const cell = named(columns[i]);
    const bool given = cell != cells.end();
    if (is_word(columns[i])) {
      table_.words[i].push_back(given ? std::get<std::string>(cell->value) : "");
    } else {
      table_.numbers[i].push_back(given ? static_cast<double>(std::get<std::int64_t>(cell->value)) : 0);
    }
  }
  table_.median.push_back(m.median);
  table_.low.push_back(m.p10);
  table_.high.push_back(m.p90);
  table_.samples.push_back(static_cast<std::int64_t>(m.samples));
  amounts_.push_back(amount);
  if (m.stop != Stop::exact) ++inexact_;
  if (m.drifted) note(fmt::format("drift of {:+.1f} % during {}", 100 * m.drift, shape));
  if (m.lowest_clock > 0) {
    lowest_clock_ = lowest_clock_ > 0 ? std::min(lowest_clock_, m.lowest_clock) : m.lowest_clock;
    highest_clock_ = std::max(highest_clock_, m.highest_clock);
  }
}

void FamilyResult::note(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');  // a line of the table's head
  notes_.push_back(std::move(text));
}

void FamilyResult::unmeasured(std::size_t left, std::size_t of, const std::string& why) {
  if (left > 0) note(fmt::format("{}: {} of {} shapes were not measured", why, left, of));
}

std::string FamilyResult::csv(const std::vector<std::pair<std::string, std::string>>& provenance) const {
  MeasurementTable t = table_;
  t.provenance = provenance;
  t.provenance.emplace_back("family", t.family->name);
  if (highest_clock_ > 0)
    t.provenance.emplace_back("sm_clock_measured",
                              fmt::format("{:.0f} to {:.0f} MHz", lowest_clock_, highest_clock_));
  t.provenance.emplace_back("samples_discarded", std::to_string(discarded_));
  t.provenance.emplace_back("rows_not_exact",
                            fmt::format("{} (stopped by the limits of samples or time)", inexact_));
  for (const std::string& n : notes_) t.provenance.emplace_back("note", n);
  return measurement_csv(t);
}

std::string FamilyResult::shape_text(std::size_t row) const {
  std::string out;
  for (std::size_t i = 0; i < table_.family->columns.size(); ++i) {
    const ColumnSpec& c = table_.family->columns[i];
    const std::string value =
        is_word(c) ? table_.words[i][row] : fmt::format("{:.0f}", table_.numbers[i][row]);
    if (!value.empty()) out += fmt::format("{}{}={}", out.empty() ? "" : " ", c.name, value);
  }
  return out;
}

std::string FamilyResult::summary(BytesPerSecond roof, std::size_t most) const {
  std::string out =
      fmt::format("{}: {}, {} shapes\n", table_.family->name, table_.family->summary, table_.size());
  const std::size_t rows = table_.size();
  std::vector<std::array<std::string, 5>> cells{{"median", "TFLOP/s", "GB/s", "of roof", "samples"}};
  std::vector<std::string> shapes{"shape"};
  std::array<std::size_t, 5> widths{};
  for (std::size_t i = 0; i < std::min(rows, most); ++i) {
    const std::size_t row = rows <= most || most < 2 ? i : i * (rows - 1) / (most - 1);
    const Amount& a = amounts_[row];
    const Seconds t = table_.median[row];
    const auto some = [](bool known, std::string text) { return known ? std::move(text) : std::string("-"); };
    shapes.push_back(shape_text(row));
    cells.push_back({to_string(t, 3),
                     some(a.flops > Flops(0), fmt::format("{:.1f}", (a.flops / t).value / 1e12)),
                     some(a.bytes > Bytes(0), fmt::format("{:.1f}", (a.bytes / t).value / 1e9)),
                     some(a.bytes > Bytes(0) && roof > BytesPerSecond(0),
                          fmt::format("{:.0f} %", 100 * ((a.bytes / t) / std::max(roof, BytesPerSecond(1))))),
                     std::to_string(table_.samples[row])});
  }
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (std::size_t l = 0; l < cells.size(); ++l) {
    out += " ";
    for (std::size_t i = 0; i < cells[l].size(); ++i) out += " " + padded(cells[l][i], widths[i] + 1);
    out += "  " + shapes[l] + "\n";
  }
  for (const std::string& n : notes_) out += "  note: " + n + "\n";
  return out;
}

std::vector<std::pair<std::string, std::string>> provenance(const DeviceInfo& d, const MeasureRule& rule,
                                                            const std::string& date,
                                                            const std::string& command) {
  return {
      {"made_by", "shardline-probe " SHARDLINE_VERSION},
      {"commit", SHARDLINE_COMMIT},
      {"command", or_unknown(command)},
      {"date", date},
      {"gpu", or_unknown(d.gpu)},
      {"gpus", std::to_string(d.gpus)},
      {"compute_capability", or_unknown(d.compute_capability)},
      {"multiprocessors", std::to_string(d.multiprocessors)},
      {"memory", to_string(d.memory)},
      {"l2_cache", to_string(d.l2)},
      {"driver", or_unknown(d.driver)},
      {"cuda_runtime", or_unknown(d.cuda_runtime)},
      {"cublaslt", or_unknown(d.cublaslt)},
      {"cudnn", or_unknown(d.cudnn)},
      {"nccl", or_unknown(d.nccl)},
      {"sm_clock", megahertz(d.sm_clock, d.sm_clock_highest)},
      {"memory_clock", megahertz(d.memory_clock, d.memory_clock_highest)},
      {"power_limit", d.power_limit > 0 ? fmt::format("{:.0f} W", d.power_limit) : "unknown"},
      {"temperature", d.temperature > 0 ? fmt::format("{:.0f} C at the start", d.temperature) : "unknown"},
      {"ecc", or_unknown(d.ecc)},
      {"mig", or_unknown(d.mig)},
      {"settings", "as found: none was changed"},
      {"stopping_rule", to_string(rule)},
      {"l2_policy",
       "cold: other data read through the L2 cache before each sample; calls inside a sample "
       "use operands of their own"},
      {"data", "normally distributed random numbers"}};
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

const std::vector<Probe>& probes() {
  static const std::vector<Probe> all{
      {"hbm", "copies, reads and writes of device memory", {"hbm_copy", "hbm_read", "hbm_write"}, 1},
      {"gemm", "cuBLASLt in bf16, fp8 and, where the GPU has it, nvfp4", {"gemm"}, 8},
      {"attention", "prefill attention: our kernels and cuDNN's", {"attention_prefill"}, 5},
      {"decode", "split-KV decode attention, contiguous and paged", {"attention_decode"}, 4},
      {"mla", "absorbed MLA decode, contiguous and paged", {"mla_decode"}, 2},
      {"merge", "partial outputs by log-sum-exp", {"merge"}, 1},
      {"launch", "empty kernels: eager, in a graph; events", {"launch"}, 0.5},
      {"p2p", "one message to one peer, or inside the GPU", {"p2p"}, 1},
      {"collective", "NCCL over all GPUs of this machine", {"nccl"}, 1.5},
      {"ring", "a step of ring attention, its two lanes alone and together", {"ring"}, 1.5},
  };
  return all;
}

std::vector<const Probe*> probes_named(const std::string& names) {
  std::vector<std::string> known, wanted;
  for (const Probe& p : probes()) known.emplace_back(p.name);
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = std::min(names.find(',', at), names.size());
    wanted.push_back(names.substr(at, end - at));
    at = end + 1;
  }
  std::vector<Diagnostic> faults;
  for (const std::string& w : wanted) {
    if (std::find(known.begin(), known.end(), w) == known.end())
      faults.push_back({{}, "unknown probe " + w, expected_one_of(w, known)});
  }
  if (!faults.empty()) throw UserError(std::move(faults));
  std::vector<const Probe*> out;
  for (const Probe& p : probes()) {
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), p.name) != wanted.end()) out.push_back(&p);
  }
  return out;
}

}  // namespace shardline
