#include "reports/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "reports/json.hpp"
#include "reports/page_script.hpp"

#ifndef SHARDLINE_VEGA_FILES
#define SHARDLINE_VEGA_FILES ""
#endif

namespace shardline {

namespace {

constexpr std::string_view kStyle = R"css(
:root { color-scheme: light; --ink: #1c2430; --soft: #5c6675; --line: #dfe3e8; --tint: #f5f7f9; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1500px; padding: 20px 28px 48px; background: #fff; color: var(--ink);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { margin: 0 0 2px; font-size: 23px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 26px 0 8px; font-size: 17px; }
p { margin: 0 0 8px; overflow-wrap: anywhere; }
code, pre { font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere; }
pre { margin: 6px 0 0; padding: 10px; background: var(--tint); overflow: auto; max-height: 300px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 1px 14px; margin: 6px 0 14px; font-size: 13.5px; }
dd { margin: 0; min-width: 0; }
summary { cursor: pointer; }
.controls { display: flex; flex-wrap: wrap; gap: 8px 26px; padding: 10px 14px; background: var(--tint);
  border: 1px solid var(--line); border-radius: 8px; font-size: 14px; }
.controls > div { display: flex; flex-wrap: wrap; align-items: center; gap: 5px 13px; }
.controls label { display: inline-flex; align-items: center; gap: 5px; cursor: pointer; }
.controls input { margin: 0; accent-color: var(--accent); }
.name, dt, .hint { color: var(--soft); }
button, select { font: inherit; font-size: 13px; color: inherit; background: #fff; border: 1px solid #c3cad3;
  border-radius: 5px; padding: 2px 8px; cursor: pointer; }
button:hover { border-color: var(--accent); color: var(--accent); }
#chart { margin-top: 14px; min-width: 0; overflow: hidden; }
.note { padding: 12px 14px; background: #fff6e5; border: 1px solid #f0d9a8; border-radius: 8px; }
.hint { font-size: 13px; margin: 2px 0 0; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { padding: 5px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { position: relative; background: var(--tint); font-weight: 600; cursor: pointer; user-select: none; }
th:hover, th:focus-visible { color: var(--accent); }
th[aria-sort=ascending]::after { content: " \25B2"; font-size: 9px; }
th[aria-sort=descending]::after { content: " \25BC"; font-size: 9px; }
.text { text-align: left; }
td.plan { white-space: normal; min-width: 200px; overflow-wrap: anywhere; }
tbody tr:hover { background: #eef5fa; } tbody tr:last-child td { border-bottom: 0; }
svg.mark { width: 13px; height: 13px; flex: none; vertical-align: -1px; margin-right: 3px; }
#tip, #toast { position: fixed; z-index: 9; pointer-events: none; background: #fff; border: 1px solid #b9c1cb;
  border-radius: 6px; box-shadow: 0 3px 12px #0003; padding: 8px 11px; font-size: 13px; max-width: 420px; }
#tip b { display: block; overflow-wrap: anywhere; } #tip dl { margin: 4px 0 0; font-size: 13px; }
#toast { left: 50%; bottom: 24px; transform: translateX(-50%); background: var(--ink); color: #fff; border: 0;
  overflow-wrap: anywhere; max-width: 80vw; }
[hidden] { display: none !important; }
@media (max-width: 900px) { body { padding: 14px 14px 40px; } table { font-size: 12.5px; } th, td { padding: 4px 5px; }
  th { white-space: normal; } td.plan { min-width: 110px; } }
)css";

// Debian ships Vega's modules without the bundle that joins them, and their browser branch overwrites one
// global object; their AMD branch names what it needs, so a loader of a few lines serves.
constexpr std::string_view kLoader = R"js(
const vegaModules = {}, vegaLoaded = {};
let vegaNext = '';
function define(needs, make) { vegaModules[vegaNext] = {needs, make}; }
define.amd = true;
function vegaLoad(name) {
  if (name in vegaLoaded) return vegaLoaded[name];
  // The package vega-selections is built into a file named vega-selection.
  const found = vegaModules[name] || vegaModules[name.replace(/s$/, '')];
  if (!found) throw new Error('Vega lacks its module ' + name);
  const exported = vegaLoaded[name] = {};
  found.make(...found.needs.map(n => n === 'exports' ? exported : vegaLoad(n)));
  return exported;
}
)js";

constexpr std::string_view kControls = R"html(
<div class="controls">
<div id="strategies"><span class="name">Strategies</span></div>
<div><span class="name">GPUs</span><label>from <select id="gpus-min"></select></label>
<label>to <select id="gpus-max"></select></label></div>
<div id="rests"><label><span class="name">Extrapolated or assumed</span> <select id="unmeasured"></select></label></div>
<div><span class="name">Logarithmic</span><label><input type="checkbox" id="log-x">x</label>
<label><input type="checkbox" id="log-y">y</label></div>
<div><button type="button" id="reset">Reset</button><span id="count" class="name"></span></div>
</div>
<div id="chart">)html";

constexpr std::string_view kTable = R"html(</div>
<p class="hint" id="hint" hidden>Coloured steps: frontier of each strategy among the plans shown. Dashed: frontier of
all plans shown. Ringed: on the frontier of the whole sweep.<span id="band-hint"> Shaded: nominal 90 % of the best
plans shown, by the prices of bare kernels<span id="approximate-hint">; grey of exact ones, brown of approximate ones
ahead of them</span>.</span><span id="open-hint"> Open: more than half of the time is
extrapolated or assumed.</span> Click a point to copy its simulate command.</p>
<h2>Frontier of the plans shown</h2>
<div class="scroll"><table><thead><tr id="head"></tr></thead><tbody id="rows"></tbody></table></div>
<div id="tip" hidden></div><div id="toast" role="status" hidden></div>
)html";

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

// To a tenth.
std::string percent(double share) { return number_or_null(std::round(1000 * share) / 10); }

// Columns by position, because five thousand plans would repeat every name.
std::string data_json(const Page& page) {
  std::vector<std::string> strategies;
  std::string rows;
  const bool approximate = std::any_of(page.points.begin(), page.points.end(),
                                       [](const PagePoint& p) { return p.attention_computed != 1; });
  for (const PagePoint& p : page.points) {
    const auto known = std::find(strategies.begin(), strategies.end(), p.strategy);
    const auto index = known - strategies.begin();
    if (known == strategies.end()) strategies.push_back(p.strategy);
    rows += fmt::format("{}[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}{}]", rows.empty() ? "" : ",\n",
                        index, json_string(p.plan), json_string(p.command), p.gpus, p.batch, p.at_once,
                        number_or_null(p.time_ms), number_or_null(p.x), number_or_null(p.y),
                        number_or_null(p.memory_gb), p.frontier ? 1 : 0, percent(p.measured),
                        percent(p.fitted), percent(p.extrapolated), percent(p.assumed), percent(p.time_low),
                        percent(p.time_high), approximate ? "," + number_or_null(p.attention_computed) : "");
  }
  std::string names;
  for (const std::string& name : strategies) names += (names.empty() ? "" : ",") + json_string(name);
  return fmt::format("{{\"labels\":[{},{},{},{}],\"strategies\":[{}],\n\"points\":[\n{}\n]}}",
                     json_string(page.time_label), json_string(page.x_label), json_string(page.y_label),
                     json_string(page.at_once_label), names, rows);
}

// The modules as script elements, or nothing when one of them is missing.
std::optional<std::string> vega_scripts(const std::vector<std::filesystem::path>& files) {
  if (files.empty()) return std::nullopt;
  std::string out = "<script>\"use strict\";" + std::string(kLoader) + "</script>\n";
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
  return out + R"js(<script>
/* Vega: copyright UW Interactive Data Lab, BSD 3-Clause license. */
try {
  Object.assign(vegaLoad('vega-dataflow').transforms, vegaLoad('vega-transforms'), vegaLoad('vega-view-transforms'),
    vegaLoad('vega-encode'));
  window.vega = {View: vegaLoad('vega-view').View, parse: vegaLoad('vega-parser').parse};
} catch (error) {
  document.getElementById('chart').textContent = 'No chart: ' + error.message + '; reinstall libjs-vega and build again';
}
</script>
)js";
}

std::string header(const Page& page) {
  std::string out = fmt::format("<h1>{}</h1>\n<p>{}</p>\n<dl>", escaped(page.title), escaped(page.summary));
  const auto row = [&](std::string_view name, std::string_view html) {
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, html);
  };
  if (page.scenario.find('\n') == std::string::npos)
    row("Scenario", "<code>" + escaped(page.scenario) + "</code>");
  else
    row("Scenario", "<details><summary>show</summary><pre>" + escaped(page.scenario) + "</pre></details>");
  row("Command", "<code>" + escaped(page.command) + "</code>");
  row("Version", "<code>" + escaped(page.version) + "</code>");
  if (!page.costs.empty()) row("Costs", escaped(page.costs));
  return out + "</dl>\n";
}

}  // namespace

std::vector<std::filesystem::path> vega_files() {
  std::vector<std::filesystem::path> files;
  std::istringstream list(SHARDLINE_VEGA_FILES);
  for (std::string file; std::getline(list, file, ';');)
    if (!file.empty()) files.emplace_back(file);
  return files;
}

std::string page_html(const Page& page, const std::vector<std::filesystem::path>& vega) {
  const auto scripts = vega_scripts(vega);
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += "<title>" + escaped(page.title) + "</title>\n<style>" + std::string(kStyle) +
         "</style>\n</head>\n<body>\n";
  out += header(page) + std::string(kControls);
  if (!scripts) {
    out +=
        "<p class=\"note\">The chart needs Vega: install the Debian package libjs-vega, configure and build ";
    out += "shardline again, then write this page again. Filters and table work without it.</p>";
  }
  out += kTable;
  out += "<script type=\"application/json\" id=\"data\">" + data_json(page) + "</script>\n";
  out += scripts.value_or("");
  return out + "<script>\"use strict\";" + std::string(kPageScript) + "</script>\n</body>\n</html>\n";
}

std::string page_html(const Page& page) { return page_html(page, vega_files()); }

}  // namespace shardline
