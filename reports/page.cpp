#include "reports/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "reports/json.hpp"

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
all plans shown. Ringed: on the frontier of the whole sweep.<span id="open-hint"> Open: more than half of the time is
extrapolated or assumed.</span> Click a point to copy its simulate command.</p>
<h2>Frontier of the plans shown</h2>
<div class="scroll"><table><thead><tr id="head"></tr></thead><tbody id="rows"></tbody></table></div>
<div id="tip" hidden></div><div id="toast" role="status" hidden></div>
)html";

constexpr std::string_view kScript = R"js(
const byId = id => document.getElementById(id);
const data = JSON.parse(byId('data').textContent);
const points = data.points.map(r => ({s: r[0], strategy: data.strategies[r[0]], plan: r[1], command: r[2], gpus: r[3],
  batch: r[4], users: r[5], ttl: r[6], x: r[7], y: r[8], memory: r[9], ring: r[10] === 1,
  measured: r[11], fitted: r[12], extrapolated: r[13], assumed: r[14], unmeasured: r[13] + r[14],
  open: r[13] + r[14] > 50}));
points.sort((a, b) => a.ring - b.ring);  // rings are drawn last, on top
const COLORS = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000', '#B8A500'];
const SHAPES = ['M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z', 'M-.85,-.85H.85V.85H-.85Z', 'M0,-1.1L1,.8H-1Z',
  'M0,-1.15L1,0L0,1.15L-1,0Z', 'M0,1.1L1,-.8H-1Z', 'M-.4,-1H.4V-.4H1V.4H.4V1H-.4V.4H-1V-.4H-.4Z'];
const color = s => COLORS[s % COLORS.length], shape = s => SHAPES[s % SHAPES.length];
const show = v => v === null ? '\u2013' : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString('en-US')
  : String(+v.toPrecision(4));
const COLUMNS = [['strategy', 'Strategy'], ['plan', 'Plan'], ['gpus', 'GPUs'], ['batch', 'Batch'], ['users', 'Users'],
  ['ttl', data.labels[0]], ['x', data.labels[1]], ['y', data.labels[2]], ['memory', 'GB per GPU']];
// Parts of the time, in percent. Columns where they tell plans apart; the box beside a point has them all.
const SHARES = [['measured', 'Measured %'], ['fitted', 'Fitted %'], ['extrapolated', 'Extrap. %'],
  ['assumed', 'Assumed %']];
const rated = points.some(p => p.assumed < 100 && p.measured + p.fitted + p.unmeasured > 0);
if (rated) COLUMNS.push(...SHARES.slice(2).filter(([key]) => key === 'extrapolated' || points.some(p => p[key] >= .5)));
const isText = key => key === 'strategy' || key === 'plan';
let sortKey = 'x', sortDown = false, view = null, shown = points;

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}
function mark(s) {
  const ns = 'http://www.w3.org/2000/svg', svg = document.createElementNS(ns, 'svg');
  const path = svg.appendChild(document.createElementNS(ns, 'path'));
  svg.setAttribute('viewBox', '-1.2 -1.2 2.4 2.4');
  svg.setAttribute('class', 'mark');
  path.setAttribute('d', shape(s));
  path.setAttribute('fill', color(s));
  return svg;
}
// Plans that no other beats in both directions, in ascending x.
function frontier(list) {
  const kept = [];
  let best = -Infinity;
  for (const p of list.filter(p => p.x !== null && p.y !== null).sort((a, b) => b.x - a.x || b.y - a.y))
    if (p.y > best) { best = p.y; kept.push(p); }
  return kept.reverse();
}
let toastTimer = 0;
function copy(p) {
  const done = () => {
    byId('toast').textContent = 'Copied: ' + p.command;
    byId('toast').hidden = false;
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => { byId('toast').hidden = true; }, 2500);
  };
  const byHand = () => {
    const area = document.body.appendChild(element('textarea', p.command));
    area.select();
    document.execCommand('copy');
    area.remove();
    done();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(p.command).then(done, byHand); else byHand();
}
function tip(event, p) {
  const box = byId('tip');
  box.hidden = !p;
  if (!p) return;
  const list = element('dl');
  const named = COLUMNS.filter(([key]) => key !== 'plan' && !SHARES.some(s => s[0] === key));
  for (const [key, name] of [...named, ...SHARES.filter(([key]) => p[key] > 0)]) list.append(element('dt', name),
    element('dd', isText(key) ? p[key] : show(p[key])));
  box.replaceChildren(element('b', p.plan), list);
  const {width, height} = box.getBoundingClientRect();
  box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + 'px';
  box.style.top = Math.max(4, event.clientY + 14 + height > innerHeight ? event.clientY - height - 12
    : event.clientY + 14) + 'px';
}
function domain(list, key, log) {
  const v = list.map(p => p[key]);
  const low = v.reduce((a, b) => Math.min(a, b), Infinity), high = v.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!v.length) return log ? [1, 10] : [0, 1];
  return log ? [low / 1.15, high * 1.15] : [Math.min(0, low), high > 0 ? high * 1.04 : 1];
}
function spec(logX, logY) {
  const axis = (scale, orient, title) => ({scale, orient, title, grid: true, gridColor: '#e6e9ed', domainColor: '#8a93a0',
    tickColor: '#8a93a0', labelColor: '#3b4552', titleColor: '#1c2430', labelFontSize: 12, titleFontSize: 13,
    titlePadding: 10, labelOverlap: true, format: '~s', tickCount: 9});
  const at = {x: {scale: 'x', field: 'x'}, y: {scale: 'y', field: 'y'}};
  const line = (extra, from) => ({type: 'line', from, clip: true, interactive: false, sort: {field: 'x'},
    encode: {update: {...at, interpolate: {value: 'step-before'}, ...extra}}});
  return {width: 100, height: 100, padding: 6, autosize: {type: 'fit', contains: 'padding'},
    config: {axis: {labelFont: 'system-ui, sans-serif', titleFont: 'system-ui, sans-serif'}},
    signals: [{name: 'xd', value: [0, 1]}, {name: 'yd', value: [0, 1]}],
    data: [{name: 'points'}, {name: 'steps'}, {name: 'best'}],
    scales: [
      {name: 'x', type: logX ? 'log' : 'linear', range: 'width', domain: {signal: 'xd'}, zero: false, nice: false},
      {name: 'y', type: logY ? 'log' : 'linear', range: 'height', domain: {signal: 'yd'}, zero: false, nice: false}],
    axes: [axis('x', 'bottom', data.labels[1]), axis('y', 'left', data.labels[2])],
    marks: [
      {type: 'group', interactive: false, from: {facet: {name: 'steps_of', data: 'steps', groupby: 's'}},
        encode: {update: {width: {signal: 'width'}, height: {signal: 'height'}}},
        marks: [line({stroke: {field: 'color'}, strokeWidth: {value: 1.8}}, {data: 'steps_of'})]},
      line({stroke: {value: '#1c2430'}, strokeWidth: {value: 1.3}, strokeDash: {value: [5, 4]}}, {data: 'best'}),
      {type: 'symbol', from: {data: 'points'}, encode: {update: {...at, shape: {field: 'shape'}, fill: {field: 'color'},
        size: [{test: 'datum.ring', value: 95}, {value: 34}], fillOpacity: [{test: 'datum.open', value: .12}, {test: 'datum.ring', value: 1}, {value: .6}],
        stroke: [{test: 'datum.open', field: 'color'}, {test: 'datum.ring', value: '#1c2430'}, {value: null}], strokeWidth: {value: 1.6},
        cursor: {value: 'pointer'}, tooltip: {signal: 'datum'}}}}]};
}
const drawn = p => ({s: p.s, x: p.x, y: p.y, ring: p.ring, open: p.open, color: color(p.s), shape: shape(p.s), point: p});
function draw(rebuild) {
  if (!window.vega) return;
  const logX = byId('log-x').checked, logY = byId('log-y').checked;
  const list = shown.filter(p => p.x !== null && p.y !== null && (p.x > 0 || !logX) && (p.y > 0 || !logY));
  if (rebuild || !view) {
    if (view) view.finalize();
    view = new vega.View(vega.parse(spec(logX, logY)), {renderer: 'canvas', container: byId('chart'), hover: false});
    view.tooltip((handler, event, item, value) => tip(event, value && value.point));
    view.addEventListener('click', (event, item) => { if (item && item.datum && item.datum.point) copy(item.datum.point); });
  }
  const steps = data.strategies.flatMap((name, s) => frontier(list.filter(p => p.s === s)));
  view.signal('xd', domain(list, 'x', logX)).signal('yd', domain(list, 'y', logY))
    .width(Math.max(320, byId('chart').clientWidth)).height(Math.max(340, Math.min(600, innerHeight * .5)))
    .data('points', list.map(drawn)).data('steps', steps.map(drawn)).data('best', frontier(list).map(drawn)).run();
}
function table() {
  const sign = sortDown ? -1 : 1;
  const compare = (a, b) => a === b ? 0 : a === null ? 1 : b === null ? -1 : (a < b ? -1 : 1) * sign;
  byId('rows').replaceChildren(...frontier(shown).sort((a, b) => compare(a[sortKey], b[sortKey])).map(p => {
    const row = element('tr');
    for (const [key] of COLUMNS) {
      const cell = row.appendChild(element('td', isText(key) ? p[key] : show(p[key]), isText(key) ? 'text ' + key : ''));
      if (key === 'strategy') cell.prepend(mark(p.s));
    }
    const button = row.appendChild(element('td')).appendChild(element('button', 'Copy'));
    button.title = p.command;
    button.onclick = () => copy(p);
    return row;
  }));
  document.querySelectorAll('#head th').forEach(th => th.dataset.key === sortKey
    ? th.setAttribute('aria-sort', sortDown ? 'descending' : 'ascending') : th.removeAttribute('aria-sort'));
}
function update(rebuild) {
  const on = new Set([...document.querySelectorAll('#strategies input')].filter(i => i.checked).map(i => +i.value));
  const low = +byId('gpus-min').value, high = +byId('gpus-max').value;
  const most = +byId('unmeasured').value;
  shown = points.filter(p => on.has(p.s) && p.gpus >= low && p.gpus <= high && p.unmeasured <= most);
  byId('count').textContent = shown.length.toLocaleString('en-US') + ' of ' + points.length.toLocaleString('en-US') + ' plans';
  table();
  try { draw(rebuild); } catch (error) { console.error(error); }
}
function start() {
  data.strategies.forEach((name, s) => {
    const label = byId('strategies').appendChild(element('label')), input = label.appendChild(element('input'));
    Object.assign(input, {type: 'checkbox', checked: true, value: s, onchange: () => update(false)});
    label.append(mark(s), name);
  });
  const counts = [...new Set(points.map(p => p.gpus))].sort((a, b) => a - b);
  for (const id of ['gpus-min', 'gpus-max']) {
    byId(id).append(...counts.map(n => element('option', n)));
    byId(id).onchange = () => update(false);
  }
  for (const [most, text] of [[101, 'any'], [75, 'at most 75 %'], [50, 'at most 50 %'], [25, 'at most 25 %'],
    [10, 'at most 10 %'], [.5, 'none']]) byId('unmeasured').append(Object.assign(element('option', text), {value: most}));
  byId('unmeasured').onchange = () => update(false);
  byId('rests').hidden = !rated;
  byId('open-hint').hidden = !points.some(p => p.open);
  byId('log-x').onchange = byId('log-y').onchange = () => update(true);
  const reset = () => {
    document.querySelectorAll('#strategies input').forEach(i => { i.checked = true; });
    byId('gpus-min').selectedIndex = 0;
    byId('gpus-max').selectedIndex = counts.length - 1;
    byId('unmeasured').selectedIndex = 0;
    byId('log-x').checked = byId('log-y').checked = false;
    update(true);
  };
  byId('reset').onclick = reset;
  for (const [key, name] of COLUMNS) {
    const th = byId('head').appendChild(element('th', name, isText(key) ? 'text' : ''));
    th.dataset.key = key;
    th.tabIndex = 0;
    th.onclick = () => { sortDown = sortKey === key ? !sortDown : false; sortKey = key; table(); };
    th.onkeydown = event => { if (event.key === 'Enter') th.onclick(); };
  }
  byId('head').append(element('th', ''));
  byId('hint').hidden = !window.vega;
  let timer = 0;
  addEventListener('resize', () => { clearTimeout(timer); timer = setTimeout(() => draw(false), 120); });
  byId('chart').addEventListener('mouseleave', () => tip(null, null));
  reset();
}
start();
)js";

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
  for (const PagePoint& p : page.points) {
    const auto known = std::find(strategies.begin(), strategies.end(), p.strategy);
    const auto index = known - strategies.begin();
    if (known == strategies.end()) strategies.push_back(p.strategy);
    rows += fmt::format("{}[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]", rows.empty() ? "" : ",\n", index,
                        json_string(p.plan), json_string(p.command), p.gpus, p.batch, p.users,
                        number_or_null(p.ttl_ms), number_or_null(p.tokens_per_s_user),
                        number_or_null(p.tokens_per_s_gpu), number_or_null(p.memory_gb), p.frontier ? 1 : 0,
                        percent(p.measured), percent(p.fitted), percent(p.extrapolated), percent(p.assumed));
  }
  std::string names;
  for (const std::string& name : strategies) names += (names.empty() ? "" : ",") + json_string(name);
  return fmt::format("{{\"labels\":[{},{},{}],\"strategies\":[{}],\n\"points\":[\n{}\n]}}",
                     json_string(page.time_label), json_string(page.x_label), json_string(page.y_label),
                     names, rows);
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
  return out + "<script>\"use strict\";" + std::string(kScript) + "</script>\n</body>\n</html>\n";
}

std::string page_html(const Page& page) { return page_html(page, vega_files()); }

}  // namespace shardline
