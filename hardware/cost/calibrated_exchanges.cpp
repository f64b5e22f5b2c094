// Collectives, dispatch and combine by fitted forms. hardware/README.md [H55].
#include <algorithm>
#include <cmath>

#include "hardware/cost/calibrated_cost.hpp"

namespace shardline {

namespace {

constexpr double kShortestMessage = 256;  // bytes: shorter ones were not measured and cost as much
constexpr std::size_t kGpusAxis = 3;      // of dispatch and combine
constexpr Count kOneSidedTopk = 8;        // experts per token that TensorRT-LLM's one-sided kernels know

}  // namespace

std::optional<FittedPrice> CalibratedCost::collective(const PricedOp& op, const GroupFabric& group) {
  const ExchangeShape& sent = shape<ExchangeShape>(op);
  const double n = group.size, bytes = sent.bytes.value;
  std::optional<FittedPrice> best;
  const auto consider = [&](Use& u, std::span<const double> x, Basis at_best = Basis::measured) {
    if (!u) return;
    FittedPrice p = of(u, x);
    p.basis = worse(p.basis, at_best);
    p.distance.indirect = at_best > Basis::measured;
    if (better(p, best)) best = p;
  };
  // The engine's kernels of dispatch and combine, where every row goes to, or comes from, every rank.
  const auto engine = [&](double row_bytes, bool combine) {
    if (op.drive != Drive::graph || sent.carrier != Carrier::engine) return;
    const double rows = std::max(1.0, sent.rows);
    const double width = std::max(row_bytes / rows, kShortestMessage) / 2;
    for (Exchange& e : exchanges_) {
      if (e.dispatched != Dtype::bf16 || !e.prepare) continue;
      const double x[] = {n, 1, rows, width, n, n, e.sms};
      consider(combine ? e.combine : e.dispatch, std::span(x), Basis::fitted);
    }
  };
  const auto message = [&](double size) { return std::array{n, std::max(size, kShortestMessage)}; };
  switch (op.kind) {
    case OpKind::all_reduce:
      consider(engine_all_reduce_, message(bytes));
      consider(all_reduce_, message(bytes));
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
  const double size = std::log2(group.size);
  std::optional<FittedPrice> best, both;
  std::optional<Basis> tensorrt_llm;  // of its first implementation
  double far = 0;                     // of `best`: doublings of GPUs beyond its measured groups
  for (Exchange& e : exchanges_) {
    // An implementation inside a domain has no way out of it.
    if (e.dispatched != kernel_type(s.dispatched) || (nodes > 1 && e.dispatch.context.network <= 0)) continue;
    if (!e.wanted || (e.implementation.ends_with("one_sided") && s.topk > kOneSidedTopk)) continue;
    std::array<double, 7> own{};
    std::copy(std::begin(x), std::end(x), own.begin());
    own[6] = e.sms;
    FittedPrice there = of(e.dispatch, own);
    if (e.prepare) {
      const FittedPrice prepared = of(e.prepare, own);
      there.time += prepared.time;
      there.basis = worse(there.basis, prepared.basis);
    }
    const FittedPrice back = of(e.combine, own);
    const FittedPrice one = op.kind == OpKind::combine ? back : there;
    // Both directions are of one implementation.
    const FittedPrice judged{there.time + back.time, worse(there.basis, back.basis), nullptr, {}};
    // It takes the first that can be had, not the fastest.
    if (e.implementation.starts_with("trtllm") && pricing_ == Pricing::exact) {
      if (tensorrt_llm && judged.basis >= *tensorrt_llm) continue;
      if (!e.dispatch.altered) tensorrt_llm = judged.basis;
    }
    const double beyond = std::max(0.0, size - e.dispatch.fit->range_high[kGpusAxis]);
    const bool nearer = both && judged.basis == both->basis && beyond < far;
    const bool farther = both && judged.basis == both->basis && beyond > far;
    if (pricing_ == Pricing::floor ? !better(one, best) : farther || !(nearer || better(judged, both)))
      continue;
    both = judged;
    far = beyond;
    best = one;
  }
  // Even routing was measured: that of other tokens is what the parameters say, not a measurement.
  if (best && s.uneven) {
    best->basis = worse(best->basis, Basis::fitted);
    best->distance.indirect = true;
  }
  return best;
}

}  // namespace shardline
