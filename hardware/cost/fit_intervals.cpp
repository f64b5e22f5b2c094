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
constexpr double kMostLog = 20;        // a factor of 5e8: no kernel is off by more

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
  if (family.starts_with("mla_")) return {number("heads_local")};
  return {};
}

std::optional<FarAxis> far_axis(const Form& form) {
  constexpr struct {
    std::string_view family, axis;
    double doublings;
  } kAxes[] = {{"attention_decode", "tokens", 2},
               {"mla_decode", "kv_len", 2},
               {"nccl", "gpus", 1},
               {"allreduce", "gpus", 1},
               {"alltoall", "gpus", 1}};
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
    family->no_other_keys();
  }
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
    out += fmt::format("{}family: {{{}, families: [{}]}}\n", indent, band_text(*i.family), all);
  }
  if (i.beyond)
    out += fmt::format("{}beyond: {{axis: {}, from: {:.6g}, to: {:.6g}, {}}}\n", indent,
                       form.axes[i.beyond->axis].name, i.beyond->from, i.beyond->to, band_text(*i.beyond));
  return out;
}

}  // namespace shardline
