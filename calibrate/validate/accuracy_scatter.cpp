// What reports/accuracy.md says of the measurements themselves: how far rows lie apart that ought to be
// equal.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "calibrate/rows.hpp"
#include "calibrate/scatter.hpp"
#include "calibrate/validate/accuracy.hpp"
#include "calibrate/validate/accuracy_parts.hpp"

namespace shardline::cli {

using namespace accuracy_parts;

namespace {

constexpr const char* kProducts = "gemm";
constexpr std::size_t kFewestRows = 20;  // whose 90th percentile says anything

/// A variant's rows of one system's table.
struct Products {
  const MeasuredTables* of = nullptr;
  std::vector<std::string> words;
  FitRows rows;
};

std::vector<Products> products_of(std::span<const MeasuredTables> measured) {
  const Form& form = *find_form(kProducts);
  std::vector<Products> out;
  for (const MeasuredTables& m : measured) {
    for (const MeasurementTable& t : m.tables) {
      if (t.family->name != std::string_view(kProducts)) continue;
      for (auto& [words, rows] : rows_of(form, m.system, t).variants)
        out.push_back({&m, words, std::move(rows)});
    }
  }
  return out;
}

const KernelFit* fit_of(const Products& p) {
  for (const KernelFit& f : p.of->system.calibration.fits) {
    if (f.form == find_form(kProducts) && f.words == p.words) return &f;
  }
  return nullptr;
}

std::vector<double> at(const std::vector<double>& all, std::span<const std::size_t> rows) {
  std::vector<double> out;
  for (const std::size_t row : rows) out.push_back(all[row]);
  return out;
}

std::vector<double> predicted(const Products& p, const KernelFit& f, std::span<const std::size_t> rows) {
  FormContext context;
  f.form->context(f.words, p.of->system, context);
  std::vector<double> out;
  for (const std::size_t row : rows)
    out.push_back(predict(*f.form, context, f.parameters, f.correction, p.rows.x(row)));
  return out;
}

/// Whether a goal asks for less than the rows scatter by.
bool below(const AccuracyGoal& goal, const FitError& scatter) {
  return goal.median < scatter.median || goal.p90 < scatter.p90;
}

// A miss that the rows themselves cause is another than one that a better form would mend.
const char* verdict_text(const FitError& error, const AccuracyGoal& goal, const FitError& scatter) {
  if (verdict(error, goal) != Verdict::missed) return "met";
  return below(goal, scatter) ? "missed: these rows cannot meet it" : "missed: could be better";
}

std::vector<Row> tiles(std::span<const Products> all) {
  std::vector<Row> table{
      {"System", "Variant", "Rows", "Scatter", "Fit there", "Unseen shapes", "Goal", "Goal is", "Verdict"}};
  for (const Products& p : all) {
    const KernelFit* f = fit_of(p);
    const Neighbours near = in_one_tile(p.rows);
    if (f == nullptr || near.rows.size() < kFewestRows) continue;
    const std::vector<double> times = at(p.rows.seconds, near.rows);
    const FitError scatter = summarise(near.seconds, times);
    const AccuracyGoal& goal = accuracy_goal(*f);
    table.push_back(
        {p.of->system.name, variant_name(p.words), fmt::format("{}", scatter.rows), error_text(scatter),
         error_text(summarise(predicted(p, *f, near.rows), times)), error_text(f->corrected), goal_text(goal),
         below(goal, scatter) ? "below the scatter" : "above", verdict_text(f->corrected, goal, scatter)});
  }
  return table;
}

/// "h100-hgx" of "h100-hgx.vllm".
std::string_view machine_of(const Products& p) {
  const std::string_view name = p.of->system.name;
  return name.substr(0, name.find('.'));
}

// BF16 products are cuBLAS's in all engines.
std::vector<Row> repeats(std::span<const Products> all) {
  std::vector<Row> table{{"Rows of", "By rows of", "Rows", "Ratio", "Apart"}};
  for (const Products& a : all) {
    for (const Products& b : all) {
      if (a.words[0] != "bf16" || b.words[0] != "bf16" || machine_of(a) != machine_of(b) ||
          a.of->system.name >= b.of->system.name)
        continue;
      Repeats r = repeats_of(a.rows, b.rows);
      if (r.first.size() < kFewestRows) continue;
      std::vector<double> ratios;
      for (std::size_t i = 0; i < r.first.size(); ++i) ratios.push_back(r.first[i] / r.second[i]);
      std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2),
                       ratios.end());
      const double ratio = ratios[ratios.size() / 2];
      for (double& s : r.second) s *= ratio;
      table.push_back({a.of->system.name, b.of->system.name, fmt::format("{}", r.first.size()),
                       fmt::format("{:.3f}", ratio), error_text(summarise(r.second, r.first))});
    }
  }
  return table;
}

}  // namespace

std::string scatter_section(std::span<const MeasuredTables> measured) {
  const std::vector<Products> all = products_of(measured);
  const std::vector<Row> of_tiles = tiles(all), of_repeats = repeats(all);
  std::string out;
  if (of_tiles.size() > 1)
    out += paragraph(R"(
Products of 1 to 128 rows that fill the same tile do the same work: n and k are equal, and m lies in one block of 16.
*Scatter*: how far such a row is from the median of the others, three at least; *fit there*: how far the prices are from
the same rows, which they have seen; *unseen shapes*: the error of all shapes that the goal is held against. A goal
below the scatter asks for more than these rows know of each other (`calibrate/README.md`, [F11]): *these rows cannot
meet it*, whatever the form; where the goal is above, a miss is the fit's and *could be better*.)") +
           markdown(of_tiles);
  if (of_repeats.size() > 1)
    out += paragraph(R"(
All engines leave BF16 products to cuBLAS: their tables of one machine are repetitions of one measurement, by other
releases. *Apart*: how far a row is from the other table's row of the same shape, times the median ratio of both; of this
each table has its part.)") +
           markdown(of_repeats);
  return out.empty() ? "" : "## Scatter of the tables\n\n" + out;
}

}  // namespace shardline::cli
