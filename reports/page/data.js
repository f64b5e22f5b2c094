// The data of the page as page.cpp writes it, and how its numbers are shown.
const byId = id => document.getElementById(id);
const data = JSON.parse(byId('data').textContent);
const COLUMNS = data.columns;
const X = data.x, Y = data.y;

// Whether a number is within a limit of the target. Errors of prices may put it on the other side.
function meets(limit, number, interval) {
  if (number === null) return 'misses';
  const within = n => limit.most ? n <= limit.value * (1 + 1e-12) : n >= limit.value * (1 - 1e-12);
  if (!within(number)) return 'misses';
  if (!COLUMNS[limit.column].errs) return 'meets';
  if (!interval) return 'unknown';
  return within(number * (1 + interval[limit.most ? 1 : 0] / 100)) ? 'meets' : 'may miss';
}
// The worst of all limits.
function meetsAll(numbers, intervals) {
  const found = data.target.map(limit => meets(limit, numbers[limit.column], intervals[limit.column]));
  return ['misses', 'unknown', 'may miss', 'meets'].find(state => found.includes(state));
}

const points = data.points.map((fields, index) => {
  const [strategy, plan, command, engines, exact, ring, numbers, intervals, shares, parts] = fields;
  return {
    index,
    strategy,
    plan,
    command,
    numbers,
    exact: exact === 1,
    ring: ring === 1,
    name: data.strategies[strategy],
    engines: engines.map(e => data.engines[e]),
    intervals: numbers.map((_, i) => intervals[i] || null),
    measured: shares[0],
    fitted: shares[1],
    extrapolated: shares[2],
    assumed: shares[3],
    unmeasured: shares[2] + shares[3],
    open: shares[2] + shares[3] > 50,
    meets: meetsAll(numbers, intervals),
    parts: parts.map(([part, limit, time]) => ({part: data.parts[part], limit: data.limits[limit], time}))
  };
});
const rated = points.some(p => p.assumed < 100 && p.measured + p.fitted + p.unmeasured > 0);

function show(number) {
  if (number === null) return '\u2013';
  return Math.abs(number) >= 1000 ? Math.round(number).toLocaleString('en-US') :
                                    String(+number.toPrecision(4));
}
const signed = n => (n > 0 ? '+' : '') + Math.round(n);
const showInterval = (interval, errs) => interval ? signed(interval[0]) + '/' + signed(interval[1]) + ' %' :
    errs                                          ? 'not measured' :
                                                    '';
const heading = column => column.name + (column.unit ? ' (' + column.unit + ')' : '');
const STATES = {
  'meets': 'meets it',
  'may miss': 'may miss it, as prices may be off',
  'unknown': 'meets it, but the error of a time was not measured',
  'misses': 'misses it'
};
