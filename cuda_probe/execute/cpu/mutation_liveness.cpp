// Which messages matter: walks the data flow backwards from the outputs.
#include <map>

#include "cuda_probe/execute/cpu/executor.hpp"
#include "cuda_probe/execute/cpu/functions.hpp"
#include "cuda_probe/execute/cpu/mutation_places.hpp"

namespace shardline::mutation {

namespace {

enum : std::size_t { kDecaysOfState = 3, kStateBefore = 5 };  // regions of delta_rule and state_space

class Liveness {
 public:
  Liveness(const Dataflow& flow, Effect effect)
      : flow_(flow), effect_(effect), useful_(flow.moves.size(), false) {
    for (const Extent& e : flow.extents) live_[{e.slot, e.rank}].setZero(e.rows, e.columns);
    for (const Binding& b : flow.outputs) {
      Matrix<char>& m = live_[{b.slot, b.rank}];
      Eigen::Index row = 0;
      for (const Interval& i : flow.token_list(b.rows)) {
        if (i.request != kPadding) m.middleRows(row, i.size()).setOnes();
        row += i.size();
      }
    }
  }

  void before(OpIndex op) {
    const OpFlow& part = flow_.ops[op];
    moves(part);
    for (std::uint32_t i = part.actions; i-- > 0;) act(op, flow_.actions[part.first_action + i]);
  }
  const std::vector<bool>& useful() const { return useful_; }

 private:
  View<char> view(int rank, const Region& r) {
    return live_[{r.slot, rank}].block(r.row, r.column, r.rows, r.columns);
  }

  void moves(const OpFlow& part) {
    std::vector<Matrix<char>> targets;
    for (std::uint32_t i = 0; i < part.moves; ++i) {
      const Move& m = flow_.moves[part.first_move + i];
      targets.push_back(view(m.to, m.target));
      useful_[part.first_move + i] = (targets.back().array() != 0).any();
    }
    for (std::uint32_t i = 0; i < part.moves; ++i) {
      const Move& m = flow_.moves[part.first_move + i];
      if (!m.add) view(m.to, m.target).setZero();
    }
    for (std::uint32_t i = 0; i < part.moves; ++i) {
      const Move& m = flow_.moves[part.first_move + i];
      View<char> source = view(m.from, m.source);
      source = source.cwiseMax(targets[i]).eval();
    }
  }

  void act(OpIndex op, const Action& a) {
    const auto regions = flow_.regions_of(a);
    const auto result_at = [&](std::size_t i) { return is_result(a.function, i, regions.size()); };
    std::vector<bool> rows_live;
    for (std::size_t i = 0; i < regions.size(); ++i) {
      if (!result_at(i)) continue;
      rows_live.resize(static_cast<std::size_t>(regions[i].rows), false);
      View<char> result = view(a.rank, regions[i]);
      for (std::size_t row = 0; row < rows_live.size(); ++row)
        rows_live[row] = rows_live[row] || (result.row(static_cast<Eigen::Index>(row)).array() != 0).any();
      result.setZero();
    }
    for (std::size_t i = 0; i < regions.size(); ++i) {
      if (!result_at(i)) mark(op, a, i, rows_live);
    }
  }

  /// Input i of an action whose results matter in these rows.
  void mark(OpIndex op, const Action& a, std::size_t i, const std::vector<bool>& rows_live) {
    const auto regions = flow_.regions_of(a);
    // A score of a block is the highest of many products, or given; few blocks of keys are chosen.
    // So are rows of several tokens, which other numbers may leave chosen as they were.
    const bool of_blocks = a.function == Function::block_scores || (a.chosen && a.block > 1 && i == 1) ||
                           (a.function == Function::index_scores && a.ratio > 1);
    if (effect_ == Effect::sure && of_blocks) return;
    View<char> input = view(a.rank, regions[i]);
    // Every row of a choice may decide which rows are chosen.
    const bool multiplies = a.function == Function::gemm || a.function == Function::gemm_per_head ||
                            a.function == Function::expand;
    const bool sinks = has_sinks(a) && i == kSinks;
    const bool weight = a.function == Function::compress || a.function == Function::make_rows ||
                        is_recurrent(a.function) || (i == 1 && multiplies) || sinks ||
                        (a.function == Function::index_scores && i == 2) ||
                        (a.function == Function::block_scores && i == 1);
    const bool keys = i == 1 && a.function == Function::attend;
    const bool attend = a.function == Function::attend;
    const std::vector<bool> seen = attend && !sinks ? mask(flow_, a) : std::vector<bool>{};
    const std::size_t width = attend && !sinks ? static_cast<std::size_t>(regions[1].rows) : 0;
    std::vector<bool> needed(static_cast<std::size_t>(input.rows()), false);
    for (std::size_t row = 0; row < rows_live.size(); ++row) {
      if (!rows_live[row]) continue;
      // What saw nothing has no weight in a merge; that it saw nothing has to be known.
      if (a.function == Function::merge && i % 2 == 0) {
        const Region& r = regions[i + 1];
        const auto at = static_cast<Eigen::Index>(row);
        if (!contributes(flow_, op, a.rank, {r.slot, r.row + at, 1, r.column, r.columns})) continue;
      }
      // No weight matters where a rank's own part, the only one that it gives, is zeros.
      if (a.function == Function::merge &&
          !sees_some(flow_, op, a, regions.size() - 2, static_cast<std::int64_t>(row), 1))
        continue;
      if (weight) needed.assign(needed.size(), true);
      if (!weight && !attend) needed[row] = true;
      std::size_t keys_seen = 0;
      for (std::size_t k = 0; k < width; ++k) {
        if (!seen[row * width + k]) continue;
        ++keys_seen;
        needed[keys ? k : row] = true;
      }
      // The one key that a window or a chunk leaves has all weight, whatever the query.
      if (!keys && a.reach.local() && !has_sinks(a) && keys_seen == 1) needed[row] = false;
    }
    // Without a state before them the first token's decays have nothing to decay.
    const bool states = a.function == Function::delta_rule || a.function == Function::state_space;
    if (states && i == kDecaysOfState && regions[kStateBefore].rows == 0 && !needed.empty())
      needed[0] = false;
    for (std::size_t row = 0; row < needed.size(); ++row) {
      if (needed[row]) input.row(static_cast<Eigen::Index>(row)).setOnes();
    }
  }

  const Dataflow& flow_;
  const Effect effect_;
  std::map<std::pair<SlotId, int>, Matrix<char>> live_;
  std::vector<bool> useful_;
};

}  // namespace

std::vector<bool> useful_moves(const Schedule& s, Effect effect) {
  Liveness liveness(*s.flow, effect);
  const std::vector<BlockIndex> blocks = block_order(s);
  for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
    for (std::uint32_t op = s.blocks[*b].last; op-- > s.blocks[*b].first;) {
      if (op < s.flow->ops.size()) liveness.before(op);
    }
  }
  return liveness.useful();
}

}  // namespace shardline::mutation
