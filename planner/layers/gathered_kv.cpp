// All-gathers of a context-parallel prefill: keys and values of all tokens on every rank, cached ones sent
// like new ones or kept by all, then attention with a rank's own queries. planner/README.md [C8], [C26].
#include "models/model/cache.hpp"
#include "planner/layers/context_step.hpp"

namespace shardline {

double ContextStep::kv_bytes() const {
  if (keeps_whole_caches(c, p)) return act_bytes();  // sent as projected, and made smaller in the cache
  if (!a.sparse() || !has_latents(a)) return bytes_per_element(c.precision.kv);
  return row_bytes(a, c.precision.kv) / heads.held_width();
}

OpIndex ContextStep::gather(const char* name, double row_bytes) {
  const Runtime& host = c.system.runtime;
  if (host.host_layer > Seconds(0) && host.host_gather > Seconds(0)) {
    const OpIndex own = b.previous();
    const OpIndex ready[2] = {own, b.launch("launch gather", host.host_gather / host.host_layer * p.cp)};
    b.after(ready);
  }
  return b.exchange(name, Part::exchange, OpKind::all_gather, {p.cp, p.tpa},
                    Bytes(static_cast<double>(layout.key_message) * row_bytes));
}

SlotId ContextStep::kept_rows(const char* name, Whole of, double columns, double bytes,
                              const std::function<TokensId(int)>& columns_of) {
  if (layout.kept.empty()) return 0;
  const SlotId slot = message(name, shardline::rows(layout.kept), columns, bytes);
  for (int k = 0; flow() && k < p.cp; ++k) {
    for (int t = 0; t < p.tpa; ++t)
      flow()->inputs.push_back({slot, rank(k, t), of, flow()->tokens(layout.kept), columns_of(t), kind()});
  }
  return slot;
}

void ContextStep::attend_gathered() {
  const double width = heads.held_width();
  const long long row_count = layout.key_message, sent = row_count * p.cp;
  const long long kept = shardline::rows(layout.kept), all_rows = sent + kept;
  const SlotId all = message("all KV", all_rows, width, kv_bytes());
  const SlotId room =
      heads.latent > 0 ? message("all KV, expanded", all_rows, heads.kv_width(), kv_bytes()) : SlotId(0);
  const SlotId before =
      kept_rows("KV before", held_matrix(), width, kv_bytes(), [&](int t) { return held_columns(t); });
  const OpIndex op = gather("gather KV", width * kv_bytes());
  for (int k = 0; flow() && k < p.cp; ++k) {
    for (int to = 0; to < p.cp; ++to) {
      Region target = whole(all, row_count, width);
      target.row = k * row_count;
      for (int t = 0; t < p.tpa; ++t)
        flow()->move(op, {rank(k, t), rank(to, t), whole(held, row_count, width), target});
    }
    for (int t = 0; kept > 0 && t < p.tpa; ++t)
      flow()->move(
          op, {rank(k, t), rank(k, t), whole(before, kept, width), {all, sent, kept, 0, count_of(width)}});
  }
  if (c.kernels.attention == AttentionKernel::eager) {
    const double n = static_cast<double>(all_rows);
    b.elementwise("concatenate KV", Part::exchange, OpKind::elementwise,
                  {all_rows, count_of(width), Bytes(2 * n * width * kv_bytes())});
  } else if (keeps_whole_caches(c, p)) {
    keep_gathered_rows("order and append KV", count_of(width), bytes_per_element(c.precision.kv));
  }
  Tokens gathered;
  for (int k = 0; k < p.cp; ++k) gathered.insert(gathered.end(), keys(k).begin(), keys(k).end());
  gathered.insert(gathered.end(), layout.kept.begin(), layout.kept.end());
  const auto all_keys = [&](int) -> const Tokens& { return gathered; };
  const SlotId read = expand(all, room, all_keys);
  attend_lists(
      "attend", [&](int k) -> const Tokens& { return queries(k); }, all_keys, heads,
      [&](int k) {
        return std::vector<Region>{all_queries(q, k, heads.q * heads.qk),
                                   whole(read, all_rows, heads.kv_width()),
                                   all_queries(out, k, heads.q * heads.v), all_queries(out_lse, k, heads.q)};
      });
  if (heads.cache == CacheRows::latent) value_up();
  const OpIndex computed = b.previous();
  end_iteration({&computed, 1});
}

// Padding is dropped, rows are put into the order of their positions, each by a copy, and those of all ranks
// are written into the cache (SGLang 0.5.14, layers/utils/cp_utils.py: two torch.cat and set_kv_buffer).
void ContextStep::keep_gathered_rows(const char* name, Count columns, double kept_bytes) {
  Count fresh = 0;
  for (int k = 0; k < p.cp; ++k) fresh += rows(k);
  const double number = 5 * act_bytes() + kept_bytes;
  b.elementwise(name, Part::exchange, OpKind::elementwise,
                {fresh, columns, Bytes(static_cast<double>(fresh * columns) * number)});
}

}  // namespace shardline
