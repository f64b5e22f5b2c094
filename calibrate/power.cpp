#include "calibrate/power.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "calibrate/csv.hpp"
#include "calibrate/held_out.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/read_text.hpp"
#include "sim/base/yaml_scalar.hpp"

namespace shardline {

namespace {

constexpr std::size_t kLeastRows = 40;
constexpr double kMostWatts = 10'000;
// What a waiting board draws, and what it draws at most, are quantiles of all readings.
constexpr double kIdleQuantile = 0.001, kMostQuantile = 0.99;

struct Columns {
  PowerClass of;
  std::vector<std::string_view> numbers;  // of the shape, in the order that op_of() takes them
  std::vector<std::string_view> words;
};
const std::vector<Columns>& tables() {
  static const std::vector<Columns> all{
      {PowerClass::prefill,
       {"batch", "seq_q", "kv_cached", "heads_q", "heads_kv", "head_dim", "window"},
       {"dtype_compute", "dtype_kv"}},
      {PowerClass::stream,
       {"batch", "kv_len", "heads_q", "heads_kv", "head_dim", "window"},
       {"dtype_compute", "dtype_kv"}},
      {PowerClass::product, {"m", "n", "k"}, {"dtype"}}};
  return all;
}

std::optional<Dtype> type_of(std::string_view word) {
  if (word == "bf16") return Dtype::bf16;
  if (word == "fp8" || word == "fp8_block") return Dtype::fp8;
  if (word == "nvfp4") return Dtype::fp4;
  return std::nullopt;
}

PricedOp product_op(const std::vector<double>& n, Dtype type) {
  PricedOp op;
  op.kind = OpKind::gemm;
  op.dtype = op.math = type;
  op.shape = GemmShape{static_cast<Count>(n[0]), static_cast<Count>(n[2]), static_cast<Count>(n[1])};
  return op;
}

// Causal: of a window no query sees more.
Count pairs_of(Count batch, Count rows, Count cached, Count window) {
  const Count all = window > 0 ? std::min(window, rows + cached) : rows + cached;
  const Count first = std::min(rows, std::max<Count>(0, all - cached));  // rows that see less than `all`
  return batch * ((cached + 1 + cached + first) * first / 2 + (rows - first) * all);
}

PricedOp prefill_op(const std::vector<double>& n, Dtype compute, Dtype kv) {
  const auto count = [&](std::size_t i) { return static_cast<Count>(n[i]); };
  AttendPrefillShape a;
  a.q_heads = count(3);
  a.kv_heads = count(4);
  a.qk_dim = a.v_dim = count(5);
  a.q_rows = count(0) * count(1);
  a.kv_rows = count(0) * (count(1) + count(2));
  a.pairs = pairs_of(count(0), count(1), count(2), count(6));
  PricedOp op;
  op.kind = OpKind::attend_prefill;
  op.dtype = kv;
  op.math = compute;
  op.shape = a;
  return op;
}

PricedOp decode_op(const std::vector<double>& n, Dtype compute, Dtype kv) {
  const auto count = [&](std::size_t i) { return static_cast<Count>(n[i]); };
  AttendDecodeShape a;
  a.q_heads = count(2);
  a.kv_heads = count(3);
  a.qk_dim = a.v_dim = count(4);
  a.q_rows = count(0);
  const Count seen = count(5) > 0 ? std::min(count(5), count(1)) : count(1);
  a.pairs = a.kv_rows = count(0) * seen;
  PricedOp op;
  op.kind = OpKind::attend_decode;
  op.dtype = kv;
  op.math = compute;
  op.shape = a;
  return op;
}

class PowerReader {
 public:
  PowerReader(CsvText& csv, const Device& device) : csv_(csv), device_(device) {}

  PowerTable read() {
    std::size_t at = 0;
    CancelCheck check;
    for (; at < csv_.lines().size() && (csv_.lines()[at].empty() || csv_.lines()[at][0] == '#'); ++at)
      check();
    if (at < csv_.lines().size() && find_columns(at)) {
      for (++at; at < csv_.lines().size() && !csv_.hopeless(); ++at) {
        check();
        if (!csv_.lines()[at].empty()) read_row(at);
      }
    }
    if (out_.rows.empty() && csv_.faults() == 0 && csv_.lines().empty())
      throw UserError(csv_.file() + ": the file is empty");
    csv_.finish();
    if (eager_ > 0)
      out_.notes.push_back(
          fmt::format("{}: {} rows left out, fp8_block products of vLLM, whose board waits for its host",
                      csv_.file(), eager_));
    return std::move(out_);
  }

 private:
  bool find_columns(std::size_t line) {
    const std::vector<CsvCell> header = csv_.cells(line);
    width_ = header.size();
    place_ = csv_.places(line, header);
    for (const Columns& c : tables()) {
      if (std::all_of(c.numbers.begin(), c.numbers.end(), [&](auto n) { return place_.contains(n); }))
        columns_ = &c;
      if (columns_ != nullptr) break;
    }
    if (columns_ == nullptr)
      csv_.fault(line,
                 "no table of power has these columns: expected those of gemm, attention_prefill or "
                 "attention_decode");
    for (const std::string_view name : {"power_w", "power_limit_w", "latency_us"}) {
      if (!place_.contains(name)) csv_.fault(line, fmt::format("column {} is missing", name));
    }
    if (columns_ != nullptr) {
      for (const std::string_view name : columns_->words) {
        if (!place_.contains(name)) csv_.fault(line, fmt::format("column {} is missing", name));
      }
    }
    return csv_.faults() == 0;
  }

  const CsvCell& cell(const std::vector<CsvCell>& cells, std::string_view name) const {
    return cells[place_.at(name)];
  }

  std::optional<double> watts(std::size_t line, const std::vector<CsvCell>& cells, std::string_view name) {
    const CsvCell& c = cell(cells, name);
    const auto v = csv_.number(line, c, name);
    if (!v || (*v >= 1 && *v <= kMostWatts)) return v;
    csv_.fault(line, c, name, fmt::format("{}: expected 1 to {:.0f} W, found {}", name, kMostWatts, c.text));
    return std::nullopt;
  }

  std::optional<Dtype> type(std::size_t line, const std::vector<CsvCell>& cells, std::string_view name) {
    const CsvCell& c = cell(cells, name);
    const auto v = type_of(c.text);
    if (!v)
      csv_.fault(line, c, name,
                 fmt::format("{}: expected bf16, fp8, fp8_block or nvfp4, found \"{}\"", name, c.text));
    return v;
  }

  void read_row(std::size_t line) {
    const std::vector<CsvCell> cells = csv_.cells(line);
    if (cells.size() != width_)
      return csv_.fault(line, fmt::format("expected {} cells, found {}", width_, cells.size()));
    std::vector<double> numbers;
    std::string shape;
    for (const std::string_view name : columns_->numbers) {
      const double least = name == "kv_cached" || name == "window" ? 0 : 1;
      const auto v = csv_.integer(line, cell(cells, name), name, least);
      numbers.push_back(v.value_or(1));
      shape += fmt::format(" {:.0f}", numbers.back());
    }
    std::vector<Dtype> types;
    for (const std::string_view name : columns_->words)
      types.push_back(type(line, cells, name).value_or(Dtype::bf16));
    const auto power = watts(line, cells, "power_w"), limit = watts(line, cells, "power_limit_w");
    const auto time = csv_.time(line, cell(cells, "latency_us"), "latency_us");
    if (!power || !limit || !time) return;
    if (out_.limit > 0 && *limit != out_.limit)
      return csv_.fault(line, cell(cells, "power_limit_w"), "power_limit_w",
                        fmt::format("power_limit_w: {} in rows before", out_.limit));
    out_.limit = *limit;
    if (columns_->of == PowerClass::product && cell(cells, "dtype").text == "fp8_block" &&
        place_.contains("engine") && cell(cells, "engine").text.starts_with("vllm")) {
      ++eager_;
      return;
    }
    const PricedOp op = columns_->of == PowerClass::product   ? product_op(numbers, types[0])
                        : columns_->of == PowerClass::prefill ? prefill_op(numbers, types[0], types[1])
                                                              : decode_op(numbers, types[0], types[1]);
    out_.rows.push_back({columns_->of, device_use(device_, op, Seconds(*time * 1e-6)), *power, shape});
  }

  CsvText& csv_;
  const Device& device_;
  const Columns* columns_ = nullptr;
  std::map<std::string_view, std::size_t> place_;
  std::size_t width_ = 0, eager_ = 0;
  PowerTable out_;
};

using Numbers = std::array<double, 3>;  // base, tensor, memory

double predicted(const Numbers& n, const DeviceUse& use, double most) {
  return std::min(most, n[0] + n[1] * use.tensor + n[2] * use.memory);
}

double loss(const Numbers& n, const std::vector<PowerRow>& rows, double most) {
  double sum = 0;
  for (const PowerRow& r : rows) sum += std::abs(std::log(r.watts / predicted(n, r.use, most)));
  return sum;
}

// A search along each number and all diagonals, in steps that halve: the loss has corners, at which it falls
// only where several numbers change at once, but one valley.
Numbers least_loss(const std::vector<PowerRow>& rows, double idle, double most) {
  constexpr double kLastStep = 0.25;  // W
  constexpr int kDirections = 125;    // {-2 ... 2} of each number
  Numbers best{idle * 1.5, most, most / 2};
  double least = loss(best, rows, most);
  for (double step = most / 4; step > kLastStep;) {
    bool better = false;
    for (int d = 0; d < kDirections; ++d) {
      const Numbers n{std::clamp(best[0] + (d % 5 - 2) * step, idle, 4 * most),
                      std::clamp(best[1] + (d / 5 % 5 - 2) * step, 0.0, 4 * most),
                      std::clamp(best[2] + (d / 25 - 2) * step, 0.0, 4 * most)};
      const double l = loss(n, rows, most);
      if (l >= least) continue;
      best = n;
      least = l;
      better = true;
    }
    if (!better) step /= 2;
  }
  return best;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(std::lround(q * last))];
}

// Parts of all shapes, the same for rows of one shape; FNV-1a, which no library's hash stands in for.
int fold_of(const std::string& shape, int folds) {
  std::uint64_t h = 14695981039346656037ULL;
  for (const char c : shape) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return static_cast<int>((h >> 32) % static_cast<std::uint64_t>(folds));
}

void fit_class(const std::vector<PowerRow>& rows, int folds, PowerLaw& law, PowerFit::OfClass& error,
               const BoardPower& board) {
  const Numbers all = least_loss(rows, board.idle, board.most);
  law.base = std::round(all[0]);
  law.tensor = std::round(all[1]);
  law.memory = std::round(all[2]);
  HeldOut held;
  std::vector<double> off;
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<PowerRow> others;
    for (const PowerRow& r : rows) {
      if (fold_of(r.shape, folds) != fold) others.push_back(r);
    }
    const Numbers n = least_loss(others, board.idle, board.most);
    for (const PowerRow& r : rows) {
      if (fold_of(r.shape, folds) != fold) continue;
      const double ratio = r.watts / predicted(n, r.use, board.most);
      held.add(std::log(ratio), fold);
      off.push_back(std::abs(1 / ratio - 1));
    }
  }
  const HeldOutBand band = held_out_band(held);
  law.band = band.band;
  error = {rows.size(), quantile(off, 0.5), quantile(off, 0.9), band.covered};
}

}  // namespace

PowerTable parse_power(const std::string& file_name, const std::string& text, const Device& device) {
  CsvText csv(file_name, text);
  return PowerReader(csv, device).read();
}

PowerTable load_power(const std::filesystem::path& file, const Device& device) {
  return parse_power(file.string(), read_text(file, kLargestTable), device);
}

PowerFit fit_power(const std::vector<PowerRow>& rows, int folds) {
  PowerFit out;
  std::vector<double> readings;
  for (const PowerRow& r : rows) readings.push_back(r.watts);
  if (rows.size() < kLeastRows)
    throw UserError(fmt::format("{} rows of power are too few for a law: {} of each of {} kinds are needed",
                                rows.size(), kLeastRows, kPowerClasses));
  out.power.idle = std::round(quantile(readings, kIdleQuantile));
  out.power.most = std::round(quantile(readings, kMostQuantile));
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    std::vector<PowerRow> own;
    for (const PowerRow& r : rows) {
      if (static_cast<std::size_t>(r.of) == k) own.push_back(r);
    }
    if (own.size() < kLeastRows)
      throw UserError(fmt::format("{} rows of {}: at least {} are needed to tell a law's three numbers",
                                  own.size(), power_key(static_cast<PowerClass>(k)), kLeastRows));
    fit_class(own, folds, out.power.laws[k], out.classes[k], out.power);
  }
  return out;
}

std::string power_yaml(const BoardPower& p) {
  std::string out = fmt::format(
      "power:  # fitted by shardline calibrate --power, not edited by hand\n"
      "  idle_w: {:.0f}\n  most_w: {:.0f}\n  source: {}\n",
      p.idle, p.most, yaml_quoted(p.source));
  for (std::size_t k = 0; k < kPowerClasses; ++k) {
    const PowerLaw& law = p.laws[k];
    out += fmt::format(
        "  {}: {{base_w: {:.0f}, tensor_w: {:.0f}, memory_w: {:.0f}, band: [{:.3f}, {:.3f}]}}\n",
        power_key(static_cast<PowerClass>(k)), law.base, law.tensor, law.memory, law.band.low, law.band.high);
  }
  return out;
}

}  // namespace shardline
