// Which plans are shown. Filters that all plans pass, whatever they say, are left out.
const filters = [];  // {pass: plan -> whether it is shown, reset: to let all pass}

function group(title) {
  const e = byId('filters').appendChild(element('fieldset'));
  e.append(element('legend', title));
  return e;
}

function checkboxes(title, entries, passes) {
  if (entries.length < 2) return;
  const boxes = entries.map(entry => Object.assign(element('input'), {
    type: 'checkbox',
    checked: true,
    name: title.toLowerCase(),
    value: entry.text,
    onchange: () => update()
  }));
  const all = group(title);
  boxes.forEach((box, i) => {
    const label = all.appendChild(element('label'));
    label.append(box, ...(entries[i].mark ? [entries[i].mark] : []), entries[i].text);
  });
  filters.push({
    pass: p => passes(p, entries.filter((_, i) => boxes[i].checked).map(e => e.value)),
    reset: () => boxes.forEach(box => {
      box.checked = true;
    })
  });
}

function choice(title, id, entries, passes) {
  const select = group(title).appendChild(element('select'));
  select.id = id;
  select.setAttribute('aria-label', title);
  select.append(...entries.map(([text]) => element('option', text)));
  select.onchange = () => update();
  filters.push({
    pass: p => passes(p, entries[select.selectedIndex][1]),
    reset: () => {
      select.selectedIndex = 0;
    }
  });
}

// From and to, in the column's unit. An empty field, or one that is no number, lets all pass.
function limits(column, index) {
  const numbers = points.map(p => p.numbers[index]).filter(n => n !== null);
  const low = numbers.reduce((a, b) => Math.min(a, b), Infinity);
  const high = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!(high > low)) return;
  const all = group(heading(column));
  const field = (word, bound) => {
    const label = all.appendChild(element('label', word + ' ')), input = label.appendChild(element('input'));
    Object.assign(input, {
      type: 'number',
      min: 0,
      step: 'any',
      placeholder: String(+bound.toPrecision(3)),
      oninput: () => update()
    });
    input.setAttribute('aria-label', heading(column) + ', ' + word);
    input.dataset.column = column.name;
    input.dataset.end = word;
    return input;
  };
  const from = field('from', low), to = field('to', high);
  const within = (input, test) => input.value === '' || test(+input.value);
  filters.push({
    pass: p => p.numbers[index] === null ?
        from.value === '' && to.value === '' :
        within(from, n => p.numbers[index] >= n) && within(to, n => p.numbers[index] <= n),
    reset: () => {
      from.value = to.value = '';
    }
  });
}

function makeFilters() {
  checkboxes(
      'Strategies', data.strategies.map((text, s) => ({text, value: s, mark: mark(s)})),
      (p, on) => on.includes(p.strategy));
  const engines = data.engines.map(text => ({text, value: text}));
  if (points.some(p => !p.engines.length)) engines.push({text: 'no engine', value: null});
  checkboxes(
      'Engines with launch files', engines,
      (p, on) => p.engines.length ? p.engines.some(e => on.includes(e)) :
                                    on.includes(null) || !engines.some(e => e.value === null));
  if (points.some(p => p.exact) && points.some(p => !p.exact)) {
    choice(
        'Attention', 'exactness', [['exact and approximate', null], ['exact', true], ['approximate', false]],
        (p, exact) => exact === null || p.exact === exact);
  }
  COLUMNS.forEach((column, i) => {
    if (column.filter) limits(column, i);
  });
  if (rated) {
    choice(
        'Extrapolated or assumed', 'unmeasured',
        [
          ['any', 101], ['at most 75 %', 75], ['at most 50 %', 50], ['at most 25 %', 25],
          ['at most 10 %', 10], ['none', .5]
        ],
        (p, most) => p.unmeasured <= most);
  }
  if (data.target.length) {
    choice(
        'Target', 'target',
        [
          ['all plans', null], ['plans that meet it', ['meets', 'may miss', 'unknown']],
          ['plans that meet it, though prices may be off', ['meets']]
        ],
        (p, states) => states === null || states.includes(p.meets));
  }
}
const passing = () => points.filter(p => filters.every(f => f.pass(p)));
