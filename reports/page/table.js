// The frontier of the plans shown, sortable by each column.
// {name, text: plan -> cell, key: plan -> what to sort by, left: whether it holds words, below: whether it
// stands below the one before, in the same cells}
const head = [];
let sortBy = null, sortDown = false, sorted = false;  // sorted: by somebody who pressed a column

function makeHead() {
  const shares = [['extrapolated', 'extrapolated'], ['assumed', 'assumed']];
  head.push({name: 'plan', left: true, key: p => p.plan}, {name: 'strategy', left: true, key: p => p.name});
  COLUMNS.forEach((column, i) => {
    head.push({name: heading(column), text: p => show(p.numbers[i]), key: p => p.numbers[i], column: i});
    if (column.interval) {
      head.push({
        name: '90 %',
        text: p => showInterval(p.intervals[i], column.errs),
        key: p => p.intervals[i] && p.intervals[i][1],
        below: true
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
    const th = column.below ? byId('head').lastChild :
                              byId('head').appendChild(element('th', undefined, column.left ? 'text' : ''));
    th.scope = 'col';
    column.button = th.appendChild(button('', '', () => {
      sortDown = sortBy === column ? !sortDown : false;
      sortBy = column;
      sorted = true;
      table();
    }));
    column.button.append(breakable('span', column.name));
    if (column.below) {
      column.button.classList.add('interval');
      column.button.setAttribute('aria-label', '90 % interval, the column above');
    }
    if (column.name === 'plan') byId('head').append(element('th', 'compare, copy the command', 'text do'));
  }
}

function row(p) {
  const tr = element('tr'), letter = 'AB'[chosen.indexOf(p)];
  const pick = button(
      letter ? 'Plan ' + letter : 'Compare', (letter ? 'Leave out ' : 'Compare ') + p.plan, () => choose(p));
  pick.setAttribute('aria-pressed', String(Boolean(letter)));
  pick.dataset.plan = p.index;
  for (const column of head) {
    if (column.below) {
      tr.lastChild.append(element('span', column.text(p), 'interval'));
      continue;
    }
    if (column.name !== 'plan') {
      tr.append(element('td', column.text ? column.text(p) : p.name, column.left ? 'text' : ''));
      continue;
    }
    const cell = tr.appendChild(element('th', undefined, 'plan'));
    cell.scope = 'row';
    cell.append(mark(p.strategy), breakable('span', p.plan));
    tr.appendChild(element('td', undefined, 'do')).append(pick, copyButton(p));
  }
  return tr;
}

// In place of a table without rows, which looks like a page that failed.
function nothing() {
  const tr = element('tr');
  const cell = tr.appendChild(element('td', 'No plan passes the filters; Reset shows all.', 'text'));
  cell.colSpan = byId('head').children.length;
  return tr;
}

function table() {
  const order = (a, b) => a === b ? 0 :
      a === null                  ? 1 :
      b === null                  ? -1 :
                                    (a < b ? -1 : 1) * (sortDown ? -1 : 1);
  const focused = document.activeElement && document.activeElement.dataset.plan;
  const missed = p =>
      Number(!sorted && p.meets === 'misses');  // who asks with a target looks for what meets it
  const rows =
      frontier(shown).sort((a, b) => missed(a) - missed(b) || order(sortBy.key(a), sortBy.key(b))).map(row);
  if (!rows.length && points.length) rows.push(nothing());
  byId('rows').replaceChildren(...rows);
  if (focused !== undefined) {  // a row that was made anew keeps the focus
    const again = document.querySelector('#rows button[data-plan="' + focused + '"]');
    if (again) again.focus();
  }
  for (const th of byId('head').children) th.removeAttribute('aria-sort');
  for (const column of head) column.button.classList.toggle('by', column === sortBy);
  sortBy.button.parentNode.setAttribute('aria-sort', sortDown ? 'descending' : 'ascending');
}
