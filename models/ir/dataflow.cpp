#include "models/ir/dataflow.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

void Dataflow::clear() {
  slots.clear();
  extents.clear();
  inputs.clear();
  outputs.clear();
  actions.clear();
  regions.clear();
  moves.clear();
  choices.clear();
  ops.clear();
  intervals.clear();
  token_begin.assign(1, 0);
}

SlotId Dataflow::slot(const char* name, double element_bytes) {
  slots.push_back({name, element_bytes});
  return static_cast<SlotId>(slots.size()) - 1;
}

void Dataflow::size(SlotId slot, int rank, std::int64_t row_count, std::int64_t columns) {
  extents.push_back({slot, rank, row_count, columns});
}

TokensId Dataflow::tokens(TokenView list) {
  intervals.insert(intervals.end(), list.begin(), list.end());
  token_begin.push_back(static_cast<std::uint32_t>(intervals.size()));
  return static_cast<TokensId>(token_begin.size()) - 2;
}

TokensId Dataflow::range(std::int64_t begin, std::int64_t end) {
  const Interval i{0, begin, end};
  return tokens({&i, 1});
}

const KeptChoice& Dataflow::choice_of(int rank, TokenView queries) const {
  const auto of_these = [&](const KeptChoice& k) {
    const TokenView list = token_list(k.queries);
    return k.rank == rank && std::equal(list.begin(), list.end(), queries.begin(), queries.end());
  };
  const auto found = std::find_if(choices.rbegin(), choices.rend(), of_these);
  SL_CHECK(found != choices.rend(), "a layer before has chosen for these queries");
  return *found;
}

void Dataflow::act(std::uint32_t op, Action action, std::span<const Region> action_regions) {
  if (ops.size() <= op) ops.resize(op + 1);
  OpFlow& flow = ops[op];
  if (flow.actions == 0) flow.first_action = static_cast<std::uint32_t>(actions.size());
  SL_CHECK(flow.first_action + flow.actions == actions.size(), "the actions of an op stand together");
  ++flow.actions;
  action.first_region = static_cast<std::uint32_t>(regions.size());
  action.regions = static_cast<std::uint32_t>(action_regions.size());
  regions.insert(regions.end(), action_regions.begin(), action_regions.end());
  actions.push_back(action);
}

void Dataflow::move(std::uint32_t op, const Move& m) {
  if (ops.size() <= op) ops.resize(op + 1);
  OpFlow& flow = ops[op];
  if (flow.moves == 0) flow.first_move = static_cast<std::uint32_t>(moves.size());
  SL_CHECK(flow.first_move + flow.moves == moves.size(), "the moves of an op stand together");
  SL_CHECK(m.source.rows == m.target.rows && m.source.columns == m.target.columns,
           "both ends of a move have one shape");
  ++flow.moves;
  moves.push_back(m);
}

double Dataflow::bytes_out(std::uint32_t op, int rank) const {
  double bytes = 0;
  if (op >= ops.size()) return 0;
  for (std::uint32_t i = 0; i < ops[op].moves; ++i) {
    const Move& m = moves[ops[op].first_move + i];
    if (m.from != rank || m.to == rank) continue;
    bytes += static_cast<double>(m.source.rows) * static_cast<double>(m.source.columns) *
             slots[m.source.slot].element_bytes;
  }
  return bytes;
}

}  // namespace shardline
