// Which plans nothing beats, and how far those may be off. Directions are those of the two axes.
const sign = column => COLUMNS[column].better === 'less' ? -1 : 1;
const placed = p => p.numbers[X] !== null && p.numbers[Y] !== null;

// Plans that no other beats in both directions, in ascending x.
function frontier(list) {
  const score = (p, column) => sign(column) * p.numbers[column];
  const kept = [];
  let best = -Infinity;
  for (const p of list.filter(placed).sort(
           (a, b) => score(b, X) - score(a, X) || score(b, Y) - score(a, Y))) {
    if (score(p, Y) > best) {
      best = score(p, Y);
      kept.push(p);
    }
  }
  return kept.sort((a, b) => a.numbers[X] - b.numbers[X]);
}

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

// Around the best of exact plans, and around approximate ones ahead of them: along the worse ends and back
// along the better ones.
function bands(list) {
  if (!data.bands) return [];
  const around = (kept, approximate) => [true, false].flatMap((worse, back) => {
    const side = kept.filter(p => p.intervals[X] || p.intervals[Y])
                     .map(p => ({approximate, color: approximate ? '#c08a3e' : '#7a8696', ...end(p, worse)}));
    return back ? side.reverse() : side;
  });
  return [
    ...around(frontier(list.filter(p => p.exact)), false),
    ...around(frontier(list).filter(p => !p.exact), true)
  ];
}
