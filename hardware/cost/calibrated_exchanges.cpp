// Collectives, dispatch and combine by fitted forms. hardware/README.md [H55].
#include <algorithm>
#include <cmath>

#include "hardware/cost/calibrated_cost.hpp"

namespace shardline {

namespace {

constexpr Count kOneSidedTopk = 8;        // experts per token that TensorRT-LLM's one-sided kernels know
constexpr double kShortestMessage = 256;  // bytes: shorter ones were not measured and cost as much

}  // namespace

std::optional<FittedPrice> CalibratedCost::collective(const PricedOp& op, const GroupFabric& group) {
  const ExchangeShape& sent = shape<ExchangeShape>(op);
  const double n = group.size, bytes = sent.bytes.value;
  std::optional<FittedPrice> best;
  const auto consider = [&](Use& u, std::span<const double> x, Basis at_best = Basis::measured) {
    if (!u) return;
    FittedPrice p = of(u, x);
    p.basis = worse(p.basis, at_best);
    p.distance.indirect = p.distance.indirect || at_best > Basis::measured;
    if (better(p, best)) best = p;
  };
  // The engine's kernels of dispatch and combine, where every row goes to, or comes from, every rank.
  const auto engine = [&](double row_bytes, bool combine) {
    if (op.drive != Drive::graph || sent.carrier != Carrier::engine) return;
    const double rows = std::max(1.0, sent.rows);
    const double width = std::max(row_bytes / rows, kShortestMessage) / 2;
    for (Exchange& e : exchanges_[at(Dtype::bf16)]) {
      if (!e.prepare) continue;
      const double x[] = {n, 1, rows, width, n, n, e.sms};
      consider(combine ? e.combine : e.dispatch, std::span(x), Basis::fitted);
    }
  };
  const auto message = [&](double size) { return std::array{n, std::max(size, kShortestMessage)}; };
  switch (op.kind) {
    case OpKind::all_reduce:
      for (Use& u : engine_all_reduce_) {
        if (best && pricing_ == Pricing::exact) break;
        const bool last = &u == &engine_all_reduce_.back();
        if (pricing_ == Pricing::floor || last ||
            u.sizes.hold({bytes, group.size, 1, system_->fabric.gpus_per_node}))
          consider(u, message(bytes));
      }
      break;
    case OpKind::all_gather:
      consider(all_gather_, message(bytes * n));
      engine(bytes, false);
      break;
    case OpKind::reduce_scatter:
      consider(reduce_scatter_, message(bytes));
      engine(bytes / n, true);
      break;
    case OpKind::all_to_all:
      consider(all_to_all_, message(bytes * n / (n - 1)));
      engine(bytes / (n - 1), false);
      break;
    case OpKind::send_recv:
      if (send_recv_) {
        consider(send_recv_, message(bytes));
      } else if (all_to_all_) {
        // Two ranks that exchange halves send each other one message.
        best = of(all_to_all_, std::array{2.0, std::max(2 * bytes, kShortestMessage)});
        best->basis = worse(best->basis, Basis::fitted);
        best->distance.indirect = true;
      }
      break;
    default:
      break;
  }
  return best;
}

std::optional<FittedPrice> CalibratedCost::exchange(const PricedOp& op, const GroupFabric& group) {
  const RoutedShape& s = shape<RoutedShape>(op);
  const double members = group.whole.one_node ? group.size : group.whole.members_per_node;
  const double nodes = group.whole.one_node ? 1 : std::max(1.0, group.size / std::max(1.0, members));
  const double x[] = {double(group.size), nodes, std::max(1.0, s.rows), double(s.width), double(s.topk),
                      double(s.experts),  0};
  const double tokens = x[2];
  std::vector<Exchange>& all = (nodes > 1 ? across_ : exchanges_)[at(kernel_type(s.dispatched))];
  std::optional<FittedPrice> best;
  for (Exchange& e : all) {
    const bool last = &e == &all.back();
    const bool can = e.sizes.hold({.size = tokens, .group = group.size, .prompts = s.prompts}) &&
                     !(e.one_sided && s.topk > kOneSidedTopk);
    if (pricing_ == Pricing::exact && !last && !can) continue;
    std::array<double, 7> own{};
    std::copy(std::begin(x), std::end(x), own.begin());
    own[6] = e.sms;
    FittedPrice one = of(op.kind == OpKind::combine ? e.combine : e.dispatch, own);
    if (op.kind != OpKind::combine && e.prepare) {
      const FittedPrice prepared = of(e.prepare, own);
      one.time += prepared.time;
      one.basis = worse(one.basis, prepared.basis);
    }
    if (pricing_ == Pricing::exact) {
      best = one;
      break;
    }
    if (better(one, best)) best = one;
  }
  // Even routing was measured: that of other tokens is what the parameters say, not a measurement.
  if (best && s.uneven) {
    best->basis = worse(best->basis, Basis::fitted);
    best->distance.indirect = true;
  }
  return best;
}

}  // namespace shardline
