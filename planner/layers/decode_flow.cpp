#include "planner/layers/decode_flow.hpp"

#include <array>

namespace shardline {

template <class F>
void DecodeFlow::for_each_rank(F f) const {
  for (int d = 0; d < p_.dp; ++d) {
    for (int k = 0; k < p_.kvp; ++k) {
      for (int t = 0; t < p_.tpa; ++t) f(rank(d, k, t), d, k, t);
    }
  }
}

std::pair<int, int> DecodeFlow::slice(int k) const {
  if (!sliced_) return {0, heads_};
  return {heads_ * k / p_.kvp, heads_ * (k + 1) / p_.kvp};
}

Tokens DecodeFlow::queries(int d, int first, int count) const {
  Tokens list;
  for (int i = first; i < first + count; ++i) list.push_back({d * p_.batch + i, c_.context - 1, c_.context});
  return list;
}

Tokens DecodeFlow::keys(int d, int k, int first, int count) const {
  Tokens list;
  for (int i = first; i < first + count; ++i) {
    for (Interval block : shards_[static_cast<std::size_t>(k)]) {
      block.request = d * p_.batch + i;
      list.push_back(block);
    }
  }
  return list;
}

SlotId DecodeFlow::slot(const char* name, int width_per_head, double bytes, bool sliced) {
  const SlotId s = b_.flow()->slot(name, bytes);
  for_each_rank([&](int r, int, int k, int) {
    const auto [first, last] = slice(k);
    b_.flow()->size(s, r, p_.batch,
                    static_cast<std::int64_t>(width_per_head) * (sliced ? last - first : heads_));
  });
  return s;
}

DecodeFlow::DecodeFlow(ScheduleBuilder& builder, const Case& c, const Plan& p, int q_heads)
    : b_(builder), c_(c), p_(p), heads_(q_heads) {
  if (!on()) return;
  const Attention& a = c.model.attention;
  const bool mla = a.kind == AttentionKind::mla;
  qk_ = mla ? a.kv_lora_rank + a.rope_dim : a.head_dim;
  v_ = mla ? a.kv_lora_rank : a.head_dim;
  kv_heads_ = mla ? 0 : (a.kv_heads + p.tpa - 1) / p.tpa;
  kv_width_ = mla ? qk_ : kv_heads_ * (qk_ + v_);
  const double act = bytes_per_element(c.precision.activations);
  Dataflow& f = *b_.flow();
  // Block i of a sequence lies on shard i mod KVP.
  shards_.resize(static_cast<std::size_t>(p.kvp));
  for (long long at = 0; at < c.context; at += c.kv_block) {
    const auto k = static_cast<std::size_t>(at / c.kv_block % p.kvp);
    shards_[k].push_back({0, at, std::min(at + c.kv_block, c.context)});
  }
  for (const Tokens& list : shards_) kv_rows_.push_back(rows(list));

  q_ = slot("q", qk_, act, false);
  out_ = slot("partial out", v_, act, false);
  lse_ = slot("partial lse", 1, 8, false);
  kv_ = f.slot("kv", bytes_per_element(c.precision.kv));
  result_ = out_;
  width_ = v_;
  for_each_rank([&](int r, int d, int k, int t) {
    f.size(kv_, r, p.batch * kv_rows_[static_cast<std::size_t>(k)], kv_width_);
    const std::int64_t h = static_cast<std::int64_t>(t) * heads_;
    const std::int64_t g = mla ? 0 : h * a.kv_heads / a.q_heads * (qk_ + v_);
    f.inputs.push_back(
        {q_, r, Whole::query, f.tokens(queries(d, 0, p.batch)), f.range(h * qk_, (h + heads_) * qk_)});
    f.inputs.push_back({kv_, r, Whole::kv, f.tokens(keys(d, k, 0, p.batch)), f.range(g, g + kv_width_)});
  });
  if (mla && p[kValueUp] != ValueUp::after) {
    up_ = a.v_dim;
    width_ = up_;
    result_ = slot("partial values", up_, act, false);
  }
}

void DecodeFlow::attend(int first, int count) {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  Action action;
  action.heads = heads_;
  action.kv_heads = kv_heads_;
  action.qk_dim = qk_;
  action.v_dim = v_;
  for_each_rank([&](int r, int d, int k, int) {
    action.rank = r;
    action.queries = f.tokens(queries(d, first, count));
    action.keys = f.tokens(keys(d, k, first, count));
    const std::int64_t per_request = kv_rows_[static_cast<std::size_t>(k)];
    f.act(b_.previous(), action,
          std::array{Region{q_, first, count, 0, heads_ * qk_},
                     Region{kv_, first * per_request, count * per_request, 0, kv_width_},
                     Region{out_, first, count, 0, heads_ * v_}, Region{lse_, first, count, 0, heads_}});
  });
}

void DecodeFlow::value_up_before(int first, int count) {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  if (first == 0) {
    weight_ = f.slot("W_UV", bytes_per_element(c_.precision.of(Module::attention).weights));
    for_each_rank([&](int r, int, int, int t) {
      const std::int64_t h = static_cast<std::int64_t>(t) * heads_;
      f.size(weight_, r, heads_ * v_, up_);
      f.inputs.push_back(
          {weight_, r, Whole::value_up_weight, f.range(h * v_, (h + heads_) * v_), f.range(0, up_)});
    });
  }
  Action action;
  action.function = Function::gemm_per_head;
  action.heads = heads_;
  for_each_rank([&](int r, int, int, int) {
    action.rank = r;
    f.act(b_.previous(), action,
          std::array{Region{out_, first, count, 0, heads_ * v_}, Region{weight_, 0, heads_ * v_, 0, up_},
                     Region{result_, first, count, 0, heads_ * up_}});
  });
}

void DecodeFlow::exchange(OpKind kind, int first, int count) {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const double act = bytes_per_element(c_.precision.activations);
  if (first == 0) {
    sliced_ = kind == OpKind::all_to_all;
    for (int k = 0; k < p_.kvp; ++k) {
      from_.push_back(slot("received out", width_, act, true));
      from_lse_.push_back(slot("received lse", 1, 8, true));
    }
  }
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < p_.kvp; ++other) {
      const auto [h, end] = slice(other);
      const auto i = static_cast<std::size_t>(k);
      const int to = rank(d, other, t);
      const std::int64_t w = width_;
      // The slice that stays is copied where the merge reads it.
      f.move(
          b_.previous(),
          {r, to, {result_, first, count, h * w, (end - h) * w}, {from_[i], first, count, 0, (end - h) * w}});
      f.move(b_.previous(),
             {r, to, {lse_, first, count, h, end - h}, {from_lse_[i], first, count, 0, end - h}});
    }
  });
}

void DecodeFlow::merge() {
  if (!on()) return;
  const SlotId merged = slot("merged out", width_, bytes_per_element(c_.precision.activations), true);
  const SlotId merged_lse = slot("merged lse", 1, 8, true);
  Action action;
  action.function = Function::merge;
  action.v_dim = width_;
  for_each_rank([&](int r, int, int k, int) {
    const auto [first, last] = slice(k);
    const int heads = last - first;  // by a name of its own: clang before 16 captures no structured binding
    std::vector<Region> regions;
    const auto pair = [&](SlotId o, SlotId lse) {
      regions.push_back({o, 0, p_.batch, 0, static_cast<std::int64_t>(heads) * width_});
      regions.push_back({lse, 0, p_.batch, 0, heads});
    };
    for (std::size_t i = 0; i < from_.size(); ++i) pair(from_[i], from_lse_[i]);
    pair(merged, merged_lse);
    action.rank = r;
    action.heads = heads;
    b_.flow()->act(b_.previous(), action, regions);
  });
  result_ = merged;
}

void DecodeFlow::value_up_after() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const int width = c_.model.attention.v_dim;
  const SlotId merged = result_;
  result_ = slot("values", width, bytes_per_element(c_.precision.activations), true);
  weight_ = f.slot("W_UV", bytes_per_element(c_.precision.of(Module::attention).weights));
  Action action;
  action.function = Function::gemm_per_head;
  for_each_rank([&](int r, int, int k, int t) {
    const auto [first, last] = slice(k);
    const std::int64_t h = static_cast<std::int64_t>(t) * heads_ + first, n = last - first;
    f.size(weight_, r, n * v_, width);
    f.inputs.push_back(
        {weight_, r, Whole::value_up_weight, f.range(h * v_, (h + n) * v_), f.range(0, width)});
    action.rank = r;
    action.heads = last - first;
    f.act(b_.previous(), action,
          std::array{Region{merged, 0, p_.batch, 0, n * v_}, Region{weight_, 0, n * v_, 0, width},
                     Region{result_, 0, p_.batch, 0, n * width}});
  });
  width_ = up_ = width;
}

void DecodeFlow::finish() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  for_each_rank([&](int r, int d, int k, int t) {
    const auto [first, last] = slice(k);
    const std::int64_t h = static_cast<std::int64_t>(t) * heads_;
    f.outputs.push_back({result_, r, up_ > 0 ? Whole::value_output : Whole::attention_output,
                         f.tokens(queries(d, 0, p_.batch)),
                         f.range((h + first) * width_, (h + last) * width_)});
  });
}

}  // namespace shardline
