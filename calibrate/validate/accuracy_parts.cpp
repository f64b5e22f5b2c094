#include "calibrate/validate/accuracy_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "calibrate/rows.hpp"

namespace shardline::cli::accuracy_parts {

namespace {

constexpr std::size_t kWidth = 120;

std::string cell_of(const FamilyAccuracy& a) {
  if (a.worst == nullptr) return "unknown";
  std::string out = error_text(reported_error(*a.best));
  if (a.best != a.worst) out += " to " + error_text(reported_error(*a.worst));
  return a.missed > 0 ? fmt::format("{} !{}", out, a.missed) : out;
}

// "h100-hgx" and "sglang"; the kernels of a system's own calibration have no framework in its name.
std::pair<std::string, std::string> machine_and_framework(const System& s) {
  const std::size_t dot = std::min(s.name.find('.'), s.name.size());
  return {s.name.substr(0, dot), s.name.substr(std::min(dot + 1, s.name.size()))};
}

// To two digits, as a miss may be narrow.
std::string exact_text(const FitError& e) {
  return fmt::format("{:.2f}/{:.2f}", 100 * e.median, 100 * e.p90);
}

std::string framework_text(const std::string& name) { return name.empty() ? "own, libraries" : name; }

// A row per operation and machine, a column per framework.
std::vector<Row> glance_table(std::span<const System> systems) {
  std::vector<std::string> machines, frameworks;
  std::map<std::pair<std::string, std::string>, std::vector<FamilyAccuracy>> all;
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const System& s : systems) {
    const auto key = machine_and_framework(s);
    add(machines, key.first);
    add(frameworks, key.second);
    all[key] = accuracy_by_family(s.calibration);
  }
  std::vector<Row> table{{"Operation", "Goal", "System"}};
  for (const std::string& f : frameworks) table[0].push_back(framework_text(f));
  for (const AccuracyGoal& goal : accuracy_goals()) {
    for (const std::string& machine : machines) {
      Row row{goal.title, family_goals_text(goal), machine};
      bool any = false;
      for (const std::string& framework : frameworks) {
        const auto& families = all[{machine, framework}];
        const auto found = std::find_if(families.begin(), families.end(),
                                        [&](const FamilyAccuracy& a) { return a.goal == &goal; });
        row.push_back(found == families.end() ? "-" : cell_of(*found));
        any = any || found != families.end();
      }
      if (any) table.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace

// Aligned, so that it reads well as it stands; columns of numbers to the right.
std::string markdown(const std::vector<Row>& rows) {
  const std::size_t columns = rows.front().size();
  std::vector<std::size_t> widths(columns, 3);
  std::vector<bool> right(columns, true);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const std::string& cell = rows[r][c];
      widths[c] = std::max(widths[c], cell.size());
      if (r > 0 && (cell.empty() || std::string_view("0123456789+-").find(cell[0]) == std::string_view::npos))
        right[c] = false;
    }
  }
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t c = 0; c < columns; ++c)
      out += right[c] ? fmt::format("| {:>{}} ", rows[r][c], widths[c])
                      : fmt::format("| {:<{}} ", rows[r][c], widths[c]);
    out += "|\n";
    if (r > 0) continue;
    for (std::size_t c = 0; c < columns; ++c)
      out += fmt::format("|{}{}", std::string(widths[c] + 1, '-'), right[c] ? ":" : "-");
    out += "|\n";
  }
  return out + "\n";
}

// A paragraph, broken at spaces.
std::string paragraph(const std::string& text) {
  std::istringstream words(text);
  std::string out, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line + "\n\n";
}

std::string error_text(const FitError& e) {
  return e.rows == 0 ? "-" : fmt::format("{:.1f}/{:.1f}", 100 * e.median, 100 * e.p90);
}
std::string goal_text(const AccuracyGoal& g) {
  return fmt::format("{:.3g}/{:.3g}", 100 * g.median, 100 * g.p90);
}
std::string family_goals_text(const AccuracyGoal& family) {
  std::string out = goal_text(family);
  for (const AccuracyGoal& g : narrower_goals()) {
    if (g.family == std::string_view(family.family)) out += ", " + goal_text(g);
  }
  return out;
}

std::string glance(std::span<const System> systems) {
  std::vector<Row> missed{{"System", "Operation", "Variant", "Error", "Seen", "Goal"}};
  std::size_t variants = 0, unknown = 0;
  for (const System& s : systems) {
    variants += s.calibration.fits.size();
    for (const FamilyAccuracy& a : accuracy_by_family(s.calibration)) {
      for (const KernelFit* f : a.fits) {
        const FitError& error = reported_error(*f);
        const AccuracyGoal& goal = accuracy_goal(*f);
        const Verdict v = verdict(error, goal);
        unknown += v == Verdict::unknown ? 1 : 0;
        if (v == Verdict::missed)
          missed.push_back({s.name, a.goal->title, variant_name(f->words), exact_text(error),
                            &error == &f->corrected ? "-" : exact_text(f->corrected), goal_text(goal)});
      }
    }
  }
  std::string out = "## At a glance\n\n";
  out += paragraph(R"(
Errors on shapes that the fit had not seen, of MoE experts on models none of whose shapes it had
seen, median/90th percentile in % of the measured time. A family has one fit per variant (data type, kernel, operation); shown are its best and its worst
variant, worst being farthest from the goal. `!3`: three variants miss the goal. `-`: not measured.
A column per framework whose kernels were measured; *own*: those of the system's own calibration,
TensorRT-LLM's where it was measured, and of libraries.)");
  out += markdown(glance_table(systems));
  const std::size_t above = missed.size() - 1;
  out += paragraph(fmt::format(
      "{} variants: {} meet their goal, {} miss it{}{}", variants, variants - above - unknown, above,
      unknown > 0 ? fmt::format(", {} have no held-out rows", unknown) : "", above > 0 ? ":" : "."));
  if (above == 0) return out;
  return out + markdown(missed) + paragraph(R"(
Seen: of MoE experts, the error on shapes of models that the fit has seen; the rest is what an unseen model adds.
What part of a GEMM's miss is in the table itself, where one is given: "Scatter of the tables" below.)");
}

}  // namespace shardline::cli::accuracy_parts
