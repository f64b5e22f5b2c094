// Curves over a common axis, each chart with a legend whose names hide and show them, and a cursor that reads
// all of them at one place, by mouse or by arrow keys.
const byId = id => document.getElementById(id);
const plots = JSON.parse(byId('data').textContent);
const cssColor = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colorOf = place => cssColor('--color' + place % 12);
const value = v => ({value: v});
const show = n => Math.abs(n) >= 1000 ? Math.round(n).toLocaleString('en-US') : String(+n.toPrecision(4));

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// Names of a plot's curves in order; marks have the name of the curve that they are of.
const namesOf = plot => [...new Set(plot.series.map(s => s.name))];
const curvesOf = (plot, hidden) => plot.series.filter(s => s.line && !hidden.has(s.name));

function axis(scale, orient, title) {
  const ink = cssColor('--ink'), soft = cssColor('--soft');
  const colors =
      {gridColor: cssColor('--line'), domainColor: soft, tickColor: soft, labelColor: ink, titleColor: ink};
  const text = {signal: 'format(datum.value, abs(datum.value) < 1000 ? "~g" : "~s")'};
  return {
    scale,
    orient,
    title,
    grid: true,
    ...colors,
    labelFontSize: 12,
    titleFontSize: 13,
    titlePadding: 8,
    labelOverlap: true,
    tickCount: {signal: (orient === 'left' ? 'height' : 'width') + ' / 70'},
    encode: {labels: {update: {text}}}
  };
}

function spec(plot) {
  const at = {x: {scale: 'x', field: 'x'}, y: {scale: 'y', field: 'y'}};
  const scale = (name, log, range) =>
      ({name, range, type: log ? 'log' : 'linear', domain: {signal: name + 'd'}, zero: false, nice: false});
  const line = {...at, stroke: {field: 'color'}, strokeWidth: value(1.8)};
  const square =
      {...at, shape: value('square'), size: value(90), stroke: {field: 'color'}, strokeWidth: value(2)};
  const font = 'system-ui, sans-serif';
  const rule =
      {x: {scale: 'x', field: 'x'}, y: value(0), y2: {signal: 'height'}, stroke: value(cssColor('--edge'))};
  return {
    width: 100,
    height: 100,
    padding: 6,
    autosize: {type: 'fit', contains: 'padding'},
    background: cssColor('--page'),
    config: {axis: {labelFont: font, titleFont: font}},
    signals: [{name: 'xd', value: [0, 1]}, {name: 'yd', value: [0, 1]}],
    data: ['lines', 'marks', 'cursor'].map(name => ({name})),
    scales: [scale('x', plot.logX, 'width'), scale('y', plot.logY, 'height')],
    axes: [axis('x', 'bottom', plot.x), axis('y', 'left', plot.y)],
    marks: [
      {
        type: 'group',
        from: {facet: {name: 'line_of', data: 'lines', groupby: 'series'}},
        encode: {update: {width: {signal: 'width'}, height: {signal: 'height'}}},
        marks: [{type: 'line', from: {data: 'line_of'}, clip: true, encode: {update: line}}]
      },
      {type: 'rule', from: {data: 'cursor'}, clip: true, encode: {update: rule}},
      {type: 'symbol', from: {data: 'marks'}, encode: {update: square}}
    ]
  };
}

function domain(series, place, log) {
  const ends = series.flatMap(s => s.points.map(p => p[place])).filter(n => n > 0 || !log);
  if (!ends.length) return log ? [1, 10] : [0, 1];
  const low = ends.reduce((a, b) => Math.min(a, b)), high = ends.reduce((a, b) => Math.max(a, b));
  if (log) return [low, high > low ? high : low * 10];
  return [Math.min(0, low), high > 0 ? high * (place === 1 ? 1.04 : 1) : 1];
}

// What every curve is at x: its point that is nearest.
function read(plot, hidden, x) {
  const far = plot.logX ? p => Math.abs(Math.log(p[0] / x)) : p => Math.abs(p[0] - x);
  return curvesOf(plot, hidden).map(s => {
    const point = s.points.reduce((a, b) => far(b) < far(a) ? b : a);
    return {name: s.name, x: point[0], y: point[1]};
  });
}

function tip(content, left, top) {
  const box = byId('tip');
  box.replaceChildren(...content);
  box.hidden = false;
  const {width, height} = box.getBoundingClientRect();
  box.style.left = Math.max(4, Math.min(left + 14, innerWidth - width - 8)) + 'px';
  box.style.top = Math.max(4, top + 14 + height > innerHeight ? top - height - 12 : top + 14) + 'px';
}

// A section of the page: title, legend, chart.
class Chart {
  constructor(plot, place) {
    Object.assign(this, {plot, hidden: new Set(), view: null, cursor: null, canvas: element('div')});
    const section = element('section'), title = element('h2', plot.title);
    title.id = 'plot' + place;
    section.setAttribute('aria-labelledby', title.id);
    section.append(title, this.legend(), this.canvas);
    if (plot.note) section.append(element('p', plot.note, 'hint'));
    this.listen();
    byId('chart').append(section);
    this.draw(true);
  }

  legend() {
    const out = element('div', undefined, 'result');
    namesOf(this.plot).forEach((name, i) => {
      const toggle = element('button', name, 'key');
      toggle.type = 'button';
      toggle.style.borderLeftColor = 'var(--color' + i % 12 + ')';
      toggle.setAttribute('aria-pressed', 'true');
      toggle.onclick = () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        toggle.setAttribute('aria-pressed', String(!this.hidden.has(name)));
        this.draw(false);
      };
      out.append(toggle, ' ');
    });
    return out;
  }

  draw(rebuild) {
    const {plot} = this, names = namesOf(plot), kept = plot.series.filter(s => !this.hidden.has(s.name));
    const rows = of => of.flatMap(
        s => s.points.map(([x, y]) => ({series: s.name, x, y, color: colorOf(names.indexOf(s.name))}))
                 .filter(p => (p.x > 0 || !plot.logX) && (p.y > 0 || !plot.logY)));
    if (rebuild || !this.view) {
      if (this.view) this.view.finalize();
      this.view = new window.vega.View(
          window.vega.parse(spec(plot)), {renderer: 'canvas', container: this.canvas, hover: false});
    }
    this.view.signal('xd', domain(kept, 0, plot.logX))
        .signal('yd', domain(kept, 1, plot.logY))
        .width(Math.max(260, this.canvas.clientWidth))
        .height(Math.max(220, Math.min(360, innerHeight * .4)))
        .data('lines', rows(kept.filter(s => s.line)))
        .data('marks', rows(kept.filter(s => !s.line)))
        .data('cursor', this.cursor === null ? [] : [{x: this.cursor}])
        .run();
  }

  // Where the axis begins, in the window.
  left() {
    const box = this.canvas.querySelector('canvas').getBoundingClientRect();
    return box.left + this.view.padding().left + this.view.origin()[0];
  }
  move(x, left, top) {
    const [low, high] = this.view.signal('xd');
    this.cursor = Math.max(low, Math.min(high, x));
    this.draw(false);
    const {plot} = this, found = read(plot, this.hidden, this.cursor), list = element('dl');
    found.forEach(f => list.append(element('dt', f.name), element('dd', show(f.y))));
    tip([element('b', plot.x + ' ' + show(this.cursor)), list], left, top);
    byId('said').textContent = show(this.cursor) + ': ' + found.map(f => f.name + ' ' + show(f.y)).join(', ');
  }
  leave() {
    this.cursor = null;
    byId('tip').hidden = true;
    this.draw(false);
  }
  key(event) {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key], scale = this.view.scale('x');
    if (event.key === 'Escape') this.leave();
    if (!step) return;
    event.preventDefault();
    const from = this.cursor === null ? (step > 0 ? 0 : this.view.width()) : scale(this.cursor);
    const to = from + step * (event.shiftKey ? 40 : 8);
    this.move(scale.invert(to), this.left() + to, this.canvas.getBoundingClientRect().top + 40);
  }

  listen() {
    const {canvas} = this;
    canvas.tabIndex = 0;
    canvas.className = 'curves';
    canvas.setAttribute('role', 'application');
    canvas.setAttribute(
        'aria-label',
        this.plot.title + '. Left and right arrow: read all curves at one place; with Shift faster.');
    canvas.onkeydown = event => this.key(event);
    canvas.onblur = canvas.onmouseleave = () => this.leave();
    canvas.onmousemove = event =>
        this.move(this.view.scale('x').invert(event.clientX - this.left()), event.clientX, event.clientY);
  }
}

function start() {
  if (!window.vega) return;
  const charts = plots.map((plot, place) => new Chart(plot, place));
  let timer = 0;
  addEventListener('resize', () => {
    clearTimeout(timer);
    timer = setTimeout(() => charts.forEach(c => c.draw(false)), 120);
  });
  matchMedia('(prefers-color-scheme: dark)')
      .addEventListener('change', () => charts.forEach(c => c.draw(true)));
}
start();
