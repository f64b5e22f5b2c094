#include "cuda_probe/execute/cpu/executor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "cuda_probe/execute/cpu/functions.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

constexpr double kGarbage = 1e30;

const OpFlow& flow_of(const Dataflow& flow, OpIndex op) {
  static const OpFlow nothing;
  return op < flow.ops.size() ? flow.ops[op] : nothing;
}

const Dataflow& flow_or_throw(const Schedule& s) {
  if (!s.flow) throw ExecutionError("the schedule has no data flow");
  return *s.flow;
}

/// One event for all ranks, and not one per rank.
bool joint(const Schedule& s, OpIndex op) {
  return is_communication(s.ops[op].kind) || flow_of(*s.flow, op).moves > 0;
}

struct Node {
  OpIndex op;
  int rank = -1;  // -1: all
  int waits_for = 0;
  std::vector<std::uint32_t> next;
};

std::vector<Node> nodes_of(const Schedule& s, const Block& block, int ranks) {
  std::vector<Node> nodes;
  std::vector<std::uint32_t> first(block.last - block.first);
  const auto node = [&](OpIndex op, int rank) {
    return first[op - block.first] + static_cast<std::uint32_t>(joint(s, op) ? 0 : rank);
  };
  for (OpIndex op = block.first; op < block.last; ++op) {
    first[op - block.first] = static_cast<std::uint32_t>(nodes.size());
    const bool all = joint(s, op);
    for (int r = 0; r < (all ? 1 : ranks); ++r) nodes.push_back({op, all ? -1 : r, 0, {}});
    for (const OpIndex before : predecessors(s, block, op)) {
      if (all && joint(s, before)) {
        nodes[node(before, 0)].next.push_back(node(op, 0));
        ++nodes[node(op, 0)].waits_for;
        continue;
      }
      for (int r = 0; r < ranks; ++r) {
        if (!waits_for(s, op, before, r)) continue;
        nodes[node(before, r)].next.push_back(node(op, r));
        ++nodes[node(op, r)].waits_for;
      }
    }
  }
  return nodes;
}

/// `ready` is in the order in which nodes became ready; returns a place in it.
std::size_t choose(const Schedule& s, std::span<const Node> nodes, std::span<const std::uint32_t> ready,
                   Order order, std::mt19937_64& random) {
  if (order == Order::latest_ready_first) return ready.size() - 1;
  if (order == Order::random) return random() % ready.size();
  const auto late = [&](std::uint32_t n) {
    const bool communicates = s.ops[nodes[n].op].lane == Lane::communication;
    return order == Order::by_index ? false : communicates == (order == Order::compute_first);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < ready.size(); ++i) {
    const std::pair a{late(ready[i]), ready[i]}, b{late(ready[best]), ready[best]};
    if (a < b) best = i;
  }
  return best;
}

}  // namespace

std::string_view to_string(Order order) {
  constexpr std::array<std::string_view, kOrders> names{"by_index", "latest_ready_first",
                                                        "communication_first", "compute_first", "random"};
  return names[static_cast<std::size_t>(order)];
}

int ranks_of(const Schedule& s) {
  int ranks = s.ranks_per_stage;
  for (const Extent& e : s.flow->extents) ranks = std::max(ranks, e.rank + 1);
  return ranks;
}

std::vector<BlockIndex> block_order(const Schedule& s) {
  std::vector<BlockIndex> order;
  std::vector<bool> seen(s.blocks.size(), false);
  for (const Stage& stage : s.stages) {
    for (const Repeat& repeat : s.program_of(stage)) {
      for (const BlockIndex b : s.blocks_of(repeat)) {
        if (!seen[b]) order.push_back(b);
        seen[b] = true;
      }
    }
  }
  return order;
}

std::vector<OpIndex> predecessors(const Schedule& s, const Block& block, OpIndex op) {
  const auto depends_on = s.dependencies_of(s.ops[op]);
  std::vector<OpIndex> out(depends_on.begin(), depends_on.end());
  for (std::uint32_t before = op; before > block.first;) {
    if (s.ops[--before].lane != s.ops[op].lane) continue;
    out.push_back(before);
    break;
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (!out.empty() && (out.front() < block.first || out.back() >= op))
    throw ExecutionError("op " + std::to_string(op) + " '" + s.ops[op].name +
                         "' depends on an op that is not before it in its block");
  return out;
}

bool waits_for(const Schedule& s, OpIndex op, OpIndex before, int rank) {
  return takes_part(s.ops[op], rank) && binds(s.ops[before], rank);
}

template <class Scalar>
Executor<Scalar>::Executor(const Schedule& schedule, std::span<const Tensors<Scalar>> kinds)
    : schedule_(schedule), flow_(flow_or_throw(schedule)), kinds_(kinds), ranks_(ranks_of(schedule)) {}

template <class Scalar>
void Executor<Scalar>::fail(OpIndex op, int rank, const std::string& what) const {
  throw ExecutionError("op " + std::to_string(op) + " '" + schedule_.ops[op].name + "', rank " +
                       std::to_string(rank) + ": " + what);
}

template <class Scalar>
Matrix<Scalar>& Executor<Scalar>::slot(SlotId id, int rank) {
  if (id >= flow_.slots.size() || rank < 0 || rank >= ranks_)
    throw ExecutionError("slot " + std::to_string(id) + " of rank " + std::to_string(rank) +
                         " does not exist");
  return slots_[static_cast<std::size_t>(id) * static_cast<std::size_t>(ranks_) +
                static_cast<std::size_t>(rank)];
}

template <class Scalar>
Done& Executor<Scalar>::count(OpIndex op, int rank) {
  return counts_[static_cast<std::size_t>(op) * static_cast<std::size_t>(ranks_) +
                 static_cast<std::size_t>(rank)];
}

template <class Scalar>
View<Scalar> Executor<Scalar>::view(OpIndex op, int rank, const Region& r) {
  if (r.slot >= flow_.slots.size() || rank < 0 || rank >= ranks_) fail(op, rank, "no such slot or rank");
  Matrix<Scalar>& m = slot(r.slot, rank);
  if (r.row < 0 || r.rows < 0 || r.column < 0 || r.columns < 0 || r.row + r.rows > m.rows() ||
      r.column + r.columns > m.cols()) {
    const auto part = [](std::int64_t at, std::int64_t size) {
      return "[" + std::to_string(at) + ", " + std::to_string(at + size) + ")";
    };
    fail(op, rank,
         "rows " + part(r.row, r.rows) + " x columns " + part(r.column, r.columns) + " lie outside slot '" +
             flow_.slots[r.slot].name + "' of " + std::to_string(m.rows()) + " x " +
             std::to_string(m.cols()));
  }
  return m.block(r.row, r.column, r.rows, r.columns);
}

template <class Scalar>
Matrix<Scalar> input_part(const Dataflow& flow, const Tensors<Scalar>& tensors, const Binding& b) {
  const Matrix<Scalar>& whole = tensors[b.whole];
  const TokenView row_list = flow.token_list(b.rows), column_list = flow.token_list(b.columns);
  const auto fail_binding = [&](const std::string& what) {
    throw ExecutionError(std::string("input '") + flow.slots[b.slot].name + "', rank " +
                         std::to_string(b.rank) + ": " + what);
  };
  Matrix<Scalar> part =
      Matrix<Scalar>::Constant(rows(row_list), rows(column_list), static_cast<Scalar>(kGarbage));
  Eigen::Index row = 0;
  for (const Interval& i : row_list) {
    if (i.request != kPadding) {
      const auto request = static_cast<std::size_t>(i.request);
      const bool tokens = rows_are_tokens(b.whole);
      if (tokens && (i.request < 0 || request + 1 >= tensors.first_row.size()))
        fail_binding("no such request");
      const std::int64_t first = tokens ? tensors.first_row[request] : 0;
      const std::int64_t end = tokens ? tensors.first_row[request + 1] : whole.rows();
      if (i.begin < 0 || i.end < i.begin || first + i.end > end)
        fail_binding("rows [" + std::to_string(i.begin) + ", " + std::to_string(i.end) + ") lie outside " +
                     std::to_string(end - first));
      Eigen::Index column = 0;
      for (const Interval& c : column_list) {
        if (c.begin < 0 || c.end < c.begin || c.end > whole.cols())
          fail_binding("columns [" + std::to_string(c.begin) + ", " + std::to_string(c.end) +
                       ") lie outside " + std::to_string(whole.cols()));
        auto target = part.block(row, column, i.size(), c.size());
        if (i.stride == 1 && c.stride == 1)
          target = whole.block(first + i.begin, c.begin, i.size(), c.size());
        else
          target = whole(Eigen::seqN(first + i.begin, i.size(), i.stride),
                         Eigen::seqN(c.begin, c.size(), c.stride));
        column += c.size();
      }
    }
    row += i.size();
  }
  return part;
}

template <class Scalar>
void Executor<Scalar>::allocate() {
  counts_.assign(schedule_.ops.size() * static_cast<std::size_t>(ranks_), {});
  slots_.assign(flow_.slots.size() * static_cast<std::size_t>(ranks_), {});
  for (const Extent& e : flow_.extents) {
    Matrix<Scalar>& m = slot(e.slot, e.rank);
    if (m.size() > 0)
      throw ExecutionError(std::string("slot '") + flow_.slots[e.slot].name + "' of rank " +
                           std::to_string(e.rank) + " is declared twice");
    m.setConstant(e.rows, e.columns, std::numeric_limits<Scalar>::quiet_NaN());
  }
  for (const Binding& b : flow_.inputs) {
    Matrix<Scalar>& m = slot(b.slot, b.rank);
    const auto fail_input = [&](const std::string& what) {
      throw ExecutionError(std::string("input '") + flow_.slots[b.slot].name + "', rank " +
                           std::to_string(b.rank) + ": " + what);
    };
    if (b.kind < 0 || static_cast<std::size_t>(b.kind) >= kinds_.size())
      fail_input("kind " + std::to_string(b.kind) + " of attention, of " + std::to_string(kinds_.size()));
    Matrix<Scalar> part = input_part(flow_, kinds_[static_cast<std::size_t>(b.kind)], b);
    if (part.rows() != m.rows() || part.cols() != m.cols())
      fail_input(std::to_string(part.rows()) + " x " + std::to_string(part.cols()) +
                 " elements for a slot of " + std::to_string(m.rows()) + " x " + std::to_string(m.cols()));
    m = std::move(part);
  }
}

template <class Scalar>
void Executor<Scalar>::act(OpIndex op, const Action& a, const RunOptions& options) {
  std::vector<View<Scalar>> views;
  for (const Region& r : flow_.regions_of(a)) views.push_back(view(op, a.rank, r));
  const TokenView queries = flow_.token_list(a.queries), keys = flow_.token_list(a.keys);
  const std::string wrong = wrong_shape<Scalar>(a, queries, keys, views);
  if (!wrong.empty()) fail(op, a.rank, wrong);
  Done& c = count(op, a.rank);
  if (a.function == Function::attend) {
    const double scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(a.qk_dim));
    const Attended done = attend<Scalar>(a, queries, keys, scale, views);
    c.pairs += a.heads * (a.rectangle ? static_cast<double>(all_pairs(queries, keys)) : done.pairs);
    c.query_rows += a.heads * static_cast<double>(real_rows(queries));
    c.kv_elements += done.key_rows * static_cast<double>(views[1].cols());
  } else if (a.function == Function::merge) {
    merge<Scalar>(a, views);
  } else if (a.function == Function::index_scores) {
    c.multiply_adds += index_scores<Scalar>(a, queries, keys, views);
  } else if (a.function == Function::block_scores) {
    c.multiply_adds += block_scores<Scalar>(a, queries, keys, views);
  } else if (a.function == Function::make_rows) {
    make_rows<Scalar>(a, queries, keys, views);
  } else if (a.function == Function::choose) {
    choose<Scalar>(keys, views);
  } else if (a.function == Function::convolve) {
    convolve<Scalar>(views);
    c.query_rows += static_cast<double>(views[1].rows());
  } else if (a.function == Function::delta_rule || a.function == Function::state_space) {
    a.function == Function::delta_rule ? delta_rule<Scalar>(a, views) : state_space<Scalar>(a, views);
    c.query_rows += a.heads * static_cast<double>(views.back().rows());
    c.kv_elements += static_cast<double>(views[views.size() - 2].size());
  } else if (a.function == Function::gated_norm) {
    gated_norm<Scalar>(a, views);
  } else if (a.function == Function::gated_squares) {
    gated_squares<Scalar>(views);
  } else if (a.function == Function::norm_by_squares) {
    norm_by_squares<Scalar>(a, views);
  } else {
    c.multiply_adds += simple_function<Scalar>(a, views);
  }
}

template <class Scalar>
void Executor<Scalar>::compute(OpIndex op, int rank, const RunOptions& options) {
  const OpFlow& part = flow_of(flow_, op);
  for (std::uint32_t i = 0; i < part.actions; ++i) {
    const Action& a = flow_.actions[part.first_action + i];
    if (a.rank < 0 || a.rank >= ranks_) fail(op, a.rank, "no such rank");
    if (rank < 0 || a.rank == rank) act(op, a, options);
  }
}

template <class Scalar>
void Executor<Scalar>::communicate(OpIndex op) {
  const OpFlow& part = flow_of(flow_, op);
  const auto moves = std::span(flow_.moves).subspan(part.first_move, part.moves);
  std::vector<Matrix<Scalar>> messages;
  for (const Move& m : moves) {
    messages.push_back(view(op, m.from, m.source));
    if (m.from == m.to || messages.back().size() == 0) continue;
    Done& c = count(op, m.from);
    c.bytes += static_cast<double>(messages.back().size()) * flow_.slots[m.source.slot].element_bytes;
    ++c.messages;
  }
  for (std::size_t i = 0; i < moves.size(); ++i) {
    View<Scalar> target = view(op, moves[i].to, moves[i].target);
    if (target.rows() != messages[i].rows() || target.cols() != messages[i].cols())
      fail(op, moves[i].to, "a message does not have the shape of its target");
    if (moves[i].add) {
      target += messages[i];
    } else {
      target = messages[i];
    }
  }
}

template <class Scalar>
void Executor<Scalar>::run_block(const Block& block, const RunOptions& options) {
  std::vector<Node> nodes = nodes_of(schedule_, block, ranks_);
  std::mt19937_64 random(options.seed);
  std::vector<std::uint32_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].waits_for == 0) ready.push_back(static_cast<std::uint32_t>(i));
  }
  while (!ready.empty()) {
    check_cancelled();  // an op of the longest sequence takes milliseconds
    const std::size_t at = choose(schedule_, nodes, ready, options.order, random);
    const Node& node = nodes[ready[at]];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    const OpFlow& part = flow_of(flow_, node.op);
    if (part.moves > 0 && part.actions > 0) fail(node.op, std::max(node.rank, 0), "moves and computes");
    if (part.moves > 0) communicate(node.op);
    if (part.actions > 0) compute(node.op, node.rank, options);
    for (const std::uint32_t next : node.next) {
      if (--nodes[next].waits_for == 0) ready.push_back(next);
    }
  }
}

template <class Scalar>
RunResult<Scalar> Executor<Scalar>::run(const RunOptions& options) {
  allocate();
  for (const BlockIndex b : block_order(schedule_)) run_block(schedule_.blocks[b], options);
  RunResult<Scalar> result;
  for (const Binding& b : flow_.outputs) result.outputs.push_back({b, slot(b.slot, b.rank)});
  result.ranks = ranks_;
  result.counts = counts_;
  return result;
}

template Matrix<double> input_part(const Dataflow&, const Tensors<double>&, const Binding&);
template Matrix<float> input_part(const Dataflow&, const Tensors<float>&, const Binding&);
template class Executor<double>;
template class Executor<float>;

}  // namespace shardline
