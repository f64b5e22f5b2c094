// What a reader of a page of curves does, in headless Chromium, at two widths and in both colour schemes,
// with real keys and a mouse. What the cursor should read is computed here from the page's data. Usage: node
// curves_browser.js CHROMIUM PAGE; PICTURES=folder keeps a picture of each view.
'use strict';
const path = require('path');
const {Browser} = require('./browser.js');

const failures = [];
let checks = 0, where = '';
function expect(what, ok, found) {
  ++checks;
  if (!ok) failures.push(where + what + (found === undefined ? '' : ': found ' + JSON.stringify(found)));
}
const inPage = (browser, code) => browser.evaluate('(() => {' + code + '})()');

async function structure(browser, width) {
  const found = await inPage(browser, `
    const data = JSON.parse(document.getElementById('data').textContent);
    return {
      wide: document.documentElement.scrollWidth,
      plots: data.length,
      charts: document.querySelectorAll('#chart section canvas').length,
      tables: [...document.querySelectorAll('h2')].map(h => h.textContent),
      text: document.querySelector('main').innerText,
      blank: [...document.querySelectorAll('#chart canvas')].filter(c => {
        const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const first = p.slice(0, 3).join();
        for (let i = 0; i < p.length; i += 4) if (p.slice(i, i + 3).join() !== first) return false;
        return true;
      }).length
    };`);
  expect('the page is no wider than its window', found.wide <= width, found.wide);
  expect('every plot has its chart', found.plots === 3 && found.charts === 3, [found.plots, found.charts]);
  expect('no chart is blank', found.blank === 0, found.blank);
  expect(
      'latencies and targets are tables', ['What users see', 'Targets'].every(t => found.tables.includes(t)),
      found.tables);
  expect(
      'the plan has no batch, which is the scheduler\'s',
      found.text.includes('tensor:tpa=2,tpf=2, 1 x 2 GPUs'), found.text.slice(0, 400));
  const wrong = found.text.match(/.*\b(undefined|NaN|null|Infinity)\b.*/g);
  expect('no text is left out', wrong === null, wrong);
}

// Arrow keys read all curves at the nearest points.
async function keyboard(browser) {
  await browser.evaluate('document.querySelector(".curves").focus()');
  for (let i = 0; i < 20; ++i) await browser.key('ArrowRight');
  const found = await inPage(browser, `
    const data = JSON.parse(document.getElementById('data').textContent)[0];
    const said = document.getElementById('said').textContent, tip = document.getElementById('tip');
    const x = parseFloat(said);
    const nearest = data.series.filter(s => s.line).map(s => s.points.map(p => [Math.abs(Math.log(p[0] / x)), p[1]])
      .sort((a, b) => a[0] - b[0])[0][1]);
    return {
      hidden: tip.hidden, x, names: data.series.filter(s => s.line).map(s => s.name), nearest,
      shown: [...tip.querySelectorAll('dd')].map(d => parseFloat(d.textContent.replace(',', '')))
    };`);
  expect('the cursor reads every curve', !found.hidden && found.shown.length === found.names.length, found);
  expect(
      'at its nearest point', found.shown.every((y, i) => Math.abs(y - found.nearest[i]) <= 2 + .05 * y),
      found);
  await browser.key('Escape');
  expect('Escape leaves', await browser.evaluate('document.getElementById("tip").hidden'));
}

// A name of the legend takes its curve away, and its axis follows; a second time brings it back.
async function legend(browser) {
  const pictures = [];
  const look = async () =>
      pictures.push(await browser.evaluate('document.querySelector("#chart canvas").toDataURL()'));
  await look();
  await browser.evaluate('document.querySelector("#chart button").focus()');
  for (let i = 0; i < 2; ++i) {
    await browser.key('Enter');
    await look();
    expect(
        'the button says whether it is shown',
        await browser.evaluate('document.querySelector("#chart button").getAttribute("aria-pressed")') ===
            String(i === 1));
  }
  expect('a curve is hidden', pictures[0] !== pictures[1]);
  expect('and shown again', pictures[0] === pictures[2]);
}

async function main([program, file]) {
  const browser = new Browser(program);
  await browser.start();
  for (const [width, scheme] of [[420, 'dark'], [1400, 'light'], [420, 'light'], [1400, 'dark']]) {
    where = width + ' px, ' + scheme + ': ';
    await browser.open(file, width, 900, scheme);
    await structure(browser, width);
    await keyboard(browser);
    await legend(browser);
    expect('no fault in the console', browser.faults.length === 0, browser.faults);
    const outside = browser.requests.filter(url => !/^(file|data):/.test(url));
    expect('nothing is fetched', outside.length === 0, outside);
    if (process.env.PICTURES)
      await browser.picture(
          path.join(process.env.PICTURES, ['load', width, scheme].join('-') + '.png'), true);
  }
  await browser.close();
  failures.forEach(failure => console.log(failure.slice(0, 600)));
  console.log(checks + ' checks, ' + failures.length + ' failed');
  process.exit(failures.length ? 1 : 0);
}
main(process.argv.slice(2)).catch(error => {
  failures.forEach(failure => console.log(failure.slice(0, 600)));
  console.error(error);
  process.exit(1);
});
