// What a reader of the page does, in headless Chromium, at two widths and in both colour schemes, with real
// keys and clicks. What filters, frontiers and ratios should be is computed here from the page's data by
// other means than its own. Usage: node page_browser.js CHROMIUM PAGE... ; PICTURES=folder keeps a picture of
// each view.
'use strict';
const fs = require('fs');
const path = require('path');
const {Browser} = require('./browser.js');

const failures = [];
let checks = 0;
function expect(what, ok, found) {
  ++checks;
  if (!ok) failures.push(what + (found === undefined ? '' : ': found ' + JSON.stringify(found)));
}
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

// Runs in the page. Plans that no other beats, by comparing all with all.
const helpers = `
  const plansOfTable = () => [...document.querySelectorAll('#rows .plan span')].map(e => e.textContent);
  const raw = JSON.parse(document.getElementById('data')?.textContent ?? 'null');
  const better = c => raw.columns[c].better === 'less' ? -1 : 1;
  const unbeaten = list => list.filter(p => p[6][raw.x] !== null && p[6][raw.y] !== null && !list.some(q => {
    const d = [raw.x, raw.y].map(c => better(c) * (q[6][c] - p[6][c]));
    return Math.min(...d) >= 0 && Math.max(...d) > 0;
  })).map(p => p[1]).sort();
  const setTo = (e, text) => { e.value = text; e.dispatchEvent(new Event('input', {bubbles: true})); };
  const counted = () => parseInt(document.getElementById('count').textContent);
`;
const inPage = (browser, code) => browser.evaluate('(() => {' + helpers + code + '})()');
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

async function layout(browser, width, scheme) {
  const wide = await browser.evaluate('document.documentElement.scrollWidth');
  expect('the page is no wider than its window', wide <= width, wide);
  const table = await inPage(browser, `
    const region = document.querySelector('.tall');
    return {has: region.clientWidth, needs: region.scrollWidth};`);
  expect('no column of the table of plans is cut', width < 1400 || table.needs <= table.has, table);
  const broken = await inPage(browser, `
    const out = [];
    for (const e of document.querySelectorAll('.plan span, #numbers thead th > span:last-child, #tip b, dd code')) {
      for (const node of e.childNodes) {
        if (node.nodeType !== 3) continue;
        for (const word of node.data.matchAll(/[^\\s]+/g)) {
          const range = document.createRange();
          range.setStart(node, word.index);
          range.setEnd(node, word.index + word[0].length);
          const tops = new Set([...range.getClientRects()].map(r => Math.round(r.top)));
          if (tops.size > 1) out.push(word[0]);
        }
      }
    }
    return out;`);
  expect('plans and commands break between words alone', broken.length === 0, broken);
  const head = await inPage(browser, `
    const region = document.querySelector('.tall');
    region.scrollTop = 150;
    const off = [...region.querySelectorAll('thead th')].map(th => th.getBoundingClientRect().top - region.getBoundingClientRect().top);
    const high = region.clientHeight / innerHeight;
    region.scrollTop = 0;
    return {off: Math.max(...off.map(Math.abs)), high};`);
  expect('a long table scrolls below its head', head.off <= 2 && head.high <= .86, head);
  const text = await browser.evaluate('document.querySelector("main").innerText');
  const wrong = text.match(/.*\b(undefined|NaN|null|Infinity)\b.*/g);
  expect('no text is left out', wrong === null, wrong);
  const contrast = await inPage(browser, `
    const probe = document.body.appendChild(document.createElement('div'));
    const light = name => {
      probe.style.color = 'var(' + name + ')';
      const part = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3)
        .map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
      return .2126 * part[0] + .7152 * part[1] + .0722 * part[2];
    };
    const ratio = (a, b) => (Math.max(light(a), light(b)) + .05) / (Math.min(light(a), light(b)) + .05);
    const out = ['--ink', '--soft', '--accent'].flatMap(c => ['--page', '--tint'].map(b => ratio(c, b)));
    const dark = light('--page') < .2;
    probe.remove();
    return {least: Math.min(...out), dark};`);
  expect('text stands out (WCAG AA, 4.5)', contrast.least >= 4.5, contrast.least);
  expect('colours are of the scheme asked for', contrast.dark === (scheme === 'dark'), contrast.dark);
}

// Pairs of pools of a served sweep: as many rows as its pools.csv has, none elsewhere.
async function pools(browser, file) {
  const csv = path.join(path.dirname(file), 'pools.csv');
  const lines =
      fs.existsSync(csv) ? fs.readFileSync(csv, 'utf8').split('\n').filter(l => l && !l.startsWith('#')) : [];
  const [head, ...rows] =
      lines.map(l => l.split(/,(?=(?:[^"]*"[^"]*")*[^"]*$)/).map(c => c.replaceAll('"', '')));
  const shown = await inPage(browser, `
    return [...document.querySelectorAll('table.whole')].map(t => ({
      title: document.getElementById(t.parentNode.getAttribute('aria-labelledby')).textContent,
      head: [...t.tHead.rows[0].cells].map(c => c.textContent),
      rows: [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent)),
      in: t.parentNode.getBoundingClientRect().right <= document.documentElement.clientWidth}));`);
  if (!head) return expect('no pools where the sweep has none', shown.length === 0, shown);
  const column = (name, from = rows) => from.map(r => r[head.indexOf(name)]);
  const of = (table, name) => table.rows.map(r => r[table.head.lastIndexOf(name)]);
  expect('pairs of pools are shown', shown.length >= 1 && rows.length > 0, shown.length);
  expect(
      'pairs have the plans of pools.csv',
      same(of(shown[0], 'decode plan'), column('decode_plan')) &&
          same(of(shown[0], 'prefill plan'), column('prefill_plan')),
      shown[0]);
  const near = (a, b) => Math.abs(parseFloat(a) / parseFloat(b) - 1) < 1e-3;
  expect(
      'pairs have its throughput',
      of(shown[0], 'tokens/s/GPU').every((v, i) => near(v, column('matched_tokens_per_s_gpu')[i])),
      of(shown[0], 'tokens/s/GPU'));
  const whole = rows.filter(r => r[head.indexOf('whole_gpus')]);
  expect(
      'whole replicas are shown',
      whole.length === 0 || same(of(shown[1], 'GPUs'), column('whole_gpus', whole)), shown[1]);
  expect('tables scroll within the page', shown.every(t => t.in));
}

async function tableAndFilters(browser) {
  const start = await inPage(
      browser,
      'return {shown: plansOfTable().sort(), best: unbeaten(raw.points),' +
          ' many: counted(), all: raw.points.length};');
  expect('the table is the frontier', same(start.shown, start.best), start);
  expect('all plans are counted', start.many === start.all, start.many);
  const opened = await inPage(browser, `
    const met = p => raw.target.every(t => t.most ? p[6][t.column] <= t.value : p[6][t.column] >= t.value);
    return plansOfTable().map(plan => met(raw.points.find(p => p[1] === plan)));`);
  expect(
      'plans that meet the target come first',
      !opened.includes(true) || !opened.slice(0, opened.lastIndexOf(true)).includes(false), opened);
  const filtered = await inPage(browser, `
    const out = [];
    raw.columns.forEach((column, c) => {
      const from = document.querySelector('input[data-end=from][data-column="' + column.name + '"]');
      const to = document.querySelector('input[data-end=to][data-column="' + column.name + '"]');
      if (!from) return;
      const numbers = raw.points.map(p => p[6][c]).sort((a, b) => a - b), middle = numbers[numbers.length >> 1];
      for (const [field, test] of [[from, n => n >= middle], [to, n => n <= middle]]) {
        setTo(field, String(middle));
        const left = raw.points.filter(p => test(p[6][c]));
        out.push([column.name, plansOfTable().sort(), unbeaten(left), counted(), left.length]);
        setTo(field, '');
      }
    });
    for (const [name, place, texts] of [['strategies', 0, raw.strategies], ['engines with launch files', 3, raw.engines]]) {
      const boxes = [...document.querySelectorAll('input[name="' + name + '"]')];
      if (!boxes.length) continue;
      boxes.slice(1).forEach(box => box.click());
      const left = raw.points.filter(p => [p[place]].flat().includes(texts.indexOf(boxes[0].value)));
      out.push([name, plansOfTable().sort(), unbeaten(left), counted(), left.length]);
      document.getElementById('reset').click();
    }
    const exactness = document.getElementById('exactness');
    if (exactness) {
      for (const [index, exact] of [[1, 1], [2, 0]]) {
        exactness.selectedIndex = index;
        exactness.onchange();
        const left = raw.points.filter(p => p[4] === exact);
        out.push(['exactness', plansOfTable().sort(), unbeaten(left), counted(), left.length]);
      }
    }
    document.getElementById('reset').click();
    return {out, after: counted(), several: new Set(raw.points.map(p => p[4])).size > 1, exactness: !!exactness};`);
  expect('there are filters', filtered.out.length >= 3, filtered.out.length);
  for (const [name, found, right, count, many] of filtered.out) {
    expect('plans left by ' + name, same(found, right), {found, right});
    expect('plans counted by ' + name, count === many, {count, many});
  }
  expect('exactness can be chosen where plans differ in it', filtered.several === filtered.exactness);
  expect('reset brings all back', filtered.after === start.all, filtered.after);
  const none = await inPage(browser, `
    setTo(document.querySelector('#filters input[type=number]'), '1e300');
    const said = document.getElementById('rows').textContent, left = counted();
    document.getElementById('reset').click();
    return {said, left, back: document.getElementById('rows').textContent};`);
  expect('filters that leave no plan say so', none.left === 0 && none.said.includes('Reset shows all'), none);
  expect('and no longer behind Reset', !none.back.includes('Reset shows all'));
  const sorted = await inPage(browser, `
    const column = raw.columns.findIndex(c => c.name === 'memory/GPU');
    const button = [...document.querySelectorAll('#head button')].find(b => b.textContent.startsWith('memory/GPU'));
    const of = plan => raw.points.find(p => p[1] === plan)[6][column];
    button.click();
    const up = plansOfTable().map(of), said = button.parentNode.getAttribute('aria-sort');
    button.click();
    const down = plansOfTable().map(of);
    return {up, said, down, saidDown: button.parentNode.getAttribute('aria-sort')};`);
  const ascending = list => list.every((n, i) => i === 0 || list[i - 1] <= n);
  expect('columns sort upwards', ascending(sorted.up) && sorted.said === 'ascending', sorted);
  expect('and downwards', ascending(sorted.down.reverse()) && sorted.saidDown === 'descending', sorted);
}

async function target(browser) {
  const found = await inPage(browser, `
    const limits = raw.target.filter(t => t.x !== null || t.y !== null);
    if (!limits.length || !window.vega) return {limits: 0};
    const canvas = document.querySelector('#chart canvas'), limit = limits[0];
    const left = view.origin()[0] + view.padding().left, top = view.origin()[1] + view.padding().top;
    const across = limit.x !== null, at = (across ? left + view.scale('x')(limit.x) : top + view.scale('y')(limit.y));
    const size = across ? view.height() : view.width();
    const strip = across ? canvas.getContext('2d').getImageData(Math.round(at) - 2, top, 5, size)
      : canvas.getContext('2d').getImageData(left, Math.round(at) - 2, size, 5);
    const probe = document.body.appendChild(document.createElement('div'));
    probe.style.color = 'var(--accent)';
    const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    probe.remove();
    const paper = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
    // A line between two pixels is half of its colour in both.
    const near = Math.max(60, .6 * (Math.abs(paper[0] - r) + Math.abs(paper[1] - g) + Math.abs(paper[2] - b)));
    let many = 0;
    for (let i = 0; i < strip.data.length; i += 4)
      if (Math.abs(strip.data[i] - r) + Math.abs(strip.data[i + 1] - g) + Math.abs(strip.data[i + 2] - b) < near) ++many;
    const met = p => raw.target.every(t => t.most ? p[6][t.column] <= t.value : p[6][t.column] >= t.value);
    const wrong = points.filter(p => (p.meets !== 'misses') !== met(raw.points[p.index])).map(p => p.plan);
    const select = document.getElementById('target');
    select.selectedIndex = 1;
    select.onchange();
    const left_over = counted(), right = raw.points.filter(met).length;
    document.getElementById('reset').click();
    return {limits: limits.length, share: many / size, wrong, left_over, right};`);
  if (found.limits === 0) return;
  expect('the line of the target is drawn', found.share > .3, found.share);
  expect('plans that miss the target are told', found.wrong.length === 0, found.wrong);
  expect('plans that meet the target can be chosen', found.left_over === found.right, found);
}

async function bandsAndChart(browser) {
  const found = await inPage(browser, `
    if (!window.vega) return null;
    const bars = view.data('bars').filter(b => !b.approximate), exact = raw.points.filter(p => p[4] === 1);
    const ends = new Set(unbeaten(exact));
    const known = exact.filter(p => ends.has(p[1]) && (p[7][raw.x] || p[7][raw.y]));
    // The interval's end that is worse, or better, in the direction of a column.
    const at = (p, c, which) => p[6][c] * (1 + (p[7][c] ? Math[better(c) * which > 0 ? 'max' : 'min'](...p[7][c]) : 0) / 100);
    const sides = [-1, 1].map(which => {
      const corners = known.map(p => [at(p, raw.x, which), at(p, raw.y, which)]);
      const ahead = (a, b) => [raw.x, raw.y].map((c, i) => better(c) * (a[i] - b[i]));
      const right = corners.filter(b => !corners.some(a => Math.min(...ahead(a, b)) >= 0 && Math.max(...ahead(a, b)) > 0));
      const drawn = bars.filter(b => b.worse === which < 0).map(b => [b.x, b.y]);
      const near = (a, b) => Math.abs(a[0] / b[0] - 1) + Math.abs(a[1] / b[1] - 1) < 1e-9;
      return {right: right.length, drawn: drawn.length,
              all: right.every(a => drawn.some(b => near(a, b))) && drawn.every(a => right.some(b => near(a, b)))};
    });
    return {bands: raw.bands, corners: bars.length, sides};`);
  if (!found) return;
  expect(
      'the band is the frontier of the worse ends and that of the better ones',
      found.bands ? found.sides.every(side => side.all && side.drawn > 0) : found.corners === 0, found);
  await browser.evaluate('document.querySelector("#chart").scrollIntoView({block: "center"})');
  const at = await browser.evaluate('placeOf(frontier(shown)[0])');
  await browser.click(...at);
  await pause(50);
  const chosenPlan = await browser.evaluate('chosen.map(p => p.plan)');
  expect('a click on a point chooses a plan', chosenPlan.length === 1, chosenPlan);
  expect(
      'its box has the plan',
      (await browser.evaluate('document.getElementById("tip").textContent')).includes(chosenPlan[0]));
  await browser.evaluate('chosen = []; compare(); table(); draw(false)');
  const marks = await browser.evaluate(`(() => {
    const at = drawn(frontier(shown)[0]), far = {...at, x: view.scale('x').invert(view.scale('x')(at.x) + 40)};
    return [[at], [at, at], [at, far]].map(pair => parted(pair.map(p => ({dx: 0, ...p}))).map(p => p.dx));
  })()`);
  expect('marks of two plans in one place stand beside each other', String(marks) === '0,-9,9,0,0', marks);
}

async function comparison(browser) {
  const found = await inPage(browser, `
    const buttons = () => [...document.querySelectorAll('#rows button[data-plan]')];
    if (buttons().length < 2) return null;
    const plans = plansOfTable();
    buttons()[0].click();
    const one = document.querySelectorAll('#numbers thead th').length;
    buttons()[buttons().length - 1].click();
    const heads = [...document.querySelectorAll('#numbers thead th')].map(e => e.textContent);
    const rows = [...document.querySelectorAll('#numbers tbody tr')].map(tr => [...tr.children].map(e => e.textContent));
    const [a, b] = [plans[0], plans[plans.length - 1]].map(plan => raw.points.find(p => p[1] === plan));
    const pressed = buttons().filter(e => e.getAttribute('aria-pressed') === 'true').length;
    const times = [...document.querySelectorAll('#why .times h3')].map(e => parseFloat(e.textContent.split(': ')[1].replace(/,/g, '')));
    const bars = [...document.querySelectorAll('#why .bar div')].map(e => [...e.children].length);
    return {one, heads, rows, a, b, pressed, times, bars, columns: raw.columns, plans, partsOf: raw.partsOf};`);
  if (!found) return;
  expect('one plan alone has a column', found.one === 1, found.one);
  expect(
      'two plans stand side by side',
      found.heads.length === 3 && found.heads[0].includes(found.a[1]) && found.heads[1].includes(found.b[1]),
      found.heads);
  expect('both buttons are pressed', found.pressed === 2, found.pressed);
  found.columns.forEach((column, c) => {
    const row = found.rows.find(cells => cells[0].startsWith(column.name));
    const ratio = found.b[6][c] / found.a[6][c];
    expect('there is a row of ' + column.name, row !== undefined);
    if (row && found.a[6][c] > 0) {
      const said = parseFloat(row[3].replace(/,/g, ''));
      expect('ratio of ' + column.name, Math.abs(said - ratio) <= ratio * .0051, {said, ratio});
    }
  });
  const all = p => p[9].reduce((sum, part) => sum + part[2], 0);
  [found.a, found.b].forEach((p, i) => {
    expect(
        'the parts of plan ' +
            'AB'[i] + ' are shown',
        Math.abs(found.times[i] / all(p) - 1) < 1e-3, found.times);
    if (found.partsOf === 'of TTL' || found.partsOf === 'of TPOT')
      expect('parts add up to the time', Math.abs(all(p) / p[6][0] - 1) < 1e-6, [all(p), p[6][0]]);
  });
  expect('every part has what bounds it', found.bars.length > 4 && found.bars.every(n => n > 0), found.bars);
}

async function keyboard(browser) {
  const stops = new Map();
  // One more than there can be, and the page itself: then Tab goes round without an end.
  const most = 2 +
      await browser.evaluate(
          'document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex]").length');
  let round = false;
  for (let i = 0; i < most && !round; ++i) {
    await browser.key('Tab');
    const at = await browser.evaluate(`(() => {
      const e = document.activeElement;
      if (e === document.body) return null;
      if (!e.dataset.stop) e.dataset.stop = Math.random();
      const s = getComputedStyle(e);
      const name = e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].textContent.trim()) || e.textContent.trim() ||
        (e.getAttribute('aria-labelledby') || '').split(' ').map(id => (document.getElementById(id) || {}).textContent || '').join(' ');
      return {stop: e.dataset.stop, what: e.tagName + '#' + e.id, name, seen: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2};
    })()`);
    round = at === null || stops.has(at.stop);
    if (!round) stops.set(at.stop, at);
  }
  expect('Tab comes round', round, stops.size);
  const list = [...stops.values()];
  expect('every stop shows its focus', list.every(s => s.seen), list.filter(s => !s.seen));
  expect('every stop has a name', list.every(s => s.name), list.filter(s => !s.name));
  const missed = await browser.evaluate(
      `[...document.querySelectorAll('button, input, select, #chart, .scroll, a, summary')]
    .filter(e => e.offsetParent !== null && !e.dataset.stop).map(e => e.outerHTML.slice(0, 90))`);
  expect('Tab reaches everything', missed.length === 0, missed);
  if (!await browser.evaluate('Boolean(window.vega)')) return;
  await browser.evaluate('document.getElementById("chart").focus()');
  await browser.key('ArrowRight');
  const first = await browser.evaluate(
      '[document.getElementById("said").textContent, frontier(shown)[0].plan, !document.getElementById("tip").hidden]');
  expect(
      'an arrow key goes to the first plan of the frontier', first[0].startsWith(first[1]) && first[2],
      first);
  await browser.key('Enter');
  expect(
      'Enter chooses it',
      await browser.evaluate('chosen.length === 1 && chosen[0].plan === frontier(shown)[0].plan'));
  await browser.key('Escape');
  expect('Escape leaves', await browser.evaluate('document.getElementById("tip").hidden'));
  await browser.evaluate('document.querySelector("#rows button[data-plan]").focus()');
  await browser.key(' ');
  expect(
      'a row keeps the focus when it is chosen',
      await browser.evaluate(
          'document.activeElement.dataset.plan !== undefined && document.activeElement.isConnected'));
}

// Without plans: no control and no empty table, and all that a reader sees within the window.
async function tablesAlone(browser, width) {
  const left = await inPage(browser, `
    return document.querySelectorAll('#controls, #chart, #rows, #none, script, a.skip').length;`);
  expect('nothing of plans is left where there are none', left === 0, left);
  const wide = await browser.evaluate('document.documentElement.scrollWidth');
  expect('the page is no wider than its window', wide <= width, wide);
  const text = await browser.evaluate('document.querySelector("main").innerText');
  expect('the page says why', text.includes('on the same GPUs'), text.slice(0, 200));
}

async function view(browser, file, width, scheme) {
  const before = failures.length;
  const quiet = () => {
    expect('no fault in the console', browser.faults.length === 0, browser.faults);
    const outside = browser.requests.filter(url => !/^(file|data):/.test(url));
    expect('nothing is fetched', outside.length === 0, outside);
  };
  await browser.open(file, width, 900, scheme);
  if (await browser.evaluate('document.getElementById("data") === null')) {
    await tablesAlone(browser, width);
    await pools(browser, file);
  } else {
    await keyboard(browser);
    quiet();
    await browser.open(file, width, 900, scheme);
    await tableAndFilters(browser);
    await target(browser);
    await bandsAndChart(browser);
    await comparison(browser);
    await pools(browser, file);
    await layout(browser, width, scheme);
  }
  quiet();
  if (process.env.PICTURES)
    await browser.picture(
        path.join(
            process.env.PICTURES, [path.basename(path.dirname(file)), width, scheme].join('-') + '.png'),
        true);
  for (let i = before; i < failures.length; ++i)
    failures[i] = file + ' (' + width + ' px, ' + scheme + '): ' + failures[i];
}

async function main([program, ...files]) {
  const browser = new Browser(program);
  await browser.start();
  const views = [[420, 'dark'], [1400, 'light'], [420, 'light'], [1400, 'dark']];
  for (const file of files)  // all views of the first: others differ in their data
    for (const [width, scheme] of views.slice(0, file === files[0] ? 4 : 2))
      await view(browser, file, width, scheme);
  await browser.close();
  failures.forEach(failure => console.log(failure.slice(0, 400)));
  console.log(checks + ' checks of ' + files.length + ' pages, ' + failures.length + ' failed');
  process.exit(failures.length ? 1 : 0);
}
main(process.argv.slice(2)).catch(error => {
  failures.forEach(failure => console.log(failure.slice(0, 400)));
  console.error(error);
  process.exit(1);
});
