#include "hardware/cost/calibration.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "hardware/cost/kernel_list.hpp"
#include "hardware/machine/system.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/yaml_scalar.hpp"

namespace shardline {

namespace {

// What no machine is, so that a slip of a unit or of a file does not become a price. Shipped fits stay a
// factor of 1000 below these, but for the end of a confidence interval, which may be anywhere.
constexpr double kMostEnd = 1e15, kMostError = 1e6;  // errors: 1 is 100 %
constexpr int kMostCorrection = 10'000;  // thousandths of ln of a factor; the largest shipped is 3,040

// Fits seek a parameter between the form's ends, so that what lies beyond is of no fit: a slip of a unit, or
// of a hand. Files hold six digits.
bool within(const FormParameter& p, double value) {
  constexpr double kRounding = 1e-5;
  return value >= p.low * (1 - kRounding) && value <= p.high * (1 + kRounding);
}

constexpr std::size_t kMostKnots = 15000;
constexpr double kThousandths = 1000;
constexpr double kRangeRounding = 1e-3;  // doublings: files hold six digits

std::vector<double> numbers(const Reader& r, std::size_t count, double lowest, double highest) {
  const std::vector<Reader> items = r.items();
  std::vector<double> out;
  for (const Reader& item : items) out.push_back(item.number(lowest, highest));
  if (items.size() != count) {
    r.fault(fmt::format("{} values, but {} are needed", items.size(), count));
    out.resize(count, lowest);
  }
  return out;
}

/// Integers separated by blanks; nothing after a fault.
std::optional<std::vector<int>> integers(const Reader& r, int lowest, int highest) {
  const std::string text = r.text();
  std::vector<int> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto blank = [](char c) { return c == ' ' || c == '\n'; };
  while (at < end) {
    if (blank(*at)) {
      ++at;
      continue;
    }
    const std::string_view word(at, static_cast<std::size_t>(std::find_if(at, end, blank) - at));
    int value = 0;
    const auto [next, error] = std::from_chars(at, at + word.size(), value);
    const bool integer = next == at + word.size() && error != std::errc::invalid_argument;
    if (!integer || error != std::errc() || value < lowest || value > highest) {
      std::size_t most = 40;  // bytes that are shown, of whole characters
      while (most < word.size() && (static_cast<unsigned char>(word[most]) & 0xc0) == 0x80) --most;
      const std::string shown = std::string(word.substr(0, most)) + (most < word.size() ? "..." : "");
      r.fault_at_word(out.size(), word,
                      integer
                          ? fmt::format("{}: expected {} to {}, found {}", r.path(), lowest, highest, shown)
                          : fmt::format("\"{}\" is no integer", shown));
      return std::nullopt;
    }
    out.push_back(value);
    at = next;
  }
  return out;
}

std::vector<double> thousandths(const Reader& r, std::size_t count) {
  const auto values = integers(r, -kMostCorrection, kMostCorrection);
  if (!values) return std::vector<double>(count, 0);
  std::vector<double> out;
  for (const int value : *values) out.push_back(value / kThousandths);
  if (out.size() != count) {
    r.fault(fmt::format("{} values, but the knots make {}", out.size(), count));
    out.assign(count, 0);
  }
  return out;
}

FitError read_error(const Reader& r) {
  FitError e;
  e.rows = static_cast<std::size_t>(r.at("rows").integer(0, 1'000'000'000));
  e.median = r.at("median").number(0, kMostError);
  e.p90 = r.at("p90").number(e.median, kMostError);
  e.worst = r.at("worst").number(e.p90, kMostError);
  e.bias = r.at("bias").number(-1, kMostError);
  r.no_other_keys();
  return e;
}

// Where knots lie that are not evenly apart: ascending, per axis.
std::vector<std::vector<double>> read_places(const Reader& r, std::size_t axes) {
  std::vector<std::vector<double>> out;
  for (const Reader& axis : r.items()) {
    std::vector<double>& places = out.emplace_back();
    for (const Reader& item : axis.items()) places.push_back(item.number(-100, 100));
    if (places.empty() ||
        std::adjacent_find(places.begin(), places.end(), std::greater_equal()) != places.end())
      axis.fault("places of knots rise, and are one or more");
  }
  if (out.size() != axes) r.fault(fmt::format("{} axes, but {} are needed", out.size(), axes));
  out.resize(axes);
  for (std::vector<double>& places : out) {
    if (places.empty()) places.push_back(0);
  }
  return out;
}

Correction read_correction(const Reader& r, std::size_t axes) {
  Correction c;
  c.smoothing = r.at("smoothing").number(0, kMostError);
  if (const auto places = r.find("places")) {
    c.uneven = read_places(*places, axes);
    for (const std::vector<double>& p : c.uneven) c.knots.push_back(static_cast<int>(p.size()));
  } else {
    c.first = numbers(r.at("first"), axes, -100, 100);
    c.step = numbers(r.at("step"), axes, 1e-6, 100);
    for (const double k : numbers(r.at("knots"), axes, 1, static_cast<double>(kMostKnots)))
      c.knots.push_back(static_cast<int>(k));
  }
  std::size_t all = 1;
  for (const int k : c.knots) all = std::min(all * static_cast<std::size_t>(k), kMostKnots + 1);
  if (all > kMostKnots) {
    r.fault(fmt::format("more than {} knots", kMostKnots));
    return {};
  }
  c.values = thousandths(r.at("values"), all);
  r.no_other_keys();
  return c;
}

MeasuredCells read_cells(const Reader& r, std::size_t axes) {
  std::vector<int> first, count, runs;
  for (const double v : numbers(r.at("first"), axes, -100, 100)) first.push_back(static_cast<int>(v));
  std::size_t all = 1;
  for (const double v : numbers(r.at("cells"), axes, 1, 200)) {
    count.push_back(static_cast<int>(v));
    all = std::min(all * static_cast<std::size_t>(v), kMostCells + 1);
  }
  const Reader text = r.at("runs");
  const auto given = integers(text, 0, static_cast<int>(kMostCells));
  if (!given) return {};
  std::size_t sum = 0;
  for (const int run : *given) {
    runs.push_back(run);
    sum += static_cast<std::size_t>(run);
  }
  r.no_other_keys();
  if (all > kMostCells) {
    r.fault(fmt::format("more than {} cells", kMostCells));
    return {};
  }
  if (sum != all) {
    text.fault(fmt::format("runs of {} cells, but there are {}", sum, all));
    return {};
  }
  return {std::move(first), std::move(count), std::move(runs)};
}

KernelFit read_fit(const Reader& r) {
  KernelFit f;
  std::vector<std::string> names;
  for (const Form& form : forms()) names.emplace_back(form.family);
  f.form = &forms()[std::min(r.at("family").one_of(names), names.size() - 1)];
  if (r.at("family").text() != f.form->family) {  // what follows depends on it
    r.allow_other_keys();
    return f;
  }
  if (const auto variant = r.find("variant")) {
    for (const char* word : f.form->words) {
      const auto w = variant->find(word);
      f.words.push_back(w ? w->text() : "");
    }
    variant->no_other_keys();
  } else {
    f.words.resize(f.form->words.size());
  }
  if (const auto derived = r.find("derived")) f.derived = derived->text();
  const Reader parameters = r.at("parameters");
  for (const FormParameter& p : f.form->parameters) {
    const Reader one = parameters.at(p.name);
    const std::vector<double> v = numbers(one, 3, 0, kMostEnd);  // value, low, high
    if (v[0] > 0 && !within(p, v[0]))
      one.fault(fmt::format("{} {}{}{} is of no machine: expected {} to {}", p.name, v[0],
                            std::string_view(p.unit) == "1" ? "" : " ",
                            std::string_view(p.unit) == "1" ? "" : p.unit, p.low, p.high));
    if (one.items().size() == 3 && (!(v[0] > 0) || v[1] > v[0] || v[2] < v[0]))
      one.fault("expected [value, low, high], low <= value <= high");
    f.parameters.push_back(v[0]);
    f.low.push_back(v[1]);
    f.high.push_back(v[2]);
  }
  parameters.no_other_keys();
  const std::size_t axes = f.form->axes.size();
  const Reader range = r.at("range");
  for (std::size_t a = 0; a < axes; ++a) {
    const std::vector<double> v = numbers(range.at(f.form->axes[a].name), 2, -100, 100);
    if (v[0] > v[1]) range.at(f.form->axes[a].name).fault("expected [from, to], from <= to");
    f.range_low.push_back(v[0]);
    f.range_high.push_back(v[1]);
  }
  range.no_other_keys();
  if (const auto far = far_axis(*f.form)) f.far_axis = far->axis;
  if (const auto cells = r.find("measured")) f.cells = read_cells(*cells, axes);
  const Reader error = r.at("error");
  f.roofline = read_error(error.at("roofline"));
  f.alone = read_error(error.at("form"));
  f.corrected = read_error(error.at("corrected"));
  error.no_other_keys();
  const auto intervals = r.find("interval");
  f.intervals =
      intervals ? read_intervals(*intervals, *f.form) : derived_intervals(f.corrected.rows, f.corrected.p90);
  if (const auto c = r.find("correction")) f.correction = read_correction(*c, axes);
  r.no_other_keys();
  return f;
}

// Libraries' messages, whichever framework sends them; their kernels have names of their own.
bool of_library(const Form& form) {
  return form.family == std::string_view("nccl") || form.family == std::string_view("alltoall");
}

std::string list(const std::vector<double>& values) {
  std::string out;
  for (const double v : values) out += fmt::format("{}{:.6g}", out.empty() ? "" : ", ", v);
  return "[" + out + "]";
}

std::string knots_yaml(const Correction& c) {
  if (c.uneven.empty())
    return fmt::format("        first: {}\n        step: {}\n        knots: [{}]\n", list(c.first),
                       list(c.step), fmt::join(c.knots, ", "));
  std::string out = "        places:  # of knots, log2\n";
  for (const std::vector<double>& axis : c.uneven)
    out += fmt::format("          - [{:.8g}]\n", fmt::join(axis, ", "));
  return out;
}

// Integers on lines of about 100 characters.
std::string wrapped(const std::vector<int>& values) {
  std::string out;
  std::size_t column = 0;
  for (const int v : values) {
    const std::string text = std::to_string(v);
    if (column + text.size() > 100) {
      out += "\n          ";
      column = 0;
    } else if (!out.empty()) {
      out += " ";
    }
    out += text;
    column += text.size() + 1;
  }
  return out;
}

std::string error_text(const FitError& e) {
  return fmt::format("{{rows: {}, median: {:.4g}, p90: {:.4g}, worst: {:.4g}, bias: {:.4g}}}", e.rows,
                     e.median, e.p90, e.worst, e.bias);
}

}  // namespace

std::string KernelFit::name() const {
  std::string out(form->family);
  for (const std::string& word : words) out += word.empty() ? "" : " " + word;
  return out;
}

MachineKin Calibration::kin(const System& system, const Form& form) const {
  if (like.empty() && machine.has_measured(system, form)) return MachineKin::own;
  if (machine.same_processor(system)) return MachineKin::processor;
  return architecture_of(*this, system.device) == architecture_of(system.device) ? MachineKin::architecture
                                                                                 : MachineKin::stranger;
}

bool KernelFit::outside(std::span<const double> at) const {
  for (std::size_t a = 0; a < at.size(); ++a) {
    if (!in_range(a, at[a])) return true;
  }
  return !cells.empty() && !cells.near(at);
}

bool KernelFit::in_range(std::size_t axis, double at) const {
  return !(at < range_low[axis] - kRangeRounding || at > range_high[axis] + kRangeRounding);
}

Calibration read_calibration(const Reader& r) {
  Calibration c;
  c.source = r.at("source").text();
  c.hash = r.at("hash").text();
  c.date = r.at("date").text();
  c.version = r.at("version").text();
  if (const auto framework = r.find("framework")) {
    c.framework = framework->at("name").text();
    c.version_of_framework = framework->at("version").text();
    framework->no_other_keys();
  }
  if (const auto machine = r.find("machine")) c.machine = read_machine(*machine);
  std::vector<KernelFit> fits;
  for (const Reader& item : r.at("fits").items()) {
    check_cancelled();  // a calibration has hundreds, which takes tens of milliseconds
    fits.push_back(read_fit(item));
    if (!of_library(*fits.back().form)) fits.back().framework = c.framework;
    const KernelFit& last = fits.back();
    const auto same = [&](const KernelFit& f) { return f.form == last.form && f.words == last.words; };
    if (std::count_if(fits.begin(), fits.end(), same) > 1)
      item.fault("this family and variant stand here twice");
  }
  c.fits = std::move(fits);
  r.no_other_keys();
  return c;
}

std::string calibration_yaml(const Calibration& c) {
  std::string out =
      fmt::format("calibration:\n  source: {}\n  hash: {}\n  date: {}\n  version: {}\n",
                  yaml_quoted(c.source), yaml_quoted(c.hash), yaml_quoted(c.date), yaml_quoted(c.version));
  if (!c.framework.empty())
    out += fmt::format("  framework: {{name: {}, version: {}}}\n", yaml_quoted(c.framework),
                       yaml_quoted(c.version_of_framework));
  if (!c.machine.empty()) out += "  " + machine_yaml(c.machine) + "\n";
  out += "  fits:\n";
  for (const KernelFit& f : c.fits) {
    out += fmt::format("    - family: {}\n", f.form->family);
    std::string variant;
    for (std::size_t i = 0; i < f.words.size(); ++i) {
      // A kernel without a name stands in no file, so that files from before names stay what they are.
      if (f.words[i].empty() && f.form->words[i] == std::string_view("kernel")) continue;
      variant +=
          fmt::format("{}{}: {}", variant.empty() ? "" : ", ", f.form->words[i], yaml_quoted(f.words[i]));
    }
    if (!variant.empty()) out += fmt::format("      variant: {{{}}}\n", variant);
    if (!f.derived.empty()) out += fmt::format("      derived: {}\n", yaml_quoted(f.derived));
    out += "      parameters:  # value, 95 % confidence\n";
    for (std::size_t i = 0; i < f.parameters.size(); ++i)
      out += fmt::format(
          "        {}: {}  # {}\n", f.form->parameters[i].name,
          list({f.parameters[i], std::min(f.low[i], f.parameters[i]), std::max(f.high[i], f.parameters[i])}),
          f.form->parameters[i].unit);
    std::string range;
    for (std::size_t a = 0; a < f.range_low.size(); ++a)
      range += fmt::format("{}{}: {}", range.empty() ? "" : ", ", f.form->axes[a].name,
                           list({f.range_low[a], f.range_high[a]}));
    out += fmt::format("      range: {{{}}}  # log2\n", range);
    if (!f.cells.empty()) {
      out += fmt::format(
          "      measured:  # cells of a doubling with rows in them: runs of empty and occupied ones\n"
          "        first: [{}]\n        cells: [{}]\n        runs: >-\n          {}\n",
          fmt::join(f.cells.first(), ", "), fmt::join(f.cells.count(), ", "), wrapped(f.cells.runs()));
    }
    out += fmt::format(
        "      error:  # on rows that the fit had not seen\n        roofline: {}\n        form: {}\n        "
        "corrected: {}\n",
        error_text(f.roofline), error_text(f.alone), error_text(f.corrected));
    if (f.intervals.inside.rows > 0)
      out += "      interval:  # ln(measured / predicted) of such rows, 5 % and 95 %\n" +
             intervals_yaml(f.intervals, *f.form, "        ");
    if (f.correction.empty()) continue;
    std::vector<int> values;
    for (const double v : f.correction.values)
      values.push_back(static_cast<int>(std::lround(v * kThousandths)));
    out += fmt::format(
        "      correction:  # ln(measured / form) in thousandths\n        smoothing: {:.6g}\n{}        "
        "values: "
        ">-\n          {}\n",
        f.correction.smoothing, knots_yaml(f.correction), wrapped(values));
  }
  return out;
}

}  // namespace shardline
