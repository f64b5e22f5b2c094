#include "hardware/cost/fit_intervals.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kMostOfFamily = 1e9;
constexpr double kUnknownError = 0.6;  // as of a system file's parameters [H63]
constexpr double kMostFactor = 1e9;
constexpr double kMostLog = 20;  // a factor of 5e8: no kernel is off by more

void read_band(const Reader& r, HeldOutBand& out) {
  const Reader band = r.at("band");
  const std::vector<Reader> ends = band.items();
  if (ends.size() == 2) {
    out.band = {ends[0].number(-kMostLog, kMostLog), ends[1].number(-kMostLog, kMostLog)};
    if (out.band.low > out.band.high) band.fault("expected [low, high], low <= high");
  } else {
    band.fault("expected [low, high]");
  }
  out.rows = static_cast<std::size_t>(r.at("rows").integer(1, 1'000'000'000));
  if (const auto covered = r.find("covered")) out.covered = covered->number(0, 1);
}

std::string band_text(const HeldOutBand& b) {
  return fmt::format("rows: {}, band: [{:.4f}, {:.4f}]{}", b.rows, b.band.low, b.band.high,
                     b.covered < 0 ? "" : fmt::format(", covered: {:.4f}", b.covered));
}

// As read_error(): median and 90th percentile are what is asked for later.
std::optional<FitError> read_short_error(const Reader& r, const char* key) {
  const auto given = r.find(key);
  if (!given) return std::nullopt;
  FitError e;
  e.rows = static_cast<std::size_t>(given->at("rows").integer(1, 1'000'000'000));
  e.median = given->at("median").number(0, kMostFactor);
  e.p90 = given->at("p90").number(0, kMostFactor);
  e.worst = given->at("worst").number(0, kMostFactor);
  e.bias = given->at("bias").number(-1, kMostFactor);
  given->no_other_keys();
  return e;
}

std::string error_text(const char* key, const FitError& e) {
  return e.rows == 0
             ? ""
             : fmt::format(", {}: {{rows: {}, median: {:.4g}, p90: {:.4g}, worst: {:.4g}, bias: {:.4g}}}",
                           key, e.rows, e.median, e.p90, e.worst, e.bias);
}

SlowTactics read_slow(const Reader& r) {
  SlowTactics out;
  const auto count = [&](const char* key) {
    return static_cast<std::size_t>(r.at(key).integer(1, 1'000'000'000));
  };
  out.rows = count("rows");
  out.of_rows = count("of_rows");
  out.curves = count("curves");
  out.of_curves = count("of_curves");
  out.median = r.at("median").number(0, kMostFactor);
  out.p90 = r.at("p90").number(0, kMostFactor);
  if (out.rows > out.of_rows || out.curves > out.of_curves) r.fault("more are slow than there are");
  if (out.median > out.p90) r.fault("expected median <= p90");
  r.no_other_keys();
  return out;
}

double number_of(const Form& form, std::span<const double> x, std::string_view column) {
  const auto found = std::find(form.numbers.begin(), form.numbers.end(), column);
  SL_CHECK(found != form.numbers.end(), "families are named by columns of their form");
  return x[static_cast<std::size_t>(found - form.numbers.begin())];
}

}  // namespace

std::vector<double> model_family(const Form& form, std::span<const double> x) {
  const std::string_view family = form.family;
  const auto number = [&](std::string_view column) { return number_of(form, x, column); };
  if (family == "moe") return {number("hidden"), number("inter"), number("topk"), number("experts")};
  if (family == "attention_prefill" || family == "attention_decode")
    return {number("head_dim"), number("heads_q") / number("heads_kv")};
  if (family.starts_with("mla_") || family.starts_with("sparse_decode") ||
      family.starts_with("sparse_prefill"))
    return {number("heads_local")};
  if (family == "linear_attention") return {number("heads_k"), number("heads_v")};
  if (family == "mhc") return {number("hidden")};
  return {};
}

std::vector<double> tuned_curve(const Form& form, std::span<const double> x) {
  if (form.family != std::string_view("moe")) return {};
  std::vector<double> out;
  for (const char* column : form.numbers) {
    if (column != std::string_view("tokens")) out.push_back(number_of(form, x, column));
  }
  return out;
}

std::string slow_tactics_text(const SlowTactics& s) {
  const auto part = [](std::size_t of, std::size_t all) {
    return 100 * static_cast<double>(of) / static_cast<double>(all);
  };
  return fmt::format(
      "{:.1f} % of rows ({:.1f} % of curves) are of a slow tactic, {:.1f} times as long (90th percentile "
      "{:.1f})",
      part(s.rows, s.of_rows), part(s.curves, s.of_curves), s.median, s.p90);
}

std::optional<FarAxis> far_axis(const Form& form) {
  constexpr struct {
    std::string_view family, axis;
    double doublings;
  } kAxes[] = {{"attention_decode", "tokens", 2}, {"mla_decode", "kv_len", 2},  {"sparse_decode", "keys", 2},
               {"sparse_prefill", "keys", 2},     {"sparse_kernel", "keys", 2}, {"nccl", "gpus", 1},
               {"allreduce", "gpus", 1},          {"alltoall", "gpus", 1}};
  for (const auto& one : kAxes) {
    for (std::size_t a = 0; a < form.axes.size(); ++a) {
      if (form.family == one.family && form.axes[a].name == one.axis) return FarAxis{a, one.doublings};
    }
  }
  return std::nullopt;
}

FitIntervals derived_intervals(std::size_t rows, double p90) {
  FitIntervals out;
  const double end = std::log1p(rows > 0 ? p90 : kUnknownError);
  out.inside.band = {-end, end};
  out.derived = true;
  return out;
}

FitIntervals read_intervals(const Reader& r, const Form& form) {
  FitIntervals out;
  const Reader inside = r.at("inside");
  read_band(inside, out.inside);
  inside.no_other_keys();
  if (const auto family = r.find("family")) {
    read_band(*family, out.family.emplace());
    for (const Reader& one : family->at("families").items()) {
      std::vector<double>& names = out.family->families.emplace_back();
      for (const Reader& number : one.items()) names.push_back(number.number(0, kMostOfFamily));
    }
    out.family->error = read_short_error(*family, "error").value_or(FitError{});
    out.family->fast = read_short_error(*family, "fast").value_or(FitError{});
    family->no_other_keys();
  }
  if (const auto slow = r.find("slow")) out.slow = read_slow(*slow);
  if (const auto beyond = r.find("beyond")) {
    BeyondBand& b = out.beyond.emplace();
    read_band(*beyond, b);
    std::vector<std::string> axes;
    for (const FormAxis& axis : form.axes) axes.emplace_back(axis.name);
    b.axis = std::min(beyond->at("axis").one_of(axes), axes.size() - 1);
    b.from = beyond->at("from").number(-100, 100);
    b.to = beyond->at("to").number(-100, 100);
    if (b.to <= b.from) beyond->fault("expected from < to");
    beyond->no_other_keys();
  }
  r.no_other_keys();
  return out;
}

std::string intervals_yaml(const FitIntervals& i, const Form& form, const std::string& indent) {
  std::string out = fmt::format("{}inside: {{{}}}\n", indent, band_text(i.inside));
  if (i.family) {
    std::string all;
    for (const std::vector<double>& one : i.family->families)
      all += fmt::format("{}[{:g}]", all.empty() ? "" : ", ", fmt::join(one, ", "));
    out += fmt::format("{}family: {{{}{}{}, families: [{}]}}\n", indent, band_text(*i.family),
                       error_text("error", i.family->error), error_text("fast", i.family->fast), all);
  }
  if (i.slow)
    out += fmt::format(
        "{}slow: {{rows: {}, of_rows: {}, curves: {}, of_curves: {}, median: {:.4g}, p90: {:.4g}}}\n", indent,
        i.slow->rows, i.slow->of_rows, i.slow->curves, i.slow->of_curves, i.slow->median, i.slow->p90);
  if (i.beyond)
    out += fmt::format("{}beyond: {{axis: {}, from: {:.6g}, to: {:.6g}, {}}}\n", indent,
                       form.axes[i.beyond->axis].name, i.beyond->from, i.beyond->to, band_text(*i.beyond));
  return out;
}

}  // namespace shardline
