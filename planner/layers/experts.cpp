// The products of routed and shared experts, and what brings tokens to them and back.
#include <cmath>
#include <numeric>

#include "planner/engines/profile.hpp"
#include "planner/layers/layer.hpp"

namespace shardline {

namespace {

class Experts {
 public:
  Experts(ScheduleBuilder& b, const Case& c, const FeedForward& f, const Plan& p, const RowOps& ops)
      : b_(b),
        c_(c),
        f_(f),
        p_(p),
        ops_(ops),
        routing_(*c.routing[static_cast<std::size_t>(&f - c.model.ffns.data())]),
        type_(c.precision.of(Module::experts)),
        h_(c.model.hidden),
        width_(expert_width(c.model, f)),
        up_(up_projections(c.model)),
        inner_(rank_share(f.inner, p.tpf)),
        act_(activation_size(c)),
        travels_(p.dp > 1 || spreads_experts(p)),
        gathers_(p[kExpertTokens] == ExpertTokens::gather),
        alike_(p.dp > 1 ? p.group() : p.tpa) {
    const auto rows = ops.rows();
    if (spreads_experts(p)) all_ = std::accumulate(rows.begin(), rows.end(), Count{0});
    if (rows.size() == 1) pairs_of_first_ = routing_.pairs(p.ep, routed(rows.front()));
  }

  void run() {
    const Passes& passes = c_.system.runtime.passes;
    const double row = static_cast<double>(width_) * act_;
    beside("router", Module::router, h_, f_.experts);
    ops_.elementwise("top-k", Part::ffn, f_.experts, f_.experts * act_, Within::experts);
    if (f_.latent > 0) of_latents("latent down", h_, width_);
    of_pairs("permute", width_, 2 * row);
    if (gathers_)
      gather();
    else if (travels_)
      send("dispatch", OpKind::dispatch, c_.precision.dispatch);
    // Shared experts of the same types run as further groups of the same grouped GEMM: no launch of their
    // own.
    const Count shared = rank_share(f_.shared_width(), shared_expert_ranks(c_, p_));
    const ModuleType shared_type = c_.precision.of(Module::shared_experts);
    const bool grouped_too = shared_type.weights == type_.weights && shared_type.math == type_.math;
    const double launches = has_prompts(c_) || !grouped_too ? 1 : 0;
    grouped("experts up", width_, up_ * inner_);
    if (shared > 0) beside("shared experts up", Module::shared_experts, h_, up_ * shared, launches);
    of_pairs("expert activation", inner_, static_cast<double>((up_ + 1) * inner_) * act_ * passes.activation);
    grouped("experts down", inner_, width_);
    if (shared > 0) beside("shared experts down", Module::shared_experts, shared, h_, launches);
    if (f_.shared_gate) gate_shared();
    of_pairs("unpermute", width_, 2 * row);
    join();
  }

 private:
  // Tokens whose experts are on a rank that has `rows` itself: those of all ranks that share the experts.
  Count routed(Count rows) const { return all_ > 0 ? all_ : rows_of_groups(c_, p_, rows); }
  double pairs(Count rows) const {
    return ops_.rows().size() == 1 ? pairs_of_first_ : routing_.pairs(p_.ep, routed(rows));
  }
  // A rank's part of tokens: ranks that have the same ones divide them.
  double part(Count rows) const { return static_cast<double>(rows) / alike_; }
  // Tokens that the rank with most of them sends, for which all others wait.
  double sent(Count rows) const { return part(c_.groups ? c_.groups->most : rows); }

  // Whether ranks that have the same tokens take a part of them each to the experts.
  bool divides() const { return travels_ && !(gathers_ && sums()); }

  // A product of the tokens that stand beside the routed experts (TokenExchange::Beside). vLLM divides a
  // group's tokens among its TP ranks before the router (sequence_parallel_chunk in models/deepseek_v2.py,
  // DeepseekV2MoE.forward, where ParallelConfig.use_sequence_parallel_moe of config/parallel.py holds);
  // SGLang gathers tokens before the router (layers/communicator.py; models/deepseek_v2.py, DeepseekV2MoE:
  // shared experts have tp_size 1 behind DeepEP alone).
  void beside(const char* name, Module of, Count k, Count n, double launches = 1) {
    const TokenExchange::Beside which = beside_experts(c_, p_);
    const ModuleType t = c_.precision.of(of);
    ops_.each(
        [&](Count rows) {
          const Count seen = which == TokenExchange::Beside::all    ? routed(rows)
                             : which == TokenExchange::Beside::part ? rank_share(rows, alike_)
                                                                    : rows;
          return GemmShape{seen, k, n};
        },
        [&](const GemmShape& s) { return b_.gemm(name, Part::ffn, t.weights, t.math, s, launches); });
  }

  // Projections of a rank's own tokens to the channels that routed experts work on, and back. Each rank has
  // the whole matrices (vllm-project/vllm 00b08dc44519, model_executor/models/nemotron_h.py:
  // fc1_latent_proj and fc2_latent_proj are ReplicatedLinear). Their type is that of the shared experts,
  // whose tokens they see; no precision has a class of their own.
  void of_latents(const char* name, Count k, Count n) {
    const ModuleType t = c_.precision.of(f_.shared_experts > 0 ? Module::shared_experts : Module::experts);
    ops_.each(
        [&](Count rows) {
          return GemmShape{divides() ? rank_share(rows, alike_) : rows, k, n};
        },
        [&](const GemmShape& s) { return b_.gemm(name, Part::ffn, t.weights, t.math, s); });
  }

  void widen() {
    if (f_.latent == 0) return;
    if (f_.latent_norm)
      ops_.elementwise("latent norm", Part::ffn, width_, 2 * static_cast<double>(width_) * act_);
    of_latents("latent up", width_, h_);
  }

  // sigmoid(x w) times the outputs of the shared experts, w a vector (transformers
  // models/qwen2_moe/modeling_qwen2_moe.py, shared_expert_gate). Named as the shared experts, by which halves
  // of a batch know what waits for no message (two_batches.cpp).
  void gate_shared() {
    beside("shared experts gate", Module::router, h_, 1);
    ops_.elementwise("shared experts gated", Part::ffn, h_, 2 * static_cast<double>(h_) * act_);
  }

  // Tokens per rank times expert groups that a token visits; a rank's own group counts as sent, at most 1/EP
  // too much. What the busiest group receives lasts longer than what a rank sends: a step waits for the
  // longer.
  void send(const char* name, OpKind kind, Dtype type) {
    const double element =
        kind == OpKind::dispatch ? bytes_per_dispatched_element(type) : bytes_per_element(type);
    ops_.each(
        [&](Count rows) {
          const Count all = routed(rows);
          RoutedShape s;
          s.bytes = Bytes(sent(rows) * routing_.imbalance(p_.ep, all) * static_cast<double>(width_) *
                          routing_.groups_hit(p_.ep) * element);
          s.rows = sent(rows) * routing_.as_even(p_.ep, all);
          s.width = width_;
          s.topk = f_.experts_per_token;
          s.experts = f_.experts;
          s.dispatched = c_.precision.dispatch;
          s.uneven = routing_.uneven(p_.ep, all);
          s.prompts = has_prompts(c_);
          return s;
        },
        [&](const RoutedShape& s) {
          return b_.route(name, kind, {p_.ranks_per_stage(), 1}, s, type);
        });
  }

  // Groups have different numbers of prompt tokens: an engine that sums adds rows that are zero elsewhere.
  bool sums() const { return has_prompts(c_) && c_.engine && c_.engine->tokens_to_experts.sums_prompts; }

  // All tokens of the stage to each of its ranks.
  void gather() {
    const bool quantized = !sums() && (!c_.engine || c_.engine->tokens_to_experts.as_dispatched);
    const Dtype type = quantized ? c_.precision.dispatch : c_.precision.activations;
    const double element = quantized ? bytes_per_dispatched_element(type) : act_;
    const OpKind kind = sums() ? OpKind::all_reduce : OpKind::all_gather;
    between("gather tokens", kind, type, [&](Count rows) {
      // Unequal shares take as long as equal ones of as many tokens.
      const double share = all_ > 0 ? part(rows) : static_cast<double>(routed(rows)) / p_.dp / alike_;
      const double tokens = sums() ? static_cast<double>(routed(rows)) : share;
      return ExchangeShape{Bytes(tokens * static_cast<double>(width_) * element)};
    });
  }

  // What all ranks add to all tokens, to those who have them.
  void sum() {
    const OpKind kind = sums() ? OpKind::all_reduce : OpKind::reduce_scatter;
    between("sum outputs", kind, c_.precision.activations, [&](Count rows) {
      return ExchangeShape{Bytes(static_cast<double>(routed(rows) * width_) * act_)};
    });
  }

  template <class ShapeOfRows>
  void between(const char* name, OpKind kind, Dtype type, ShapeOfRows shape) {
    ops_.each(shape, [&](const ExchangeShape& s) {
      return b_.exchange(name, Part::ffn_sum, kind, {p_.ranks_per_stage(), 1}, s, type);
    });
  }

  void join() {
    // Partial sums become hidden states before they are added up: a projection is linear.
    if (!travels_) {
      widen();
      return ops_.all_reduce("ffn all-reduce", Part::ffn_sum, p_.ep * p_.tpf);
    }
    if (gathers_)
      sum();
    else
      send("combine", OpKind::combine, c_.precision.activations);
    widen();
    if (!divides()) return;  // each rank has all outputs
    // Short messages of a decode step go by an engine's own kernels too.
    const Carrier carrier = has_prompts(c_) ? Carrier::library : Carrier::engine;
    ops_.exchange("gather group", Part::ffn_sum, OpKind::all_gather, {alike_, 1}, [&](Count rows) {
      return ExchangeShape{ops_.activations(part(rows)), carrier,
                           carrier == Carrier::engine ? part(rows) : 0};
    });
  }

  // A kernel over all pairs, which experts' kernels may hold.
  void of_pairs(const char* name, Count width, double bytes_per_pair) {
    ops_.each(
        [&](Count rows) {
          const double n = pairs(rows);
          return ElementwiseShape{std::llround(n), width, ops_.traffic(n * bytes_per_pair)};
        },
        [&](const ElementwiseShape& s) {
          return b_.elementwise(name, Part::ffn, OpKind::elementwise, s, 1, Within::experts);
        });
  }

  void grouped(const char* name, Count k, Count n) {
    ops_.each(
        [&](Count rows) {
          GroupedGemmShape s;
          s.pairs = pairs(rows);
          s.active = routing_.distinct_experts(p_.ep, routed(rows));
          s.held = rank_share(f_.experts, p_.ep);
          s.ranks = p_.ep;
          s.tokens = routed(rows);
          // Of dispatched tokens a rank has those that some expert of its own gets, with all their pairs.
          s.dispatched = travels_ && !gathers_;
          s.prompts = has_prompts(c_);
          const double here =
              s.dispatched ? std::min(s.pairs, static_cast<double>(s.tokens)) : static_cast<double>(s.tokens);
          s.passed = here * f_.experts_per_token;
          s.hidden = width_;
          s.inner = inner_;
          s.gated = c_.model.ffn_kind == FfnKind::gated;
          s.k = k;
          s.n = n;
          return s;
        },
        [&](const GroupedGemmShape& s) { return b_.gemm(name, Part::ffn, type_.weights, type_.math, s); });
  }

  ScheduleBuilder& b_;
  const Case& c_;
  const FeedForward& f_;
  const Plan& p_;
  const RowOps& ops_;
  const ExpertRouting& routing_;
  const ModuleType type_;
  const Count h_, width_, up_, inner_;
  const double act_;
  const bool travels_;  // tokens go to the ranks of their experts
  const bool gathers_;  // or to all ranks
  const int alike_;     // ranks that have the same tokens
  Count all_ = 0;       // tokens of all classes of ranks, where they share the experts
  double pairs_of_first_ = 0;
};

}  // namespace

void add_experts(ScheduleBuilder& b, const Case& c, const FeedForward& f, const Plan& p, const RowOps& ops) {
  Experts(b, c, f, p, ops).run();
}

}  // namespace shardline
