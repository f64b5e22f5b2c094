#include "tests/cuda_probe/executor_cuda/messages.hpp"

namespace shardline::testing {

namespace {

Problem least() {
  Problem p;
  p.lengths = {1};
  return p;
}

Schedule with_flow() {
  Schedule s;
  s.flow = std::make_shared<Dataflow>();
  return s;
}

}  // namespace

Messages::Messages(int ranks, int slots, std::int64_t rows, std::int64_t columns)
    : schedule(with_flow()), builder(schedule), inputs(least()) {
  schedule.ranks_per_stage = ranks;
  Dataflow& f = *schedule.flow;
  // Rank r's part of slot s: request s * ranks + r.
  Matrix<float>& hidden = inputs.tensors[Whole::hidden];
  hidden.resize(slots * ranks * rows, columns);
  for (Eigen::Index i = 0; i < hidden.size(); ++i) hidden.data()[i] = static_cast<float>((i * 7 + i / 5) % 4);
  inputs.tensors.first_row.clear();
  const TokensId all = f.range(0, columns);
  for (int s = 0; s < slots; ++s) {
    const SlotId slot = f.slot("numbers", 2);
    for (int r = 0; r < ranks; ++r) {
      inputs.tensors.first_row.push_back((s * ranks + r) * rows);
      const Interval tokens[] = {{s * ranks + r, 0, rows}};
      f.size(slot, r, rows, columns);
      f.inputs.push_back({slot, r, Whole::hidden, f.tokens(tokens), all, 0});
      f.outputs.push_back(f.inputs.back());
    }
  }
  inputs.tensors.first_row.push_back(hidden.rows());
  builder.begin_block("messages");
}

OpIndex Messages::begin(OpKind kind, Group group) {
  if (group.size == 1) group = {schedule.ranks_per_stage, 1};
  // The builder drops exchanges of one rank.
  op = builder.exchange("messages", Part::exchange, kind, {std::max(group.size, 2), group.stride}, Bytes(0));
  schedule.ops[op].group = group;
  return op;
}

void Messages::finish() {
  const BlockIndex block = builder.end_block();
  builder.run({block});
  builder.end_stage();
}

}  // namespace shardline::testing
