// Which plans nothing beats, and how far those may be off. Directions are those of the two axes.
const sign = column => COLUMNS[column].better === 'less' ? -1 : 1;
const placed = p => p.numbers[X] !== null && p.numbers[Y] !== null;

// Those of a list that no other beats in both directions, in ascending x; `at` says where one lies.
function unbeaten(list, at) {
  const score = p => ({x: sign(X) * at(p).x, y: sign(Y) * at(p).y});
  const kept = [];
  let best = -Infinity;
  for (const p of [...list].sort((a, b) => score(b).x - score(a).x || score(b).y - score(a).y)) {
    if (score(p).y > best) {
      best = score(p).y;
      kept.push(p);
    }
  }
  return kept.sort((a, b) => at(a).x - at(b).x);
}
const frontier = list => unbeaten(list.filter(placed), p => ({x: p.numbers[X], y: p.numbers[Y]}));

// Where a plan lies at an end of its interval: all its numbers err with the same time, so that the worse end
// of one comes with the worse end of the other.
function end(p, worse) {
  const at = column => {
    const interval = p.intervals[column];
    if (!interval) return p.numbers[column];
    const high = (COLUMNS[column].better === 'less') === worse;
    return p.numbers[column] * (1 + interval[high ? 1 : 0] / 100);
  };
  return {x: at(X), y: at(Y)};
}

// Around the best of exact plans, and around approximate ones ahead of them: along their frontier if all are
// at their worse ends, and back along the one if all are at their better ends. Joining every plan's own ends
// instead would draw a saw where neighbours' intervals differ.
function bands(list) {
  if (!data.bands) return [];
  const around = (kept, approximate) => [true, false].flatMap((worse, back) => {
    const color = approximate ? '#c08a3e' : '#7a8696';
    const ends = kept.filter(p => p.intervals[X] || p.intervals[Y])
                     .map(p => ({approximate, worse, color, ...end(p, worse)}));
    const side = unbeaten(ends, corner => corner);
    return back ? side.reverse() : side;
  });
  return [
    ...around(frontier(list.filter(p => p.exact)), false),
    ...around(frontier(list).filter(p => !p.exact), true)
  ];
}
