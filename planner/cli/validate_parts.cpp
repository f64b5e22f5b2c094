#include "planner/cli/validate_parts.hpp"

#include <fmt/format.h>

#include <array>
#include <map>

#include "planner/api/checks.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/json.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

std::string item_text(const PaperItem& item) {
  if (!item.rows.empty()) {
    Table t(item.rows.front());
    for (std::size_t i = 1; i < item.rows.size(); ++i) t.add(item.rows[i]);
    return fitted(t);
  }
  const std::string indent(item.indent, ' ');
  std::string out = indent;
  for (const char c : item.text) {
    if (c == '\n')
      out += "\n" + indent;
    else if (c == '\t')
      out += "   ";
    else
      out += c;
  }
  return out + "\n";
}

std::string items_text(const std::vector<PaperItem>& items) {
  std::string out;
  for (const PaperItem& item : items) out += item_text(item);
  return out;
}

}  // namespace

WorkSteps shown_on(StepProgress& progress) {
  const auto go_on = [&progress] {
    progress.step();
    return !interrupted();
  };
  return {go_on, [&progress](std::uint64_t more) { progress.expect(more); }};
}

std::string terminal_text(const PaperReport& report) {
  std::string out = fmt::format("{}, {}\n{}", report.title, report.source, items_text(report.intro));
  for (const PaperSection& s : report.sections) out += "\n" + s.title + "\n" + items_text(s.items);
  return out;
}

void set_document(std::span<const PaperReport> reports, const Provenance& made_by) {
  if (made_by.document == nullptr) return;
  constexpr std::array kStandings{"held_out", "excluded", "repeated", "calibration", "derived"};
  constexpr std::array kVerdicts{"met", "missed", "explained", "open", "none"};
  const auto standing = [&](Standing s) { return kStandings[static_cast<std::size_t>(s)]; };
  api::ValidateResult out{made_by.version, made_by.command, {}};
  for (const PaperReport& r : reports) {
    api::PaperResult& paper = out.papers.emplace_back(api::PaperResult{r.id, r.title, r.source, {}, {}});
    for (const PaperGroup& g : r.groups)
      paper.groups.push_back({g.name, standing(g.counted), g.errors.count, g.errors.median, g.errors.largest,
                              g.fitted, g.finding, g.goal, kVerdicts[static_cast<std::size_t>(g.verdict)],
                              g.reason});
    for (const PaperPoint& p : r.points)
      paper.values.push_back({p.group, p.series, p.label, p.unit, p.published, p.ours, p.error(),
                              standing(p.standing), p.assumed});
  }
  made_by.document->set(api::to_json(out));
}

std::string values_csv(std::span<const PaperReport> reports) {
  std::string out = csv_line(
      {"paper", "group", "table", "value", "unit", "published", "ours", "error", "standing", "assumed"});
  for (const PaperReport& r : reports) {
    for (const PaperPoint& p : r.points)
      out += csv_line({r.id, p.group, p.series, p.label, p.unit, fmt::format("{:.12g}", p.published),
                       number_text(p.ours), number_text(p.error()), to_string(p.standing),
                       p.assumed ? number_text(*p.assumed) : ""});
  }
  return out;
}

Plot scatter_plot(const PaperReport& report, const std::string& footnote) {
  Plot p;
  p.title = report.title + ": predicted against published";
  p.x_label = "published (unit: legend)";
  p.y_label = "shardline";
  p.log_x = p.log_y = true;
  p.footnote = footnote;
  p.diagonal = Diagonal{0.1, "equal, and 10 % above and below"};
  std::vector<PlotSeries> held_out;
  PlotSeries fitted{"fitted: no prediction", PlotStyle::open_points, {}};
  PlotSeries left_out{"left out of a goal", PlotStyle::crosses, {}};
  PlotSeries assumed{"held out, with assumed parameters", PlotStyle::open_squares, {}};
  for (const PaperPoint& v : report.points) {
    if (v.assumed && *v.assumed != v.ours) assumed.points.emplace_back(v.published, *v.assumed);
    if (v.standing == Standing::calibration) fitted.points.emplace_back(v.published, v.ours);
    if (v.standing == Standing::excluded) left_out.points.emplace_back(v.published, v.ours);
    if (v.standing != Standing::held_out) continue;
    const std::string name = fmt::format("{} ({})", v.series, v.unit);
    if (held_out.empty() || held_out.back().name != name) held_out.push_back({name, PlotStyle::points, {}});
    held_out.back().points.emplace_back(v.published, v.ours);
  }
  // Grey marks first: a prediction on the same place stays visible.
  for (PlotSeries* s : {&fitted, &left_out, &assumed}) {
    if (!s->points.empty()) p.series.push_back(std::move(*s));
  }
  p.series.insert(p.series.end(), held_out.begin(), held_out.end());
  return p;
}

}  // namespace shardline::cli
