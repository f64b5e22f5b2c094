#include "cuda_probe/execute/cpu/check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <type_traits>

#include "cuda_probe/execute/cpu/hazards.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kExact = 1e-9;

std::string at_op(const Schedule& s, OpIndex op, int rank) {
  return "op " + std::to_string(op) + " '" + s.ops[op].name + "', rank " + std::to_string(rank) + ": ";
}

std::string text(double x) {
  std::ostringstream out;
  out.precision(15);
  out << x;
  return out.str();
}

// ---- what was done against what is charged

/// Ratio of the bytes that leave a rank to those of its shape.
double share_leaving(const Op& op) {
  const double n = op.group.size;
  if (op.kind == OpKind::all_gather || op.kind == OpKind::all_reduce) return n - 1;
  return op.kind == OpKind::reduce_scatter ? (n - 1) / n : 1;
}

void compare(Check& check, const std::string& place, const char* what, double done, double charged) {
  if (std::abs(done - charged) <= kExact * std::max(std::abs(done), std::abs(charged))) return;
  check.faults.push_back(place + text(done) + " " + what + ", " + text(charged) + " charged");
}

/// Pairs and rows are charged for one head; heads may be split among actions.
struct AttendCharge {
  double heads = 1, elements = 1;  // per row of keys
  double pairs = 0, q_rows = 0, kv_rows = 0;
};
/// Keys that were chosen are read row by row, as often as queries have chosen them; on ranks that share a
/// cache where they happen to lie.
AttendCharge sparse_charge(const AttendSparseShape& a, const Done& done) {
  AttendCharge c;
  c.heads = static_cast<double>(a.q_heads);
  c.pairs = a.spread ? done.pairs / c.heads : static_cast<double>(a.pairs);
  // Of compressed attention once over the window, and once over rows.
  c.q_rows = static_cast<double>(a.q_rows) * (a.ratio > 1 ? 2 : 1);
  c.kv_rows = done.kv_elements;
  return c;
}
/// New tokens of each head (of a convolution, of the rank), and numbers of states that are written.
AttendCharge state_charge(OpKind kind, const RecurrentShape& s) {
  AttendCharge c;
  const bool state = kind == OpKind::recur;
  c.heads = state ? std::max(static_cast<double>(s.value_heads), 1.0) : 1;
  c.q_rows = static_cast<double>(s.rows);
  c.kv_rows = state ? static_cast<double>(s.states * s.requests * s.state()) : 0;
  return c;
}
AttendCharge attend_charge(const Op& op, const Done& done) {
  if (is_recurrent(op.kind)) return state_charge(op.kind, shape<RecurrentShape>(op));
  if (op.kind == OpKind::attend_sparse) return sparse_charge(shape<AttendSparseShape>(op), done);
  AttendCharge c;
  const auto of = [&](const auto& a) {
    if constexpr (requires { kv_elements(a); }) {
      c = {std::max(static_cast<double>(a.q_heads), 1.0), std::max(static_cast<double>(kv_elements(a)), 1.0),
           static_cast<double>(a.pairs), static_cast<double>(a.q_rows), static_cast<double>(a.kv_rows)};
    }
  };
  std::visit(of, op.shape);
  return c;
}

void compare_charges(Check& check, const Schedule& s, OpIndex index, int rank, const Done& done) {
  const Op op = s.op_of_class(index, s.class_of(rank));
  const std::string place = at_op(s, index, rank);
  const AttendCharge charge = attend_charge(op, done);
  compare(check, place, "pairs executed", done.pairs / charge.heads, charge.pairs);
  compare(check, place, "query rows executed", done.query_rows / charge.heads, charge.q_rows);
  compare(check, place, "kv rows read", done.kv_elements / charge.elements, charge.kv_rows);
  compare(check, place, "multiply-adds executed", done.multiply_adds,
          is_gemm(op.kind) || op.kind == OpKind::index_logits ? flops(op).value / 2 : 0);
  compare(check, place, "bytes sent", done.bytes, message_bytes(op).value * share_leaving(op));
}

void check_groups(Check& check, const Schedule& s) {
  const auto group_of = [](const Group& g, int rank) {
    return std::pair{rank / (g.size * g.stride), rank % g.stride};
  };
  for (OpIndex op = 0; op < s.ops.size() && op < s.flow->ops.size(); ++op) {
    const Group& g = s.ops[op].group;
    if (g.size < 2) continue;
    const OpFlow& part = s.flow->ops[op];
    for (std::uint32_t i = 0; i < part.moves; ++i) {
      const Move& m = s.flow->moves[part.first_move + i];
      if (group_of(g, m.from) == group_of(g, m.to)) continue;
      check.faults.push_back(at_op(s, op, m.from) + "a message to rank " + std::to_string(m.to) +
                             " leaves its group");
    }
  }
}

Done most(const RunResult<double>& run, OpIndex op) {
  Done most;
  for (int rank = 0; rank < run.ranks; ++rank) {
    const Done& c = run.count(op, rank);
    most.pairs = std::max(most.pairs, c.pairs);
    most.query_rows = std::max(most.query_rows, c.query_rows);
    most.kv_elements = std::max(most.kv_elements, c.kv_elements);
    most.multiply_adds = std::max(most.multiply_adds, c.multiply_adds);
    most.bytes = std::max(most.bytes, c.bytes);
  }
  return most;
}

/// Whether the flow says what an op does, on any rank.
bool described(const Schedule& s, OpIndex op) {
  return op < s.flow->ops.size() && s.flow->ops[op].actions + s.flow->ops[op].moves > 0;
}

/// Attention and the messages between its parts are described wherever they are charged. Other ops may be
/// timed only: those of layers around an attention that is checked alone.
bool must_be_described(const Schedule& s, OpIndex op) {
  const OpKind kind = s.ops[op].kind;
  const bool of_index = is_of_index(kind) && kind != OpKind::module_rest;
  if (is_recurrent(kind)) return true;
  if (!is_attention(kind) && !of_index && s.ops[op].part != Part::exchange) return false;
  for (int k = 0; k < s.classes; ++k) {
    const Op one = s.op_of_class(op, k);
    if (of_index || flops(one).value > 0 || message_bytes(one).value > 0) return true;
  }
  return false;
}

void check_charges(Check& check, const Schedule& s, const RunResult<double>& run, Charges rule) {
  std::vector<bool> runs(s.ops.size(), false);
  for (const BlockIndex b : block_order(s)) {
    for (OpIndex op = s.blocks[b].first; op < s.blocks[b].last; ++op) runs[op] = true;
  }
  for (OpIndex op = 0; op < s.ops.size(); ++op) {
    if (!runs[op]) continue;
    if (!described(s, op)) {
      if (must_be_described(s, op))
        check.faults.push_back(at_op(s, op, 0) + "is charged, but nothing says what it does");
      continue;
    }
    if (rule == Charges::fullest_rank) {
      compare_charges(check, s, op, 0, most(run, op));
      continue;
    }
    for (int rank = 0; rank < run.ranks; ++rank) compare_charges(check, s, op, rank, run.count(op, rank));
  }
  check_groups(check, s);
}

// ---- outputs against the reference

class Comparison {
 public:
  Comparison(const Schedule& s, std::span<const Problem> kinds, std::span<const Tensors<double>> want)
      : s_(s), kinds_(kinds), want_(want), covered_(kinds.size()) {}

  double error() const { return error_; }
  const std::string& worst() const { return worst_; }

  template <class Scalar>
  void add(const Output<Scalar>& output, std::vector<std::string>& faults) {
    const Binding& b = output.binding;
    const TokenView tokens = s_.flow->token_list(b.rows), columns = s_.flow->token_list(b.columns);
    const std::string place =
        "output '" + std::string(s_.flow->slots[b.slot].name) + "', rank " + std::to_string(b.rank);
    if (b.kind < 0 || static_cast<std::size_t>(b.kind) >= kinds_.size()) {
      faults.push_back(place + ": kind " + std::to_string(b.kind) + " of attention, of " +
                       std::to_string(kinds_.size()));
      return;
    }
    const auto kind = static_cast<std::size_t>(b.kind);
    const Matrix<double>& want = want_[kind][b.whole];
    if (output.values.rows() != rows(tokens) || output.values.cols() != rows(columns)) {
      faults.push_back(place + ": slot and binding differ in size");
      return;
    }
    if (want.size() == 0) {
      faults.push_back(place + ": the problem has no such output");
      return;
    }
    auto& covered = covered_[kind][static_cast<std::size_t>(b.whole)];
    if (covered.size() == 0) covered.setZero(want.rows(), want.cols());
    Eigen::Index row = 0;
    for (const Interval& i : tokens) {
      if (i.request == kPadding) {
        row += i.size();
        continue;
      }
      for (std::int64_t position = i.begin; position < i.end; position += i.stride, ++row) {
        const Eigen::Index token = row_of(kind, i.request, position);
        if (token < 0) {
          faults.push_back(place + ": no position " + std::to_string(position) + " in request " +
                           std::to_string(i.request));
          return;
        }
        Eigen::Index at = 0;
        for (const Interval& c : columns) {
          for (std::int64_t column = c.begin; column < c.end; column += c.stride, ++at) {
            if (column < 0 || column >= want.cols()) {
              faults.push_back(place + ": no column " + std::to_string(column));
              return;
            }
            covered(token, column) = 1;
            const double scale = want.row(token).cwiseAbs().maxCoeff();
            const double got = static_cast<double>(output.values(row, at));
            take(std::abs(got - want(token, column)) / scale, got, want(token, column),
                 place + ", request " + std::to_string(i.request) + ", position " + std::to_string(position) +
                     ", column " + std::to_string(column));
          }
        }
      }
    }
  }

  /// A fault for each whole matrix of which expected elements are missing.
  void coverage(std::vector<std::string>& faults) const {
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) coverage(kind, faults);
  }

 private:
  using Covered = std::array<Matrix<char>, static_cast<std::size_t>(Whole::count)>;

  std::string of_kind(std::size_t kind) const {
    return kinds_.size() > 1 ? " of kind " + std::to_string(kind) : "";
  }

  void coverage(std::size_t kind, std::vector<std::string>& faults) const {
    const Problem& p = kinds_[kind];
    Tokens expected = p.expected_queries;
    if (expected.empty()) {
      for (std::size_t r = 0; r < p.lengths.size(); ++r)
        expected.push_back({static_cast<std::int32_t>(r), 0, p.lengths[r]});
    }
    bool any = false;
    for (std::size_t whole = 0; whole < covered_[kind].size(); ++whole) {
      const Matrix<char>& covered = covered_[kind][whole];
      if (covered.size() == 0) continue;
      any = true;
      std::int64_t missing = 0;
      std::string first;
      for (Interval i : expected) {
        // Of a state only what the last token leaves, unless any of them may be the last that is accepted.
        if (whole == static_cast<std::size_t>(Whole::state) && !p.every_state)
          i.begin = std::max(i.begin, i.last());
        for (std::int64_t position = i.begin; position < i.end; position += i.stride) {
          const Eigen::Index token = row_of(kind, i.request, position);
          for (Eigen::Index column = 0; column < covered.cols(); ++column) {
            if (token >= 0 && covered(token, column) != 0) continue;
            if (missing++ == 0)
              first = "request " + std::to_string(i.request) + ", position " + std::to_string(position) +
                      ", column " + std::to_string(column);
          }
        }
      }
      if (missing > 0)
        faults.push_back(std::to_string(missing) + " output elements" + of_kind(kind) +
                         " that no rank gives, the first: " + first);
    }
    if (!any) faults.push_back("no output" + of_kind(kind) + " is bound");
  }

  Eigen::Index row_of(std::size_t kind, std::int32_t request, std::int64_t position) const {
    const auto r = static_cast<std::size_t>(request);
    const std::vector<std::int64_t>& lengths = kinds_[kind].lengths;
    if (request < 0 || r >= lengths.size() || position < 0 || position >= lengths[r]) return -1;
    return want_[kind].first_row[r] + position;
  }

  void take(double error, double got, double want, const std::string& place) {
    if (error <= error_) return;  // false for NaN
    error_ = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    worst_ = place + ": " + text(got) + ", should be " + text(want);
  }

  const Schedule& s_;
  std::span<const Problem> kinds_;
  std::span<const Tensors<double>> want_;
  std::vector<Covered> covered_;  // of each kind
  double error_ = 0;
  std::string worst_;
};

template <class Scalar>
bool same_bits(const Schedule& s, const RunResult<Scalar>& a, const RunResult<Scalar>& b) {
  for (std::size_t o = 0; o < a.outputs.size(); ++o) {
    const Matrix<Scalar>&x = a.outputs[o].values, &y = b.outputs[o].values;
    Eigen::Index row = 0;
    for (const Interval& i : s.flow->token_list(a.outputs[o].binding.rows)) {
      const Eigen::Index end = std::min(row + i.size(), x.rows());
      for (; row < end; ++row) {
        const std::size_t bytes = sizeof(Scalar) * static_cast<std::size_t>(x.cols());
        if (i.request != kPadding && std::memcmp(&x(row, 0), &y(row, 0), bytes) != 0) return false;
      }
    }
  }
  return true;
}

std::vector<RunOptions> all_orders(double scale) {
  std::vector<RunOptions> all;
  for (const Order o :
       {Order::by_index, Order::latest_ready_first, Order::communication_first, Order::compute_first})
    all.push_back({o, 1, scale});
  for (std::uint64_t seed = 1; seed <= 3; ++seed) all.push_back({Order::random, seed, scale});
  return all;
}

/// Runs in each order; the errors and faults of all of them. Returns the first run.
template <class Scalar>
RunResult<Scalar> run_all(const Schedule& s, std::span<const Problem> kinds,
                          std::span<const Tensors<double>> want, std::span<const RunOptions> orders,
                          Check& check, double& max_error) {
  std::vector<Tensors<Scalar>> inputs;
  for (const Tensors<double>& kind : want) inputs.push_back(kind.cast<Scalar>());
  Executor<Scalar> executor(s, inputs);
  RunResult<Scalar> first;
  double error = 0;
  for (const RunOptions& options : orders) {
    check_cancelled();
    RunResult<Scalar> run = executor.run(options);
    const std::size_t before = check.faults.size();
    Comparison comparison(s, kinds, want);
    for (const auto& output : run.outputs) comparison.add(output, check.faults);
    comparison.coverage(check.faults);
    if (comparison.error() >= error) {
      error = comparison.error();
      if (std::is_same_v<Scalar, double>) check.worst = comparison.worst();
    }
    // Faults of outputs are the same in every order.
    const bool stop = check.faults.size() > before;
    if (&options == orders.data()) {
      first = std::move(run);
    } else if (!same_bits(s, first, run)) {
      check.faults.push_back("results change with the order of ops: " +
                             std::string(to_string(options.order)));
    }
    if (stop) break;
  }
  max_error = error;
  return first;
}

}  // namespace

Check check(const Schedule& s, const Problem& p, const CheckOptions& options) {
  return check(s, std::span(&p, 1), options);
}

Check check(const Schedule& s, std::span<const Problem> kinds, const CheckOptions& options) {
  SL_CHECK(!kinds.empty(), "a schedule has a kind of attention");
  for (const Problem& p : kinds) SL_CHECK(p.scale == kinds.front().scale, "all kinds scale scores alike");
  Check check;
  try {
    std::vector<Tensors<double>> want;
    for (const Problem& p : kinds) {
      check_cancelled();
      want.push_back(reference(p));
    }
    const std::vector<RunOptions> orders = all_orders(kinds.front().scale);
    const RunResult<double> run = run_all<double>(s, kinds, want, orders, check, check.max_error_double);
    if (options.charges != Charges::none) check_charges(check, s, run, options.charges);
    for (const Done& c : run.counts) {
      check.counts.pairs += c.pairs;
      check.counts.query_rows += c.query_rows;
      check.counts.kv_elements += c.kv_elements;
      check.counts.multiply_adds += c.multiply_adds;
      check.counts.bytes += c.bytes;
      check.counts.messages += c.messages;
    }
    for (OpIndex op = 0; op < s.ops.size(); ++op) {
      if (!described(s, op)) ++check.timed_only;
    }
    if (options.hazards) {
      check_cancelled();
      for (const Hazard& h : hazards(s)) check.faults.push_back(to_string(s, h));
    }
    Check single;
    run_all<float>(s, kinds, want, std::span(orders).first(1), single, check.max_error_float);
  } catch (const ExecutionError& error) {
    check.faults.push_back(error.what());
  }
  return check;
}

}  // namespace shardline
