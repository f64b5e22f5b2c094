// Vertical-slash sparse prefill in the manner of MInference (arXiv 2407.02490), one rank or TP: the last
// queries attend to everything and choose, per head, columns that all queries see and diagonals. APPROXIMATE,
// and so is its cost: every head keeps as many columns and diagonals (MInference fits them per head), each
// diagonal is one key per query (its kernel rounds to blocks), and choosing is charged by the scores that it
// writes and reads. No data flow: which columns are kept depends on the numbers.
#include <cmath>

#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/prefill_layout.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

constexpr OptionOf<int> kVertical(
    {.key = "vertical", .help = "columns that every later query sees", .tokens = true, .decodes = false});
constexpr OptionOf<int> kSlash({.key = "slash",
                                .help = "diagonals, so last tokens that a query sees",
                                .tokens = true,
                                .decodes = false});
constexpr OptionOf<int> kEstimate(
    {.key = "estimate", .help = "last queries that choose both", .tokens = true, .decodes = false});
constexpr const Option* kOptions[]{&kVertical, &kSlash, &kEstimate};

Count triangle(Count n) { return n * (n + 1) / 2; }

// Pairs of queries [cached, cached + fresh) that see at most `width` keys each.
Count pairs(const Segment& r, Count width) {
  const Count from = r.cached, to = from + r.fresh;
  const auto upto = [&](Count n) { return n <= width ? triangle(n) : triangle(width) + (n - width) * width; };
  return upto(to) - upto(from);
}

Count width(const Plan& p) { return static_cast<Count>(p[kVertical]) + p[kSlash]; }

void attention(ContextStep& s) {
  s.expand_own();
  auto all = shape_of_heads<AttendPrefillShape>(s.heads, s.heads.q);
  all.intervals = 0;
  auto estimate = all;
  for (const Segment& r : batch_requests(s.c, s.p)) {
    const Count keys = r.cached + r.fresh;
    const Count last = std::min<Count>(s.p[kEstimate], r.fresh);
    all.pairs += pairs(r, width(s.p));
    all.q_rows += r.fresh;
    all.tiles += (r.fresh + kTileRows - 1) / kTileRows;
    ++all.intervals;
    all.kv_rows += keys;
    estimate.pairs += triangle(keys) - triangle(keys - last);
    estimate.q_rows += last;
    estimate.tiles += (last + kTileRows - 1) / kTileRows;
    ++estimate.intervals;
    estimate.kv_rows += keys;
  }
  s.b.attend("estimate", s.c.precision.kv, s.c.precision.math, estimate);
  // Scores in float32, written once, read for the columns and for the diagonals.
  s.b.elementwise("choose columns and diagonals", Part::attention, OpKind::elementwise,
                  {estimate.q_rows, estimate.q_heads,
                   Bytes(3 * 4 * static_cast<double>(estimate.pairs * estimate.q_heads))},
                  3);
  s.b.attend("attend", s.c.precision.kv, s.c.precision.math, all);
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  if (!kSparse.takes(c) || gpus > least_q_heads(c.model)) return;
  Plan p;
  p.strategy = id_of(kSparse);
  p.tpa = gpus;
  for (const int vertical : space.tried(kVertical, {1000})) {
    for (const int slash : space.tried(kSlash, {6096})) {
      for (const int estimate : space.tried(kEstimate, {64})) {
        p.set(kVertical, vertical);
        p.set(kSlash, slash);
        p.set(kEstimate, estimate);
        with_expert_splits(c, p, gpus, out);
      }
    }
  }
}

std::optional<std::string> check(const Case&, const Plan& p) {
  if (p[kVertical] < 1 || p[kSlash] < 1 || p[kEstimate] < 1)
    return "sparse needs vertical, slash and estimate, for instance vertical=1000,slash=6096,estimate=64";
  return std::nullopt;
}

double computed(const Case& c, const Plan& p) {
  double some = 0, exact = 0;
  for (const Segment& r : c.batch.prefill) {
    some += static_cast<double>(pairs(r, width(p))) * r.count;
    exact += static_cast<double>(pairs(r, r.length())) * r.count;
  }
  return some / exact;
}

}  // namespace

const Strategy kSparse{
    .name = "sparse",
    .summary = "TP with some columns and diagonals of the attention",
    .source = "after arXiv 2407.02490",
    .prefills = true,
    .exact = false,
    .degrees = kTensorDegrees,
    .options = kOptions,
    .enumerate = enumerate,
    .check = check,
    .prefill_attention = attention,
    .prefill_buffers = unsharded_buffers,
    .computed = computed,
    .verify = [](const VerifyTrial&, std::vector<Plan>&) {},
};

}  // namespace shardline
