// Starts the page, and draws it again when something changes.
let shown = points;

function update(rebuild) {
  shown = passing();
  const many = n => n.toLocaleString('en-US');
  const meeting = shown.filter(p => p.meets !== 'misses').length;
  byId('count').textContent = many(shown.length) + ' of ' + many(points.length) + ' plans' +
      (data.target.length ? ', ' + many(meeting) + (meeting === 1 ? ' meets' : ' meet') + ' the target' : '');
  table();
  compare();
  try {
    draw(rebuild);
  } catch (error) {
    console.error(error);
  }
}

function reset() {
  filters.forEach(f => f.reset());
  byId('log-x').checked = data.logX;
  byId('log-y').checked = data.logY;
  update(true);
}

function start() {
  const banded = points.some(p => p.intervals[X] || p.intervals[Y]);
  makeFilters();
  makeHead();
  makeChart();
  byId('log-x').onchange = byId('log-y').onchange = () => update(true);
  byId('reset').onclick = reset;
  byId('hint').hidden = byId('axes').hidden = !window.vega;
  byId('open-hint').hidden = !points.some(p => p.open);
  byId('band-hint').hidden = !banded;
  byId('approximate-hint').hidden = points.every(p => p.exact);
  byId('target-hint').hidden = !data.target.length;
  let timer = 0;
  addEventListener('resize', () => {
    clearTimeout(timer);
    timer = setTimeout(() => draw(false), 120);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw(true));
  reset();
}
start();
