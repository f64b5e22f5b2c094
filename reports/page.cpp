#include "reports/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "reports/json.hpp"
#include "reports/page_parts.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

using page_parts::code;
using page_parts::escaped;
using page_parts::script;

std::string number_or_null(double value) { return std::isfinite(value) ? number_text(value) : "null"; }
std::string number_or_null(const std::optional<double>& value) {
  return value ? number_or_null(*value) : "null";
}

// To a thousandth: what the page rounds is then as tables have it.
std::string percent(double share) { return number_or_null(std::round(1e5 * share) / 1e3); }

template <class List, class TextOf>
std::string array_json(const List& list, TextOf text_of) {
  std::string out;
  for (const auto& one : list) out += (out.empty() ? "" : ",") + text_of(one);
  return "[" + out + "]";
}

// Texts that many points share, by their places in a list.
class Shared {
 public:
  std::size_t of(const std::string& text) {
    const auto known = std::find(texts_.begin(), texts_.end(), text);
    const auto place = static_cast<std::size_t>(known - texts_.begin());
    if (known == texts_.end()) texts_.push_back(text);
    return place;
  }
  std::string json() const { return array_json(texts_, json_string); }

 private:
  std::vector<std::string> texts_;
};

struct SharedTexts {
  Shared strategies, engines, parts, limits;
};

// Fields by position, because thousands of plans would repeat every name: see data.js.
std::string point_json(const PagePoint& p, SharedTexts& shared) {
  const auto number = [](const PageNumber& n) { return number_or_null(n.value); };
  const auto interval = [](const PageNumber& n) {
    return n.interval ? fmt::format("[{},{}]", percent(n.interval->low), percent(n.interval->high)) : "0";
  };
  const auto engine = [&](const std::string& name) { return std::to_string(shared.engines.of(name)); };
  const auto part = [&](const PagePart& t) {
    return fmt::format("[{},{},{}]", shared.parts.of(t.part), shared.limits.of(t.limit),
                       number_or_null(t.ms));
  };
  return fmt::format("[{},{},{},{},{},{},{},{},[{},{},{},{}],{}]", shared.strategies.of(p.strategy),
                     json_string(p.plan), json_string(p.command), array_json(p.engines, engine),
                     p.exact ? 1 : 0, p.frontier ? 1 : 0, array_json(p.numbers, number),
                     array_json(p.numbers, interval), percent(p.measured), percent(p.fitted),
                     percent(p.extrapolated), percent(p.assumed), array_json(p.parts, part));
}

std::string column_json(const PageColumn& c) {
  const char* better = c.better == Better::more ? "more" : c.better == Better::less ? "less" : "neither";
  return fmt::format(
      "{{\"name\":{},\"unit\":{},\"better\":\"{}\",\"filter\":{},\"interval\":{},\"errs\":{}}}",
      json_string(c.name), json_string(c.unit), better, c.filtered, c.interval, c.errs);
}

std::string target_json(const PageTarget& t) {
  return fmt::format("{{\"text\":{},\"column\":{},\"most\":{},\"value\":{},\"x\":{},\"y\":{}}}",
                     json_string(t.text), t.column, t.most, number_or_null(t.value), number_or_null(t.x),
                     number_or_null(t.y));
}

std::string data_json(const Page& page) {
  SharedTexts shared;
  // In the page's order, whichever plan has one first.
  for (const PageLimit& limit : page.limits) shared.limits.of(limit.name);
  const auto has_text = [&](const PagePart& part) {
    return std::any_of(page.limits.begin(), page.limits.end(),
                       [&](const PageLimit& limit) { return limit.name == part.limit; });
  };
  std::string rows;
  for (const PagePoint& p : page.points) {
    SL_CHECK(std::all_of(p.parts.begin(), p.parts.end(), has_text), "every limit of a part has its text");
    SL_CHECK(p.numbers.size() == page.columns.size(), "every plan has a number of every column");
    rows += (rows.empty() ? "" : ",\n") + point_json(p, shared);
  }
  const auto text = [](const PageLimit& limit) { return json_string(limit.text); };
  return fmt::format(
      "{{\"columns\":{},\n\"x\":{},\"y\":{},\"logX\":{},\"logY\":{},\"bands\":{},\"partsOf\":{},\n"
      "\"target\":{},\n\"strategies\":{},\"engines\":{},\"parts\":{},\"limits\":{},\"limitTexts\":{},\n"
      "\"points\":[\n{}\n]}}",
      array_json(page.columns, column_json), page.x, page.y, page.log_x, page.log_y, page.bands,
      json_string(page.parts_of), array_json(page.targets, target_json), shared.strategies.json(),
      shared.engines.json(), shared.parts.json(), shared.limits.json(), array_json(page.limits, text), rows);
}

// One text: what a script declares, those behind it use.
std::string joined_scripts() {
  std::string out;
  for (const PageFile& f : page_files()) {
    if (f.name.ends_with(".js") && !f.name.starts_with("vega_") && f.name != "curves.js") out += f.text;
  }
  return out;
}

std::string header(const Page& page) {
  std::string out = fmt::format("<h1>{}</h1>\n<p>{}</p>\n<dl>", escaped(page.title), escaped(page.summary));
  const auto row = [&](std::string_view name, std::string_view html) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, html);
  };
  if (page.scenario.find('\n') == std::string::npos)
    row("Scenario", code(page.scenario));
  else
    row("Scenario", "<details><summary>show</summary><pre>" + escaped(page.scenario) + "</pre></details>");
  row("Command", code(page.command));
  row("Version", code(page.version));
  if (!page.costs.empty()) row("Costs", escaped(page.costs));
  if (!page.interval_note.empty()) row("Intervals", escaped(page.interval_note));
  std::string target;
  for (const PageTarget& t : page.targets) target += (target.empty() ? "" : ", ") + t.text;
  if (!target.empty()) row("Target", escaped(target));
  return out + "</dl>\n";
}

std::string row_html(const std::vector<std::string>& cells, const char* tag, std::size_t plans) {
  std::string out = "<tr>";
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const bool plan = c + plans >= cells.size();
    out += fmt::format("<{}{}>{}</{}>", tag, plan ? " class=\"plan\"" : "",
                       plan && tag == std::string_view("td") ? code(cells[c]) : escaped(cells[c]), tag);
  }
  return out + "</tr>\n";
}

std::string table_html(const PageTable& t, std::size_t place) {
  const std::string title = fmt::format("table{}-title", place);
  std::string out = fmt::format("<h2 id=\"{}\">{}</h2>\n", title, escaped(t.title));
  if (!t.text.empty()) out += fmt::format("<p class=\"hint\">{}</p>\n", escaped(t.text));
  if (t.rows.empty()) return out;
  out += fmt::format(
      "<div class=\"scroll\" role=\"region\" aria-labelledby=\"{}\" tabindex=\"0\">\n<table class=\"whole\">"
      "<thead>{}</thead><tbody>\n",
      title, row_html(t.rows.front(), "th", t.plans));
  for (std::size_t r = 1; r < t.rows.size(); ++r) out += row_html(t.rows[r], "td", t.plans);
  return out + "</tbody></table></div>\n";
}

std::string tables_html(const Page& page) {
  std::string out;
  for (std::size_t t = 0; t < page.tables.size(); ++t) out += table_html(page.tables[t], t);
  return out;
}

// Without a chart, filters and a table of plans, which would be empty, and without scripts.
std::string tables_alone(const Page& page) {
  return filled(page_file("tables.html"), [&](std::string_view name) -> std::string {
    if (name == "title") return escaped(page.title);
    if (name == "style") return std::string(page_file("page.css"));
    if (name == "header") return header(page);
    if (name == "tables") return tables_html(page);
    SL_CHECK(false, "tables.html has no other names");
    return "";
  });
}

}  // namespace

std::string page_html(const Page& page, const std::vector<std::filesystem::path>& vega) {
  if (page.points.empty()) return tables_alone(page);
  const auto scripts = page_parts::vega_scripts(vega);
  return filled(page_file("page.html"), [&](std::string_view name) -> std::string {
    if (name == "title") return escaped(page.title);
    if (name == "style") return std::string(page_file("page.css"));
    if (name == "header") return header(page);
    if (name == "note") return scripts ? "" : std::string(page_parts::kWithoutVega);
    if (name == "tables") return tables_html(page);
    if (name == "data") return data_json(page);
    if (name == "vega") return scripts.value_or("");
    if (name == "script") return script(joined_scripts());
    SL_CHECK(false, "page.html has no other names");
    return "";
  });
}

std::string page_html(const Page& page) { return page_html(page, vega_files()); }

}  // namespace shardline
