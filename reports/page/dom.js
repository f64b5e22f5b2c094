// Pieces of the document that several parts of the page make.
const SHAPES = [
  'M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z', 'M-.85,-.85H.85V.85H-.85Z', 'M0,-1.1L1,.8H-1Z',
  'M0,-1.15L1,0L0,1.15L-1,0Z', 'M0,1.1L1,-.8H-1Z', 'M-.4,-1H.4V-.4H1V.4H.4V1H-.4V.4H-1V-.4H-.4Z'
];
// Told apart on white and on a dark page; the names are those of page.css.
const COLORS = 12;
const cssColor = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const shapeOf = strategy => SHAPES[strategy % SHAPES.length];

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// A plan or a command may be long. It breaks behind its punctuation, never inside a word.
function breakable(tag, text, className) {
  const e = element(tag, undefined, className);
  text.split(/(?<=[,:/])/).forEach((piece, i) => {
    if (i > 0) e.append(element('wbr'));
    e.append(piece);
  });
  return e;
}

function mark(strategy) {
  const ns = 'http://www.w3.org/2000/svg', svg = document.createElementNS(ns, 'svg');
  const path = svg.appendChild(document.createElementNS(ns, 'path'));
  svg.setAttribute('viewBox', '-1.2 -1.2 2.4 2.4');
  svg.setAttribute('class', 'mark');
  svg.setAttribute('aria-hidden', 'true');
  path.setAttribute('d', shapeOf(strategy));
  path.setAttribute('class', 'color' + strategy % COLORS);
  return svg;
}

function button(text, label, onclick) {
  const e = element('button', text);
  e.type = 'button';
  if (label) e.setAttribute('aria-label', label);
  e.onclick = onclick;
  return e;
}

let toastTimer = 0;
function toast(text) {
  byId('toast').textContent = text;
  byId('toast').hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    byId('toast').hidden = true;
  }, 2500);
}
function copy(p) {
  const done = () => toast('Copied: ' + p.command);
  const byHand = () => {
    const area = document.body.appendChild(element('textarea', p.command));
    area.select();
    document.execCommand('copy');
    area.remove();
    done();
  };
  if (navigator.clipboard)
    navigator.clipboard.writeText(p.command).then(done, byHand);
  else
    byHand();
}
const copyButton = p => button('Copy', 'Copy the command that simulates ' + p.plan, () => copy(p));
