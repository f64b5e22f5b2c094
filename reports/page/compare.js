// One plan, or two side by side: their numbers, and where their time goes.
let chosen = [];  // plans A and B

// A plan that is chosen already is left out; a third takes the place of the second.
function choose(p) {
  chosen = chosen.includes(p) ? chosen.filter(other => other !== p) : [...chosen.slice(0, 1), p];
  byId('said').textContent = chosen.length ? chosen
                                                 .map(
                                                     (q, i) => 'Plan ' +
                                                         'AB'[i] + ': ' + q.plan)
                                                 .join('; ') :
                                             'No plan chosen';
  table();
  compare();
  draw(false);
}

const ratio = (a, b) =>
    a === null || b === null || !(a > 0) ? '' : (b / a >= 10 ? show(b / a) : (b / a).toPrecision(3)) + 'x';

function numbersOf(plans) {
  const out = element('table'), top = out.appendChild(element('thead')).appendChild(element('tr'));
  out.append(element('caption', 'Numbers of the chosen plans', 'unseen'));
  top.append(element('td'));
  plans.forEach((p, i) => {
    const th = top.appendChild(element('th', undefined, 'text'));
    th.scope = 'col';
    th.append(
        element(
            'span',
            'Plan ' +
                'AB'[i] + ' ',
            'name'),
        mark(p.strategy), breakable('span', p.plan));
  });
  if (plans.length > 1) Object.assign(top.appendChild(element('th', 'B / A')), {scope: 'col'});
  const body = out.appendChild(element('tbody'));
  const line = (name, cells, last) => {
    const tr = body.appendChild(element('tr')), th = tr.appendChild(element('th', name, 'text'));
    th.scope = 'row';
    cells.forEach(cell => tr.appendChild(element('td')).append(cell));
    if (plans.length > 1) tr.append(element('td', last || ''));
  };
  line('strategy', plans.map(p => p.name));
  COLUMNS.forEach(
      (column, i) => line(
          heading(column), plans.map(p => {
            const cell = element('span', show(p.numbers[i]));
            const interval = column.interval ? showInterval(p.intervals[i], column.errs) : '';
            if (interval) cell.append(' ', element('span', interval, 'interval'));
            return cell;
          }),
          plans.length > 1 ? ratio(plans[0].numbers[i], plans[1].numbers[i]) : ''));
  if (rated) line('extrapolated or assumed', plans.map(p => Math.round(p.unmeasured) + ' %'));
  line('attention', plans.map(p => p.exact ? 'exact' : 'approximate'));
  if (data.engines.length) line('launch files for', plans.map(p => p.engines.join(', ') || 'no engine'));
  if (data.target.length) line('target', plans.map(p => STATES[p.meets]));
  const tr = body.appendChild(element('tr'));
  tr.append(element('td'));
  plans.forEach(
      p => tr.appendChild(element('td'))
               .append(copyButton(p), ' ', button('Leave out', 'Leave out ' + p.plan, () => choose(p))));
  if (plans.length > 1) tr.append(element('td'));
  return out;
}

const sum = list => list.reduce((all, p) => all + p.time, 0);
// [name, entries of that name], the longest first.
function grouped(parts, key) {
  const out = new Map();
  parts.forEach(p => out.set(p[key], [...out.get(p[key]) || [], p]));
  return [...out].sort((a, b) => sum(b[1]) - sum(a[1]));
}
const limitClass = limit => 'limit' + data.limits.indexOf(limit);

// Bars of one plan on the scale of the slowest one, a row per part of the layer, coloured by what bounds it.
function timesOf(p, letter, most) {
  const out = element('div', undefined, 'times'), all = sum(p.parts);
  const title = out.appendChild(element('h3'));
  title.append('Plan ' + letter + ': ' + show(all) + ' ms', element('span', ' ' + data.partsOf, 'name'));
  const parts = grouped(p.parts, 'part');
  const percent = list => Math.round(100 * sum(list) / all) + ' %';
  if (parts.length) {
    const told = (list, whole) =>
        grouped(list, 'limit')
            .map(([limit, of]) => limit + ' ' + Math.round(100 * sum(of) / whole) + ' %')
            .join(', ');
    out.append(element(
        'p',
        'Most of it: ' + parts[0][0] + ', ' + percent(parts[0][1]) + ' (of that ' +
            told(parts[0][1], sum(parts[0][1])) + '). All of it: ' + told(p.parts, all) + '.'));
  }
  const list = out.appendChild(element('table'));
  list.append(element('caption', 'Parts of the time of plan ' + letter, 'unseen'));
  for (const [name, entries] of parts) {
    const tr = list.appendChild(element('tr')), th = tr.appendChild(element('th', name, 'text'));
    th.scope = 'row';
    const bar = tr.appendChild(element('td', undefined, 'bar')).appendChild(element('div'));
    const said = grouped(entries, 'limit')
                     .map(([limit, of]) => {
                       const piece = bar.appendChild(element('span', undefined, limitClass(limit)));
                       piece.style.width = 100 * sum(of) / most + '%';
                       return limit + ' ' + show(sum(of)) + ' ms';
                     })
                     .join(', ');
    bar.title = said;
    bar.setAttribute('role', 'img');
    bar.setAttribute('aria-label', said);
    tr.append(element('td', show(sum(entries)) + ' ms'), element('td', percent(entries)));
  }
  return out;
}

function legend() {
  const out = element('ul', undefined, 'legend');
  data.limits.forEach((limit, i) => {
    if (!chosen.some(p => p.parts.some(part => part.limit === limit))) return;
    const li = out.appendChild(element('li'));
    li.append(element('span', undefined, 'swatch ' + limitClass(limit)), limit + ': ' + data.limitTexts[i]);
  });
  return out;
}

function compare() {
  byId('none').hidden = chosen.length > 0;
  const numbers = byId('numbers'), why = byId('why');
  numbers.hidden = why.hidden = byId('why-title').hidden = chosen.length === 0;
  numbers.replaceChildren(...(chosen.length ? [numbersOf(chosen)] : []));
  const timed = chosen.filter(p => p.parts.length), most = Math.max(...timed.map(p => sum(p.parts)));
  byId('why-title').hidden = timed.length === 0;
  why.replaceChildren(
      ...timed.map(p => timesOf(p, 'AB'[chosen.indexOf(p)], most)), ...(timed.length ? [legend()] : []));
}
