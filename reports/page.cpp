#include "reports/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "reports/json.hpp"
#include "reports/page_files.hpp"
#include "sim/base/error.hpp"

#ifndef SHARDLINE_VEGA_FILES
#define SHARDLINE_VEGA_FILES ""
#endif

namespace shardline {

namespace {

constexpr std::string_view kWithoutVega =
    "<p class=\"note\">The chart needs Vega: install the Debian package libjs-vega, configure and build "
    "shardline again, then write this page again. All else works without it.</p>";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

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

std::string script(std::string_view text) {
  return fmt::format("<script>\"use strict\";\n{}</script>\n", text);
}

// One text: what a script declares, those behind it use.
std::string joined_scripts() {
  std::string out;
  for (const PageFile& f : page_files()) {
    if (f.name.ends_with(".js") && !f.name.starts_with("vega_")) out += f.text;
  }
  return out;
}

// The modules as script elements, or nothing when one of them is missing. Debian ships Vega's modules without
// the bundle that joins them, and their browser branch overwrites one global object; their AMD branch names
// what it needs, so a loader of a few lines serves.
std::optional<std::string> vega_scripts(const std::vector<std::filesystem::path>& files) {
  if (files.empty()) return std::nullopt;
  // Vega's licence asks that its notice goes with it.
  std::string out = fmt::format("<!--\n{}-->\n", page_file("NOTICE")) + script(page_file("vega_loader.js"));
  for (const auto& file : files) {
    std::ostringstream text;
    std::ifstream in(file, std::ios::binary);
    if (!in || !(text << in.rdbuf())) return std::nullopt;
    std::string module = std::move(text).str();
    module.resize(
        std::min(module.size(), module.find("//# sourceMappingURL")));  // a reference to a file not there
    if (module.find("</script") != std::string::npos) return std::nullopt;
    const std::string name = file.filename().string();
    out += fmt::format("<script>vegaNext = {};\n{}</script>\n", json_string(name.substr(0, name.find('.'))),
                       module);
  }
  return out + script(page_file("vega_join.js"));
}

// A path or a command breaks behind its punctuation, never inside a word or behind a hyphen.
std::string code(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" /,:"), text.size() - 1) + 1;
    out += "<span>" + escaped(text.substr(0, end)) + "</span><wbr>";
    text.remove_prefix(end);
  }
  return "<code>" + out + "</code>";
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

}  // namespace

std::string_view page_file(std::string_view name) {
  const auto files = page_files();
  const auto at = std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.name == name; });
  SL_CHECK(at != files.end(), "every file of a page is built in");
  return at->text;
}

std::vector<std::filesystem::path> vega_files() {
  std::vector<std::filesystem::path> files;
  std::istringstream list(SHARDLINE_VEGA_FILES);
  for (std::string file; std::getline(list, file, ';');)
    if (!file.empty()) files.emplace_back(file);
  return files;
}

std::string page_html(const Page& page, const std::vector<std::filesystem::path>& vega) {
  const auto scripts = vega_scripts(vega);
  return filled(page_file("page.html"), [&](std::string_view name) -> std::string {
    if (name == "title") return escaped(page.title);
    if (name == "style") return std::string(page_file("page.css"));
    if (name == "header") return header(page);
    if (name == "note") return scripts ? "" : std::string(kWithoutVega);
    if (name == "data") return data_json(page);
    if (name == "vega") return scripts.value_or("");
    if (name == "script") return script(joined_scripts());
    SL_CHECK(false, "page.html has no other names");
    return "";
  });
}

std::string page_html(const Page& page) { return page_html(page, vega_files()); }

}  // namespace shardline
