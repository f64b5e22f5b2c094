// The frontier of the plans shown, sortable by each column.
const head = [];  // {name, text: plan -> cell, key: plan -> what to sort by, left: whether it holds words}
let sortBy = null, sortDown = false;

function makeHead() {
  const shares = [['extrapolated', 'extrapolated'], ['assumed', 'assumed']];
  head.push({name: 'plan', left: true, key: p => p.plan}, {name: 'strategy', left: true, key: p => p.name});
  COLUMNS.forEach((column, i) => {
    head.push({name: heading(column), text: p => show(p.numbers[i]), key: p => p.numbers[i], column: i});
    if (column.interval) {
      head.push({
        name: '90 %',
        text: p => showInterval(p.intervals[i], column.errs),
        key: p => p.intervals[i] && p.intervals[i][1]
      });
    }
  });
  if (rated) {
    shares.filter(([key]) => key === 'extrapolated' || points.some(p => p[key] >= .5))
        .forEach(([key, name]) => head.push({name, text: p => Math.round(p[key]) + ' %', key: p => p[key]}));
  }
  if (data.target.length) head.push({name: 'target', text: p => p.meets, key: p => p.meets, left: true});
  sortBy = head.find(column => column.column === X);
  for (const column of head) {
    const th = byId('head').appendChild(element('th', undefined, column.left ? 'text' : ''));
    th.scope = 'col';
    th.append(button(column.name, '', () => {
      sortDown = sortBy === column ? !sortDown : false;
      sortBy = column;
      table();
    }));
    column.th = th;
    if (column.name === 'plan')
      byId('head').append(element('th', 'compare', 'text'), element('th', 'command', 'text'));
  }
}

function row(p) {
  const tr = element('tr'), letter = 'AB'[chosen.indexOf(p)];
  const pick = button(
      letter ? 'Plan ' + letter : 'Compare', (letter ? 'Leave out ' : 'Compare ') + p.plan, () => choose(p));
  pick.setAttribute('aria-pressed', String(Boolean(letter)));
  pick.dataset.plan = p.index;
  for (const column of head) {
    if (column.name !== 'plan') {
      tr.append(element('td', column.text ? column.text(p) : p.name, column.left ? 'text' : ''));
      continue;
    }
    const cell = tr.appendChild(element('th', undefined, 'plan'));
    cell.scope = 'row';
    cell.append(mark(p.strategy), breakable('span', p.plan));
    tr.appendChild(element('td')).append(pick);
    tr.appendChild(element('td')).append(copyButton(p));
  }
  return tr;
}

function table() {
  const order = (a, b) => a === b ? 0 :
      a === null                  ? 1 :
      b === null                  ? -1 :
                                    (a < b ? -1 : 1) * (sortDown ? -1 : 1);
  const focused = document.activeElement && document.activeElement.dataset.plan;
  byId('rows').replaceChildren(
      ...frontier(shown).sort((a, b) => order(sortBy.key(a), sortBy.key(b))).map(row));
  if (focused !== undefined) {  // a row that was made anew keeps the focus
    const again = document.querySelector('#rows button[data-plan="' + focused + '"]');
    if (again) again.focus();
  }
  head.forEach(
      column => column === sortBy ?
          column.th.setAttribute('aria-sort', sortDown ? 'descending' : 'ascending') :
          column.th.removeAttribute('aria-sort'));
}
