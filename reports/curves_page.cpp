#include "reports/curves_page.hpp"

#include <fmt/format.h>

#include <cmath>

#include "reports/json.hpp"
#include "reports/page.hpp"
#include "reports/page_parts.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

using page_parts::escaped;

std::string series_json(const PlotSeries& s) {
  SL_CHECK(s.style == PlotStyle::line || s.style == PlotStyle::open_squares, "a style that the page draws");
  std::string points;
  for (const auto& [x, y] : s.points) {
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    points += fmt::format("{}[{},{}]", points.empty() ? "" : ",", number_text(x), number_text(y));
  }
  return fmt::format("{{\"name\":{},\"line\":{},\"points\":[{}]}}", json_string(s.name),
                     s.style == PlotStyle::line, points);
}

std::string plot_json(const Plot& p) {
  SL_CHECK(!p.diagonal && p.errors.empty(), "no bands");
  std::string series;
  for (const PlotSeries& s : p.series) series += (series.empty() ? "" : ",\n") + series_json(s);
  return fmt::format(
      "{{\"title\":{},\"x\":{},\"y\":{},\"logX\":{},\"logY\":{},\"note\":{},\"series\":[\n{}]}}",
      json_string(p.title), json_string(p.x_label), json_string(p.y_label), p.log_x, p.log_y,
      json_string(p.footnote), series);
}

std::string data_json(const CurvesPage& page) {
  std::string out;
  for (const Plot& p : page.plots) out += (out.empty() ? "" : ",\n") + plot_json(p);
  return "[" + out + "]";
}

std::string header(const CurvesPage& page) {
  std::string out = fmt::format("<h1>{}</h1>\n<p>{}</p>\n<dl>", escaped(page.title), escaped(page.summary));
  const auto row = [&](const std::string& name, const std::string& html) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), html);
  };
  for (const auto& [name, text] : page.lines) row(name, escaped(text));
  row("Command", page_parts::code(page.command));
  row("Version", page_parts::code(page.version));
  return out + "</dl>\n";
}

std::string table_html(const CurvesTable& t) {
  std::string head, rows;
  for (const std::string& cell : t.header) head += fmt::format("<th scope=\"col\">{}</th>", escaped(cell));
  for (const auto& row : t.rows) {
    SL_CHECK(row.size() == t.header.size(), "a cell of every column");
    std::string cells;
    for (const std::string& cell : row)
      cells += cells.empty() ? fmt::format("<th scope=\"row\">{}</th>", escaped(cell))
                             : fmt::format("<td>{}</td>", escaped(cell));
    rows += "<tr>" + cells + "</tr>\n";
  }
  return fmt::format(
      "<h2>{}</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>"
      "<thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n",
      escaped(t.caption), escaped(t.caption), head, rows);
}

}  // namespace

std::string curves_page_html(const CurvesPage& page, const std::vector<std::filesystem::path>& vega) {
  const auto scripts = page_parts::vega_scripts(vega);
  return filled(page_file("curves.html"), [&](std::string_view name) -> std::string {
    if (name == "title") return escaped(page.title);
    if (name == "style") return std::string(page_file("page.css"));
    if (name == "header") return header(page);
    if (name == "tables") {
      std::string out;
      for (const CurvesTable& t : page.tables) out += table_html(t);
      return out;
    }
    if (name == "note") return scripts ? "" : std::string(page_parts::kWithoutVega);
    if (name == "data") return data_json(page);
    if (name == "vega") return scripts.value_or("");
    if (name == "script") return page_parts::script(page_file("curves.js"));
    SL_CHECK(false, "curves.html has no other names");
    return "";
  });
}

std::string curves_page_html(const CurvesPage& page) { return curves_page_html(page, vega_files()); }

}  // namespace shardline
