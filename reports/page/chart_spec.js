// What the chart is made of, for Vega. All data come later, by name.
const AT = {
  x: {scale: 'x', field: 'x'},
  y: {scale: 'y', field: 'y'}
};
const value = v => ({value: v});

// One mark per row of the data `from`, which takes no clicks.
function drawnAs(type, from, look, more) {
  return {type, from: {data: from}, clip: true, interactive: false, encode: {update: look}, ...more};
}
// Marks that are joined, apart for each value of a field.
function apart(from, name, field, marks) {
  const whole = {width: {signal: 'width'}, height: {signal: 'height'}};
  return {
    type: 'group',
    interactive: false,
    from: {facet: {name, data: from, groupby: field}},
    encode: {update: whole},
    marks
  };
}

function axis(scale, orient, column) {
  const ink = cssColor('--ink'), soft = cssColor('--soft');
  const text = {signal: 'format(datum.value, datum.value < 1000 ? "~g" : "~s")'};
  const colors =
      {gridColor: cssColor('--line'), domainColor: soft, tickColor: soft, labelColor: ink, titleColor: ink};
  return {
    scale,
    orient,
    grid: true,
    ...colors,
    title: heading(COLUMNS[column]) + (COLUMNS[column].better === 'less' ? ', lower is better' : ''),
    labelFontSize: 12,
    titleFontSize: 13,
    titlePadding: 10,
    labelOverlap: true,
    tickCount: {signal: (orient === 'left' ? 'height' : 'width') + ' / 70'},
    encode: {labels: {update: {text}}}
  };
}

function frontierMarks(ink) {
  // Between two points a plan is as good as the one that is at least as good in x.
  const interpolate = value(COLUMNS[X].better === 'less' ? 'step-after' : 'step-before');
  const sort = {sort: {field: 'x'}};
  const colored = {stroke: {field: 'color'}, strokeWidth: value(1.8)};
  const dashed = {stroke: value(ink), strokeWidth: value(1.3), strokeDash: value([5, 4])};
  const shade = {fill: {field: 'color'}, fillOpacity: value(.2), strokeOpacity: value(.5)};
  const edge = {stroke: {field: 'color'}, strokeWidth: value(1.2), interpolate: value('linear-closed')};
  return [
    apart('bars', 'band_of', 'approximate', [drawnAs('line', 'band_of', {...AT, ...shade, ...edge})]),
    apart('steps', 'steps_of', 'strategy', [drawnAs(
                                               'line', 'steps_of', {...AT, interpolate, ...colored}, sort)]),
    drawnAs('line', 'best', {...AT, interpolate, ...dashed}, sort)
  ];
}

function planMarks(ink) {
  const look = {
    shape: {field: 'shape'},
    fill: {field: 'color'},
    size: [{test: 'datum.ring', value: 95}, value(34)],
    opacity: [{test: 'datum.faint', value: .3}, value(1)],
    fillOpacity: [{test: 'datum.open', value: .12}, {test: 'datum.ring', value: 1}, value(.6)],
    stroke: [{test: 'datum.open', field: 'color'}, {test: 'datum.ring', value: ink}, value(null)],
    strokeWidth: value(1.6),
    cursor: value('pointer'),
    tooltip: {signal: 'datum'}
  };
  return [drawnAs('symbol', 'points', {...AT, ...look}, {interactive: true, clip: false})];
}

// The target's lines with their words.
function targetMarks(accent) {
  const line = {stroke: value(accent), strokeWidth: value(1.6), strokeDash: value([7, 4])};
  const words = {text: {field: 'text'}, fill: value(accent), fontSize: value(12), fontWeight: value(600)};
  const right = 'scale("x", datum.at) > width / 2 ? ';
  const along = scale => ({scale, field: 'at'});
  return [
    drawnAs('rule', 'limits_x', {...line, x: along('x'), y: value(0), y2: {signal: 'height'}}),
    drawnAs('rule', 'limits_y', {...line, y: along('y'), x: value(0), x2: {signal: 'width'}}),
    drawnAs('text', 'limits_x', {
      ...words,
      x: {...along('x'), offset: {signal: right + '-5 : 5'}},
      y: {signal: 'height', offset: -8},
      align: {signal: right + '"right" : "left"'}
    }),
    drawnAs(
        'text', 'limits_y',
        {...words, x: {signal: 'width', offset: -4}, y: {...along('y'), offset: -6}, align: value('right')})
  ];
}

// The plans that are compared, with their intervals, and where the keyboard is.
function chosenMarks(ink, page, accent) {
  const line = {stroke: value(ink), strokeWidth: value(2)};
  const to = (scale, field) => ({scale, field});
  const letter =
      {align: value('center'), baseline: value('middle'), fontWeight: value(700), fontSize: value(12)};
  const beside = {...AT, x: {...AT.x, offset: {field: 'dx'}}};
  return [
    drawnAs('rule', 'chosen', {...line, x: to('x', 'x1'), x2: to('x', 'x2'), y: to('y', 'y')}),
    drawnAs('rule', 'chosen', {...line, y: to('y', 'y1'), y2: to('y', 'y2'), x: to('x', 'x')}),
    drawnAs('symbol', 'chosen', {...beside, ...line, size: value(260), fill: value(page)}, {clip: false}),
    drawnAs(
        'text', 'chosen', {...beside, ...letter, text: {field: 'letter'}, fill: value(ink)}, {clip: false}),
    drawnAs(
        'symbol', 'cursor',
        {...AT, size: value(420), fill: value('transparent'), stroke: value(accent), strokeWidth: value(3)},
        {clip: false})
  ];
}

function spec(logX, logY) {
  const ink = cssColor('--ink'), page = cssColor('--page'), accent = cssColor('--accent');
  const font = 'system-ui, sans-serif';
  const scale = (name, log, range) =>
      ({name, range, type: log ? 'log' : 'linear', domain: {signal: name + 'd'}, zero: false, nice: false});
  const names = ['points', 'steps', 'best', 'bars', 'limits_x', 'limits_y', 'chosen', 'cursor'];
  return {
    width: 100,
    height: 100,
    padding: 6,
    autosize: {type: 'fit', contains: 'padding'},
    background: page,
    config: {axis: {labelFont: font, titleFont: font}},
    signals: [{name: 'xd', value: [0, 1]}, {name: 'yd', value: [0, 1]}],
    data: names.map(name => ({name})),
    scales: [scale('x', logX, 'width'), scale('y', logY, 'height')],
    axes: [axis('x', 'bottom', X), axis('y', 'left', Y)],
    marks:
        [...frontierMarks(ink), ...targetMarks(accent), ...planMarks(ink), ...chosenMarks(ink, page, accent)]
  };
}
