#include "cuda_probe/execute/cuda/compare.hpp"

#include <algorithm>
#include <cmath>

namespace shardline {

namespace {

class Roundings {
 public:
  explicit Roundings(const Schedule& s)
      : flow_(*s.flow), ranks_(ranks_of(s)), of_(flow_.slots.size() * static_cast<std::size_t>(ranks_)) {
    for (const BlockIndex b : block_order(s)) {
      for (OpIndex op = s.blocks[b].first; op < s.blocks[b].last && op < flow_.ops.size(); ++op) {
        const OpFlow& part = flow_.ops[op];
        for (std::uint32_t i = 0; i < part.actions; ++i) act(flow_.actions[part.first_action + i]);
        communicate(std::span(flow_.moves).subspan(part.first_move, part.moves));
      }
    }
  }
  const std::vector<int>& all() const { return of_; }

 private:
  int& at(SlotId slot, int rank) {
    return of_[static_cast<std::size_t>(slot) * static_cast<std::size_t>(ranks_) +
               static_cast<std::size_t>(rank)];
  }
  void raise(SlotId slot, int rank, int to) { at(slot, rank) = std::max(at(slot, rank), to); }

  void act(const Action& a) {
    const auto r = flow_.regions_of(a);
    const auto of = [&](std::size_t region) { return at(r[region].slot, a.rank); };
    switch (a.function) {
      case Function::attend:
        return raise(r[2].slot, a.rank, of(0) + of(1) + 2);
      case Function::merge: {
        int most = 0;
        for (std::size_t i = 0; i + 2 < r.size(); i += 2) most = std::max(most, of(i));
        return raise(r[r.size() - 2].slot, a.rank, most + 1);
      }
      case Function::gemm:
      case Function::gemm_per_head:
      case Function::expand:
        return raise(r[2].slot, a.rank, of(0) + of(1) + 1);
      case Function::add:
        return raise(r[2].slot, a.rank, std::max(of(0), of(1)) + 1);
      case Function::swiglu:
        return raise(r[1].slot, a.rank, 2 * of(0) + 1);
      case Function::rms_norm:
      case Function::silu:
        return raise(r[1].slot, a.rank, of(0) + 1);
      case Function::compress:
        return raise(r[2].slot, a.rank, of(1));
      case Function::index_scores:
      case Function::block_scores:
      case Function::choose:
      case Function::choose_among:
      case Function::make_rows:
      case Function::convolve:
      case Function::delta_rule:
      case Function::state_space:
      case Function::gated_norm:
      case Function::gated_squares:
      case Function::norm_by_squares:
        return;  // no device runs these: kernel_limits.cpp
    }
  }

  void communicate(std::span<const Move> moves) {
    const std::vector<int> before = of_;
    for (const Move& m : moves) {
      const int source = before[static_cast<std::size_t>(m.source.slot) * static_cast<std::size_t>(ranks_) +
                                static_cast<std::size_t>(m.from)];
      raise(m.target.slot, m.to, source);
    }
    for (const Move& m : moves) {
      if (m.add) ++at(m.target.slot, m.to);
    }
  }

  const Dataflow& flow_;
  int ranks_;
  std::vector<int> of_;
};

}  // namespace

std::vector<int> roundings(const Schedule& s) { return Roundings(s).all(); }

double allowed_error(int roundings, double elements) {
  const double independent = std::sqrt(roundings / 3.0) * std::sqrt(2 * std::log(std::max(elements, 2.0)));
  return kBf16Unit * std::min<double>(roundings, independent);
}

double DeviceCheck::error() const {
  double most = 0;
  for (const OutputCheck& o : outputs) most = std::max(most, o.error);
  return most;
}

double DeviceCheck::share_of_allowed() const {
  double most = 0;
  for (const OutputCheck& o : outputs) {
    if (o.error > 0) most = std::max(most, o.error / o.allowed);
  }
  return most;
}

bool DeviceCheck::passed() const {
  return faults.empty() && !outputs.empty() &&
         std::all_of(outputs.begin(), outputs.end(), [](const auto& o) { return o.error <= o.allowed; });
}

DeviceCheck compare(const Schedule& s, const DeviceResult& got, const RunResult<float>& want) {
  DeviceCheck check;
  const std::vector<int> counts = roundings(s);
  if (got.outputs.size() != want.outputs.size()) {
    check.faults.push_back("unequal numbers of outputs");
    return check;
  }
  for (std::size_t o = 0; o < got.outputs.size(); ++o) {
    const Matrix<float>&have = got.outputs[o].values, &right = want.outputs[o].values;
    if (have.size() == 0) continue;
    OutputCheck& out = check.outputs.emplace_back();
    out.binding = got.outputs[o].binding;
    const std::string place = "output '" + std::string(s.flow->slots[out.binding.slot].name) + "', rank " +
                              std::to_string(out.binding.rank);
    const auto slot = static_cast<std::size_t>(out.binding.slot) * static_cast<std::size_t>(got.ranks);
    out.allowed = allowed_error(counts[slot + static_cast<std::size_t>(out.binding.rank)],
                                static_cast<double>(have.size()));
    if (have.rows() != right.rows() || have.cols() != right.cols()) {
      check.faults.push_back(place + ": unequal sizes");
      continue;
    }
    Eigen::Index row = 0;
    for (const Interval& i : s.flow->token_list(out.binding.rows)) {
      for (const Eigen::Index end = row + i.size(); row < end; ++row) {
        if (i.request == kPadding) continue;
        const float scale = right.row(row).cwiseAbs().maxCoeff();
        for (Eigen::Index column = 0; column < have.cols(); ++column) {
          const float x = have(row, column), y = right(row, column);
          const auto where = [&] {
            return place + ", row " + std::to_string(row) + ", column " + std::to_string(column) + ": " +
                   std::to_string(x) + ", should be " + std::to_string(y);
          };
          if (!std::isfinite(x)) {
            check.faults.push_back(where());
            column = have.cols();  // one fault a row
            continue;
          }
          const double error = scale > 0 ? static_cast<double>(std::abs(x - y) / scale) : std::abs(x) > 0;
          if (error <= out.error) continue;
          out.error = error;
          out.worst = where();
        }
      }
    }
  }
  return check;
}

}  // namespace shardline
