// MLA in a ContextStep: latents become keys and values, or averaged latents become values. planner/README.md
// [C18].
#include <array>

#include "planner/layers/cache_attention.hpp"
#include "planner/layers/context_step.hpp"

namespace shardline {

namespace {

// Rows that follow one another without padding, as regions of whole rows.
template <class F>
void for_each_run(TokenView list, F f) {
  std::int64_t row = 0, first = 0;
  for (const Interval& i : list) {
    if (i.request == kPadding) {
      if (row > first) f(first, row - first);
      first = row + i.size();
    }
    row += i.size();
  }
  if (row > first) f(first, row - first);
}

}  // namespace

SlotId ContextStep::expand(SlotId from, SlotId to, const std::function<const Tokens&(int)>& list) {
  if (heads.latent == 0) return from;
  const double width = static_cast<double>(heads.q) * (a.nope_dim + a.v_dim);
  const OpIndex op = add_kv_up(b, c, a, 0, heads.q);
  vary([&](int k) { return Shape(GemmShape{real_rows(list(k)), a.kv_lora_rank, count_of(width)}); });
  if (!flow()) return to;
  Action action;
  action.function = Function::expand;
  action.heads = heads.q;
  action.qk_dim = heads.qk;
  action.v_dim = heads.v;
  const Region weight = whole(kv_up_, a.kv_lora_rank, width);
  for (int k = 0; k < p.cp; ++k) {
    for_each_run(list(k), [&](std::int64_t row, std::int64_t count) {
      Region latents = whole(from, count, heads.latent), keys = whole(to, count, heads.kv_width());
      latents.row = keys.row = row;
      for (int t = 0; t < lanes(); ++t) {
        action.rank = rank(k, t);
        flow()->act(op, action, std::array{latents, weight, keys});
      }
    });
  }
  return to;
}

void ContextStep::expand_own() {
  expand(held, kv, [&](int k) -> const Tokens& { return keys(k); });
}

void ContextStep::value_up() {
  // Of requests that decode rows are padded as those of the message were.
  const ModuleType type = c.precision.of(Module::attention);
  const OpIndex op = add_value_up(b, c, a, shardline::rows(queries(0)), heads.q);
  vary([&](int k) {
    return Shape(BatchedGemmShape{LatentProduct::expand_values, shardline::rows(queries(k)), a.kv_lora_rank,
                                  a.v_dim, heads.q, 1});
  });
  if (!flow()) return;
  Dataflow& f = *flow();
  const double columns = static_cast<double>(heads.q) * a.v_dim;
  const SlotId values = per_query("values", columns, act_bytes());
  const SlotId weight =
      message("W_UV", static_cast<long long>(heads.q) * heads.v, a.v_dim, bytes_per_element(type.weights));
  Action action;
  action.function = Function::gemm_per_head;
  action.heads = heads.q;
  for (int k = 0; k < p.cp; ++k) {
    const TokensId result_list = f.tokens(results(k));
    for (int t = 0; t < p.tpa; ++t) {
      const std::int64_t h = first_q(t);
      action.rank = rank(k, t);
      f.inputs.push_back({weight, action.rank, Whole::value_up_weight,
                          f.range(h * heads.v, (h + heads.q) * heads.v), f.range(0, a.v_dim), kind()});
      f.act(op, action,
            std::array{all_queries(out, k, heads.q * heads.v),
                       whole(weight, static_cast<long long>(heads.q) * heads.v, a.v_dim),
                       all_queries(values, k, columns)});
      f.outputs.push_back({values, action.rank, Whole::attention_output, result_list,
                           f.range(h * a.v_dim, (h + heads.q) * a.v_dim), kind()});
    }
  }
}

}  // namespace shardline
