// The pieces of a hand-off, moved by the CPU executor, are the cache that the other replica would have built;
// both sides' boxes are what lowering binds.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "cuda_probe/execute/verify/verify_models.hpp"
#include "planner/handoff/handoff_flow.hpp"
#include "planner/layers/share.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/handoff/random_pairs.hpp"

namespace shardline {
namespace {

using testing::handoff_of;
using testing::random_pair;
using testing::RandomPair;

// Random numbers that tell every row and column of every whole matrix apart.
std::vector<Tensors<double>> random_tensors(const Case& c, long long tokens, std::mt19937& random) {
  std::uniform_real_distribution<double> number(-1, 1);
  std::vector<Tensors<double>> out(c.model.attentions.size());
  for (std::size_t k = 0; k < out.size(); ++k) {
    const Attention& a = c.model.attentions[k];
    out[k].first_row = {0, tokens};
    const auto fill = [&](Whole w, std::int64_t columns) {
      out[k][w] = Matrix<double>::NullaryExpr(tokens, columns, [&](auto, auto) { return number(random); });
    };
    if (a.recurrent()) {
      const DeltaRule d = a.delta ? *a.delta
                                  : DeltaRule{.key_heads = a.mamba->groups,
                                              .value_heads = a.mamba->heads,
                                              .key_dim = a.mamba->state,
                                              .value_dim = a.mamba->head_dim};
      fill(Whole::state, std::int64_t{d.value_heads} * d.key_dim * d.value_dim);
      fill(Whole::channels, 2 * d.key_heads * d.key_dim + d.value_heads * d.value_dim);
      continue;
    }
    fill(Whole::kv, std::int64_t{a.kv_heads} * (key_width(a) + value_width(a)));
    fill(Whole::latent, a.compression ? key_width(a) : a.kv_lora_rank + a.rope_dim);
    if (a.index) fill(Whole::index_key, a.index->dim);
    if (!a.compression) continue;
    const std::int64_t parts = a.index ? 2 : 1;
    fill(Whole::row, key_width(a));
    for (const Whole w : {Whole::row_value, Whole::row_gate}) fill(w, parts * key_width(a));
    for (const Whole w : {Whole::index_row_value, Whole::index_row_gate})
      if (a.index) fill(w, parts * a.index->dim);
  }
  return out;
}

// The largest |got - want| of what the receivers end with; a number that nobody sent is not a number.
double moved_error(const Schedule& s, std::span<const Tensors<double>> tensors) {
  const RunResult<double> result = Executor<double>(s, tensors).run();
  double worst = 0;
  for (const Output<double>& o : result.outputs) {
    const Matrix<double> want =
        input_part(*s.flow, tensors[static_cast<std::size_t>(o.binding.kind)], o.binding);
    for (Eigen::Index i = 0; i < want.size(); ++i) {
      const double off = std::abs(o.values.data()[i] - want.data()[i]);
      worst = std::isnan(off) ? HUGE_VAL : std::max(worst, off);
    }
  }
  return worst;
}

TEST(Handoff, D6ThePiecesMovedAreTheCacheThatWouldHaveBeenBuilt) {
  std::mt19937 random(7);
  int outputs = 0;
  for (int i = 0; i < 1500; ++i) {
    const RandomPair pair = random_pair(random, 60);
    const Handoff h = handoff_of(pair);
    const auto tensors = random_tensors(pair.study, pair.tokens, random);
    for (int layer = 0; layer < pair.study.model.layers(); ++layer) {
      Schedule s;
      lower_handoff(s, pair.study, h, layer, pair.tokens);
      outputs += static_cast<int>(s.flow->outputs.size());
      ASSERT_LE(moved_error(s, tensors), 1e-12) << pair.what << ", layer " << layer;
    }
  }
  EXPECT_GT(outputs, 10000);
}

// Breaks one move in one layer of random pairs, and expects that every break is found.
template <class Break>
void expect_found(const char* what, Break break_it) {
  std::mt19937 random(11);
  int tried = 0;
  for (int i = 0; i < 600; ++i) {
    const RandomPair pair = random_pair(random, 60);
    const Handoff h = handoff_of(pair);
    const auto tensors = random_tensors(pair.study, pair.tokens, random);
    const auto layer = static_cast<int>(random() % static_cast<unsigned>(pair.study.model.layers()));
    Schedule s;
    lower_handoff(s, pair.study, h, layer, pair.tokens);
    std::vector<Move>& moves = s.flow->moves;
    if (moves.empty() || !break_it(*s.flow, moves[random() % moves.size()])) continue;
    ++tried;
    EXPECT_GT(moved_error(s, tensors), 1e-12) << what << ": " << pair.what << ", layer " << layer;
  }
  EXPECT_GE(tried, 60) << what;
}

Extent extent_of(const Dataflow& f, SlotId slot, int rank) {
  for (const Extent& e : f.extents) {
    if (e.slot == slot && e.rank == rank) return e;
  }
  return {};
}

TEST(Handoff, D6BrokenHandoffsAreFound) {
  expect_found("a piece is dropped", [](Dataflow&, Move& m) {
    // A copy of nothing is no message: the piece goes to rows of the sender.
    m.target.rows = m.source.rows = 0;
    return true;
  });
  expect_found("a head is taken for its neighbour", [](Dataflow& f, Move& m) {
    const Extent e = extent_of(f, m.source.slot, m.from);
    if (m.source.column >= m.source.columns)
      m.source.column -= m.source.columns;
    else if (m.source.column + 2 * m.source.columns <= e.columns)
      m.source.column += m.source.columns;
    else
      return false;
    return true;
  });
  expect_found("a block is taken for the one beside it", [](Dataflow& f, Move& m) {
    const Extent e = extent_of(f, m.source.slot, m.from);
    if (m.source.row >= m.source.rows)
      m.source.row -= m.source.rows;
    else if (m.source.row + 2 * m.source.rows <= e.rows)
      m.source.row += m.source.rows;
    else
      return false;
    return true;
  });
  expect_found("a block goes where the next one belongs", [](Dataflow& f, Move& m) {
    const Extent e = extent_of(f, m.target.slot, m.to);
    if (m.target.row + 2 * m.target.rows > e.rows) return false;
    m.target.row += m.target.rows;
    return true;
  });
}

// ---- boxes against what lowering binds

// (row, column) of whole matrices that a rank of a kind has.
using Bound = std::map<std::tuple<int, int, Whole>, std::set<std::pair<std::int64_t, std::int64_t>>>;

constexpr bool of_cache(Whole w) {
  return w == Whole::kv || w == Whole::latent || w == Whole::index_key || w == Whole::state ||
         w == Whole::channels || w == Whole::row;
}

// What rows to come are made of: a step binds those of the rows that it makes.
constexpr bool of_rows_to_come(Whole w) {
  return w == Whole::row_value || w == Whole::row_gate || w == Whole::index_row_value ||
         w == Whole::index_row_gate;
}

void add_bound(const Dataflow& f, const std::vector<Binding>& list, int first_rank, int ranks,
               long long tokens, Bound& out, bool (*counts)(Whole) = of_cache) {
  for (const Binding& b : list) {
    if (!counts(b.whole) || b.rank < first_rank || b.rank >= first_rank + ranks) continue;
    for (const Interval& r : f.token_list(b.rows)) {
      for (std::int64_t i = 0; i < r.size(); ++i) {
        if (r.request != 0 || r.position(i) >= tokens) continue;
        for (const Interval& c : f.token_list(b.columns)) {
          for (std::int64_t j = c.begin; j < c.end; ++j)
            out[{b.rank - first_rank, b.kind, b.whole}].insert({r.position(i), j});
        }
      }
    }
  }
}

// What all layers of a stage bind, of the receivers' or the senders' side of a hand-off to itself.
Bound of_layout(const Case& c, const Plan& p, CacheSide side, long long tokens,
                bool (*counts)(Whole) = of_cache) {
  Handoff h;
  h.source = h.target = cache_layout(c, p, side, tokens);
  Bound out;
  std::set<int> kinds;
  for (int layer = 0; layer < c.model.layers(); ++layer) {
    const int kind = h.source.kind_of[static_cast<std::size_t>(layer)];
    if (!kinds.insert(kind).second) continue;
    Schedule s;
    lower_handoff(s, c, h, layer, tokens);
    Bound of_all;
    add_bound(*s.flow, s.flow->inputs, 0, h.source.ranks, tokens, of_all, counts);
    // Stages are alike; schedules have the ranks of one.
    for (auto& [key, bound] : of_all) {
      const auto [rank, k, whole] = key;
      out[{rank % p.ranks_per_stage(), k, whole}].insert(bound.begin(), bound.end());
    }
  }
  return out;
}

// Every strategy that decodes, with every option that `verify` tries, binds the boxes of to_decode for
// request 0, which attention group 0 has; but that a convolution's rows stand in a slot of their own.
TEST(Handoff, D1BoxesToDecodeAreWhatLoweringBinds) {
  int compared = 0;
  for (const Strategy* s : strategies()) {
    // It deals the whole context out anew at each step, the new token among it.
    if (!s->decodes || s->context_parallel()) continue;
    for (const cli::VerifyCase& v : cli::verify_cases(*s)) {
      if (v.study.batch.kind() != StepKind::decode || v.plan[kDrafts] > 0) continue;
      const long long tokens = v.study.batch.decode.front().cached;
      const Schedule schedule = cli::verify_schedule(v);
      Bound got, want = of_layout(v.study, v.plan, CacheSide::to_decode, tokens);
      add_bound(*schedule.flow, schedule.flow->inputs, 0, v.plan.ranks_per_stage(), tokens, got);
      for (auto it = got.begin(); it != got.end();) it = it->second.empty() ? got.erase(it) : std::next(it);
      for (auto it = want.begin(); it != want.end();)
        it = it->second.empty() ? want.erase(it) : std::next(it);
      // Requests of the second group are others.
      for (auto it = got.begin(); it != got.end();)
        it = std::get<0>(it->first) >= v.plan.group() ? got.erase(it) : std::next(it);
      ASSERT_EQ(got, want) << v.what;
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

// Rows that a step makes are made of tokens that the boxes have, but for the step's own.
TEST(Handoff, D1WhatRowsToComeAreMadeOfIsInTheBoxes) {
  int compared = 0;
  for (const Strategy* s : strategies()) {
    if (!s->decodes || !s->compressed) continue;
    for (const cli::VerifyCase& v : cli::verify_cases(*s)) {
      if (v.study.batch.kind() != StepKind::decode || !has_compression(v.study.model)) continue;
      const long long tokens = v.study.batch.decode.front().cached;
      const Schedule schedule = cli::verify_schedule(v);
      Bound got;
      const Bound has = of_layout(v.study, v.plan, CacheSide::to_decode, tokens, of_rows_to_come);
      add_bound(*schedule.flow, schedule.flow->inputs, 0, v.plan.group(), tokens, got, of_rows_to_come);
      for (const auto& [key, bound] : got) {
        if (bound.empty()) continue;
        ASSERT_TRUE(has.count(key)) << v.what;
        const auto& box = has.at(key);
        ASSERT_TRUE(std::includes(box.begin(), box.end(), bound.begin(), bound.end())) << v.what;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 100);
}

// Of prefills where keys are inputs: those behind a cache, with latents, indexes or windows. States are
// outputs.
TEST(Handoff, D1BoxesOfPrefillsAreWhatLoweringBinds) {
  int compared = 0;
  for (const Strategy* s : strategies()) {
    if (!s->prefills || !s->exact) continue;
    for (const cli::VerifyCase& v : cli::verify_cases(*s)) {
      const auto& prompts = v.study.batch.prefill;
      if (v.study.batch.kind() != StepKind::prefill || prompts.size() != 1 || prompts.front().cached > 0 ||
          v.plan.batch > 1 || v.plan[kPrefillChunk] > 0)
        continue;
      // What ranks with whole caches gather in the step is no input of it.
      const bool rows = has_compression(v.study.model);
      if (keeps_whole_caches(v.study, v.plan) || (rows && v.plan.cp > 1)) continue;
      const long long tokens = prompts.front().length();
      const Schedule schedule = cli::verify_schedule(v);
      Bound got, want = of_layout(v.study, v.plan, CacheSide::prefilled, tokens);
      add_bound(*schedule.flow, schedule.flow->inputs, 0, v.plan.ranks_per_stage(), tokens, got);
      add_bound(*schedule.flow, schedule.flow->outputs, 0, v.plan.ranks_per_stage(), tokens, got);
      for (const auto& [key, bound] : want) {
        const auto [rank, kind, whole] = key;
        const auto same = got.find(key);
        // A whole layer makes its keys itself; tokens for heads are exchanged on the way.
        if (whole == Whole::kv && same == got.end()) continue;
        // Rows are made in the step.
        if (rows && (whole == Whole::row || whole == Whole::index_key)) continue;
        if (s->head_ranks != nullptr || (whole == Whole::channels && v.plan.cp > 1)) continue;
        ASSERT_NE(same, got.end()) << v.what;
        // Windows drop what no later query sees only behind the step; of channels the last rows stay.
        ASSERT_TRUE(std::includes(same->second.begin(), same->second.end(), bound.begin(), bound.end()))
            << v.what;
        const Attention& a = v.study.model.attentions[static_cast<std::size_t>(kind)];
        if (!a.reach.local() && whole != Whole::channels) {
          ASSERT_EQ(same->second, bound) << v.what << ", rank " << rank;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 300);
}

}  // namespace
}  // namespace shardline
