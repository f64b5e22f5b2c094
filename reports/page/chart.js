// The chart, drawn by Vega where the page has it: plans, each strategy's frontier, bands, target and selected
// plans.
let view = null, cursor = null;

function tip(p, left, top) {
  const box = byId('tip');
  box.hidden = !p;
  if (!p) return;
  const list = element('dl');
  const line = (name, text) => list.append(element('dt', name), element('dd', text));
  line('strategy', p.name);
  COLUMNS.forEach(
      (column, i) => line(
          heading(column),
          show(p.numbers[i]) +
              (p.intervals[i] && column.interval ? ' (' + showInterval(p.intervals[i]) + ')' : '')));
  for (const key of ['measured', 'fitted', 'extrapolated', 'assumed'])
    if (p[key] > 0) line(key, show(p[key]) + ' %');
  if (p.meets) line('target', STATES[p.meets]);
  box.replaceChildren(breakable('b', p.plan), list);
  const {width, height} = box.getBoundingClientRect();
  box.style.left = Math.max(4, Math.min(left + 14, innerWidth - width - 8)) + 'px';
  box.style.top = Math.max(4, top + 14 + height > innerHeight ? top - height - 12 : top + 14) + 'px';
}

// With room for the target's lines and the bands.
function domain(list, key, log) {
  const ends = list.map(p => p.numbers[key]);
  bands(list).forEach(at => ends.push(key === X ? at.x : at.y));
  data.target.forEach(limit => {
    const at = key === X ? limit.x : limit.y;
    if (at !== null) ends.push(at);
  });
  const low = ends.reduce((a, b) => Math.min(a, b), Infinity),
        high = ends.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!ends.length) return log ? [1, 10] : [0, 1];
  return log ? [low / 1.15, high * 1.15] : [Math.min(0, low), high > 0 ? high * 1.04 : 1];
}

const drawn = p => ({
  strategy: p.strategy,
  x: p.numbers[X],
  y: p.numbers[Y],
  ring: p.ring,
  open: p.open,
  faint: p.meets === 'misses',
  color: cssColor('--color' + p.strategy % COLORS),
  shape: shapeOf(p.strategy),
  point: p
});

function draw(rebuild) {
  if (!window.vega) return;
  const logX = byId('log-x').checked, logY = byId('log-y').checked;
  const on = at => (at.x > 0 || !logX) && (at.y > 0 || !logY);
  const list = shown.filter(p => placed(p) && on({x: p.numbers[X], y: p.numbers[Y]}));
  if (rebuild || !view) {
    if (view) view.finalize();
    view = new window.vega.View(
        window.vega.parse(spec(logX, logY)), {renderer: 'canvas', container: byId('chart'), hover: false});
    // When a view ends, the handler is called without an event.
    view.tooltip((handler, event, item, hit) => {
      if (event) tip(hit && hit.point, event.clientX, event.clientY);
    });
    view.addEventListener('click', (event, item) => {
      if (item && item.datum && item.datum.point) choose(item.datum.point);
      if (innerWidth < 600) tip(null);  // it would hide the chart
    });
  }
  const limitsOf = key => data.target.filter(limit => limit[key] !== null)
                              .map(limit => ({at: limit[key], text: limit.text}))
                              .filter(limit => limit.at > 0);
  const letters =
      chosen.map((p, i) => ({p, letter: 'AB'[i]})).filter(({p}) => list.includes(p)).map(({p, letter}) => {
        const worse = end(p, true), better = end(p, false);
        return {letter, dx: 0, ...drawn(p), x1: worse.x, x2: better.x, y1: worse.y, y2: better.y};
      });
  const steps = data.strategies.flatMap((_, s) => frontier(list.filter(p => p.strategy === s)));
  view.signal('xd', domain(list, X, logX))
      .signal('yd', domain(list, Y, logY))
      .width(Math.max(260, byId('chart').clientWidth))
      .height(Math.max(320, Math.min(600, innerHeight * .5)))
      .data('points', [...list].sort((a, b) => a.ring - b.ring).map(drawn))  // rings on top
      .data('steps', steps.map(drawn))
      .data('best', frontier(list).map(drawn))
      .data('bars', bands(list).filter(on))
      .data('limits_x', limitsOf('x'))
      .data('limits_y', limitsOf('y'))
      .data('cursor', cursor && list.includes(cursor) ? [drawn(cursor)] : [])
      .run();
  view.data('chosen', parted(letters)).run();
}

// Of two plans that lie so close that one mark would hide the other both are drawn beside their places.
function parted(letters) {
  const across = 18;  // of a mark, pixels
  if (letters.length < 2) return letters;
  const [a, b] = letters.map(({x, y}) => [view.scale('x')(x), view.scale('y')(y)]);
  if (Math.hypot(a[0] - b[0], a[1] - b[1]) >= across) return letters;
  const side = a[0] <= b[0] ? 1 : -1;
  return [{...letters[0], dx: -side * across / 2}, {...letters[1], dx: side * across / 2}];
}

// Where a plan is drawn, in the window.
function placeOf(p) {
  const box = byId('chart').querySelector('canvas').getBoundingClientRect(), inner = view.padding();
  const [left, top] = view.origin();
  return [
    box.left + inner.left + left + view.scale('x')(p.numbers[X]),
    box.top + inner.top + top + view.scale('y')(p.numbers[Y])
  ];
}

// Arrow keys go through the frontier of the plans shown, as the chart is a picture to a keyboard.
function moveCursor(step) {
  const along = frontier(shown);
  if (!along.length) return;
  const now = along.indexOf(cursor);
  const next = now < 0 && step < 0 ? along.length - 1 : now + step;
  cursor = along[Math.max(0, Math.min(along.length - 1, next))];
  draw(false);
  tip(cursor, ...placeOf(cursor));
  byId('said').textContent =
      cursor.plan + ': ' + [X, Y].map(c => heading(COLUMNS[c]) + ' ' + show(cursor.numbers[c])).join(', ');
}
function leaveCursor() {
  cursor = null;
  tip(null);
  draw(false);
}
function makeChart() {
  if (!window.vega) return;
  const chart = byId('chart');
  chart.tabIndex = 0;
  chart.setAttribute('role', 'application');
  chart.setAttribute(
      'aria-label',
      'Chart of ' + heading(COLUMNS[Y]) + ' against ' + heading(COLUMNS[X]) +
          '. Left and right arrow: through the frontier. Enter: compare that plan. ' +
          'The table below has the same plans.');
  chart.onkeydown = event => {
    const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
    if (step)
      moveCursor(step);
    else if (event.key === 'Enter' && cursor)
      choose(cursor);
    else if (event.key === 'Escape')
      leaveCursor();
    else
      return;
    event.preventDefault();
  };
  chart.onblur = leaveCursor;
  chart.addEventListener('mouseleave', () => {
    if (!cursor) tip(null);
  });
}
