// What the interactive page runs: filters, chart and table of the data that page.cpp writes.
#pragma once

#include <string_view>

namespace shardline {

inline constexpr std::string_view kPageScript = R"js(
const byId = id => document.getElementById(id);
const data = JSON.parse(byId('data').textContent);
const points = data.points.map(r => ({s: r[0], strategy: data.strategies[r[0]], plan: r[1], command: r[2], gpus: r[3],
  batch: r[4], atOnce: r[5], time: r[6], x: r[7], y: r[8], memory: r[9], ring: r[10] === 1,
  measured: r[11], fitted: r[12], extrapolated: r[13], assumed: r[14], unmeasured: r[13] + r[14],
  open: r[13] + r[14] > 50, low: r[15], high: r[16],
  interval: r[16] > r[15] ? (r[15] > 0 ? '+' : '') + r[15] + ' / +' + r[16] + ' %' : '\u2013',
  computed: r[17] === undefined ? r[17] : 100 * r[17]}));
points.sort((a, b) => a.ring - b.ring);  // rings are drawn last, on top
const COLORS = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000', '#B8A500',
  '#882255', '#44AA99', '#999933', '#332288'];
const SHAPES = ['M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z', 'M-.85,-.85H.85V.85H-.85Z', 'M0,-1.1L1,.8H-1Z',
  'M0,-1.15L1,0L0,1.15L-1,0Z', 'M0,1.1L1,-.8H-1Z', 'M-.4,-1H.4V-.4H1V.4H.4V1H-.4V.4H-1V-.4H-.4Z'];
const color = s => COLORS[s % COLORS.length], shape = s => SHAPES[s % SHAPES.length];
const show = v => v === null ? '\u2013' : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString('en-US')
  : String(+v.toPrecision(4));
const COLUMNS = [['strategy', 'Strategy'], ['plan', 'Plan'], ['gpus', 'GPUs'], ['batch', 'Batch'], ['atOnce', data.labels[3]],
  ['time', data.labels[0]], ['x', data.labels[1]], ['y', data.labels[2]], ['memory', 'GB per GPU']];
if (points.some(p => p.computed !== undefined)) COLUMNS.splice(1, 0, ['computed', 'Attention %']);
// Parts of the time, in percent. Columns where they tell plans apart; the box beside a point has them all.
const SHARES = [['measured', 'Measured %'], ['fitted', 'Fitted %'], ['extrapolated', 'Extrap. %'],
  ['assumed', 'Assumed %']];
const rated = points.some(p => p.assumed < 100 && p.measured + p.fitted + p.unmeasured > 0);
if (rated) COLUMNS.push(...SHARES.slice(2).filter(([key]) => key === 'extrapolated' || points.some(p => p[key] >= .5)));
const banded = points.some(p => p.high > p.low);
if (banded) COLUMNS.splice(COLUMNS.findIndex(([key]) => key === 'time') + 1, 0, ['interval', '90 %']);
const isText = key => key === 'strategy' || key === 'plan' || key === 'interval';
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
    data: [{name: 'points'}, {name: 'steps'}, {name: 'best'}, {name: 'bars'}],
    scales: [
      {name: 'x', type: logX ? 'log' : 'linear', range: 'width', domain: {signal: 'xd'}, zero: false, nice: false},
      {name: 'y', type: logY ? 'log' : 'linear', range: 'height', domain: {signal: 'yd'}, zero: false, nice: false}],
    axes: [axis('x', 'bottom', data.labels[1]), axis('y', 'left', data.labels[2])],
    marks: [
      {type: 'group', interactive: false, from: {facet: {name: 'band_of', data: 'bars', groupby: 'approximate'}},
        encode: {update: {width: {signal: 'width'}, height: {signal: 'height'}}},
        marks: [{type: 'line', from: {data: 'band_of'}, clip: true, interactive: false, encode: {update: {...at,
          interpolate: {value: 'linear-closed'}, fill: {field: 'color'}, fillOpacity: {value: .13}, stroke: {field: 'color'},
          strokeWidth: {value: 1.2}, strokeOpacity: {value: .35}}}}]},
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
// Around the best of exact plans, and around approximate ones ahead of them: along the low ends of both rates, which
// are off alike, and back along the high ones.
function bars(list) {
  const exact = p => p.computed === undefined || p.computed >= 100;
  const around = (kept, approximate) => [p => p.high, p => p.low].flatMap((end, back) => {
    const side = kept.filter(p => p.high > p.low).map(p => ({approximate, color: approximate ? '#c08a3e' : '#5c6675',
      x: p.x / (1 + end(p) / 100), y: p.y / (1 + end(p) / 100)}));
    return back ? side.reverse() : side;
  });
  return [...around(frontier(list.filter(exact)), false), ...around(frontier(list).filter(p => !exact(p)), true)];
}
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
    .data('points', list.map(drawn)).data('steps', steps.map(drawn)).data('best', frontier(list).map(drawn))
    .data('bars', bars(list)).run();
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
  byId('band-hint').hidden = !banded;
  byId('approximate-hint').hidden = !points.some(p => p.computed < 100);
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

}  // namespace shardline
