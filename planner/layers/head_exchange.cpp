#include "planner/layers/head_exchange.hpp"

#include <algorithm>

#include "planner/layers/memory.hpp"

namespace shardline {

LocalHeads split_heads(const LocalHeads& h, int ranks) {
  LocalHeads own = h;
  own.q = h.q / ranks;
  own.kv = std::max(1, h.kv / ranks);
  own.latent = 0;  // keys and values travel expanded
  return own;
}

int first_split_kv(const LocalHeads& h, int ranks, int k) {
  return k % ranks * split_heads(h, ranks).q * h.kv / h.q;
}

HeadExchange::HeadExchange(ContextStep& step, int size)
    : inner(step, grouped_layout(step.layout, size), split_heads(step.heads, size), {step.p.cp / size, size}),
      step_(step),
      size_(size) {
  const LocalHeads& h = inner.heads;
  inner.q = inner.per_query("q of own heads", h.q * h.qk, inner.act_bytes());
  inner.kv = inner.held = inner.uneven(
      "kv of own heads", [&](int k) { return rows(inner.keys(k)); }, h.kv_width(), inner.kv_bytes());
  inner.out = inner.per_query("out of own heads", h.q * h.v, inner.act_bytes());
  inner.out_lse = inner.per_query("lse of own heads", h.q, 4);
}

std::vector<HeadExchange::GroupRows> HeadExchange::rows_in_group(int k) const {
  std::vector<GroupRows> list;
  for (const RequestRows& r : inner.request_rows(k)) list.push_back({r.query, r.key});
  for (int before = k - k % size_; before < k; ++before) {
    const std::vector<RequestRows> earlier = step_.request_rows(before);
    for (std::size_t r = 0; r < list.size(); ++r) {
      list[r].query += earlier[r].count;
      list[r].key += earlier[r].count;
    }
  }
  return list;
}

void HeadExchange::to_heads() {
  const double q_width = inner.heads.q * inner.heads.qk, kv_width = inner.heads.kv_width();
  const double row_bytes = q_width * inner.act_bytes() + kv_width * inner.kv_bytes();
  const OpIndex op =
      step_.b.exchange("tokens to heads", Part::exchange, OpKind::all_to_all, {size_, step_.p.tpa}, Bytes(0));
  step_.vary([&](int k) {
    return Shape(ExchangeShape{Bytes(static_cast<double>(step_.rows(k) * (size_ - 1)) * row_bytes)});
  });
  if (!step_.flow()) return;
  bind_cached(op);
  for (int k = 0; k < step_.p.cp; ++k) send(op, k);
}

void HeadExchange::bind_cached(OpIndex op) {
  Dataflow& f = *step_.flow();
  const double width = inner.heads.kv_width();
  const std::int64_t per_kv = inner.heads.qk + inner.heads.v;
  std::vector<Tokens> kept(static_cast<std::size_t>(step_.p.cp));
  bool any = false;
  for (int k = 0; k < step_.p.cp; ++k) {
    Tokens& list = kept[static_cast<std::size_t>(k)];
    for (int r = 0; r < inner.layout.requests; ++r) {
      const Tokens one = cached_tokens(inner.layout, k, r);
      list.insert(list.end(), one.begin(), one.end());
    }
    any = any || !list.empty();
  }
  if (!any) return;
  const SlotId slot = inner.uneven(
      "cached kv", [&](int k) { return rows(kept[static_cast<std::size_t>(k)]); }, width, inner.kv_bytes());
  for (int k = 0; k < step_.p.cp; ++k) {
    const TokensId list = f.tokens(kept[static_cast<std::size_t>(k)]);
    const std::vector<RequestRows> at = inner.request_rows(k);
    for (int t = 0; t < step_.p.tpa; ++t) {
      const std::int64_t g = step_.first_kv(t) + first_kv(k);
      f.inputs.push_back({slot, step_.rank(k, t), Whole::kv, list,
                          f.range(g * per_kv, (g + inner.heads.kv) * per_kv), step_.kind()});
      std::int64_t row = 0;
      for (int r = 0; r < inner.layout.requests; ++r) {
        const std::int64_t count =
            inner.layout.cached_count[static_cast<std::size_t>(k * inner.layout.requests + r)];
        Region source = inner.whole(slot, count, width), target = inner.whole(inner.kv, count, width);
        source.row = row;
        target.row = at[static_cast<std::size_t>(r)].key - count;
        if (count > 0) f.move(op, {step_.rank(k, t), step_.rank(k, t), source, target});
        row += count;
      }
    }
  }
}

void HeadExchange::send(OpIndex op, int k) {
  Dataflow& f = *step_.flow();
  const auto q_width = static_cast<std::int64_t>(inner.heads.q * inner.heads.qk);
  const auto kv_width = static_cast<std::int64_t>(inner.heads.kv_width());
  const std::int64_t per_kv = inner.heads.qk + inner.heads.v;
  const std::vector<RequestRows> own = step_.request_rows(k);
  const std::vector<GroupRows> there = rows_in_group(k);
  for (int to = k - k % size_; to < k - k % size_ + size_; ++to) {
    for (int t = 0; t < step_.p.tpa; ++t) {
      const int from_rank = step_.rank(k, t), to_rank = step_.rank(to, t);
      for (std::size_t r = 0; r < own.size(); ++r) {
        const std::int64_t count = own[r].count;
        if (count == 0) continue;
        f.move(op, {from_rank,
                    to_rank,
                    {step_.q, own[r].query, count, to % size_ * q_width, q_width},
                    {inner.q, there[r].query, count, 0, q_width}});
        f.move(op, {from_rank,
                    to_rank,
                    {step_.kv, own[r].key, count, first_kv(to) * per_kv, kv_width},
                    {inner.kv, there[r].key, count, 0, kv_width}});
      }
    }
  }
}

void HeadExchange::to_tokens() {
  const double width = inner.heads.q * inner.heads.v;
  const OpIndex op =
      step_.b.exchange("heads to tokens", Part::exchange, OpKind::all_to_all, {size_, step_.p.tpa}, Bytes(0));
  step_.vary([&](int k) {
    return Shape(
        ExchangeShape{Bytes(static_cast<double>(inner.rows(k) - step_.rows(k)) * width * inner.act_bytes())});
  });
  if (!step_.flow()) return;
  const auto columns = static_cast<std::int64_t>(width);
  for (int k = 0; k < step_.p.cp; ++k) {
    const std::vector<RequestRows> own = step_.request_rows(k);
    const std::vector<GroupRows> there = rows_in_group(k);
    for (int from = k - k % size_; from < k - k % size_ + size_; ++from) {
      for (int t = 0; t < step_.p.tpa; ++t) {
        for (std::size_t r = 0; r < own.size(); ++r) {
          const std::int64_t count = own[r].count;
          if (count == 0) continue;
          step_.flow()->move(op, {step_.rank(from, t),
                                  step_.rank(k, t),
                                  {inner.out, there[r].query, count, 0, columns},
                                  {step_.out, own[r].query, count, from % size_ * columns, columns}});
        }
      }
    }
  }
}

Bytes head_exchange_buffers(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  const double act = bytes_per_element(c.precision.activations), kv = bytes_per_element(c.precision.kv);
  return Bytes(2 * prefill_rows(c, p) * (h.q * (h.qk + h.v) * act + h.kv_width() * kv));
}

}  // namespace shardline
