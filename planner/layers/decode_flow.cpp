#include "planner/layers/decode_flow.hpp"

#include <array>

#include "planner/layers/context_step.hpp"

namespace shardline {

template <class F>
void DecodeFlow::for_each_rank(F f) const {
  for (int d = 0; d < p_.dp; ++d) {
    for (int k = 0; k < shards(); ++k) {
      for (int t = 0; t < p_.group() / shards(); ++t) f(rank(d, k, t), d, k, t);
    }
  }
}

std::pair<int, int> DecodeFlow::slice(int k) const {
  if (!sliced_) return {0, heads_};
  return {heads_ * k / shards(), heads_ * (k + 1) / shards()};
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

DecodeFlow::DecodeFlow(ScheduleBuilder& builder, const Case& c, const Plan& p, const DecodeShare& share,
                       double lse_bytes)
    : b_(builder), c_(c), p_(p), share_(share), lse_bytes_(lse_bytes), heads_(share.attended) {
  if (!on()) return;
  const Attention& a = c.model.attention;
  const LocalHeads local = decode_heads(c, p);
  qk_ = local.qk;
  v_ = local.v;
  cache_ = local.cache;
  kv_heads_ = local.kv;
  kv_width_ = count_of(local.kv_width());
  const double act = bytes_per_element(c.precision.activations);
  Dataflow& f = *b_.flow();
  shards_.resize(static_cast<std::size_t>(shards()));
  for (long long at = 0; at < c.context; at += share.block) {
    const auto k = static_cast<std::size_t>(at / share.block % shards());
    shards_[k].push_back({0, at, std::min(at + share.block, c.context)});
  }
  for (const Tokens& list : shards_) kv_rows_.push_back(rows(list));

  q_ = projected_ = slot("q", qk_, act, false);
  if (share.projected < heads_) {
    projected_ = f.slot("projected q", act);
    for_each_rank([&](int r, int, int, int) {
      f.size(projected_, r, p.batch, static_cast<std::int64_t>(share.projected) * qk_);
    });
  }
  out_ = slot("partial out", v_, act, false);
  lse_ = slot("partial lse", 1, lse_bytes_, false);
  kv_ = f.slot("kv", bytes_per_element(c.precision.kv));
  result_ = out_;
  width_ = v_;
  for_each_rank([&](int r, int d, int k, int t) {
    f.size(kv_, r, p.batch * kv_rows_[static_cast<std::size_t>(k)], kv_width_);
    const std::int64_t h = static_cast<std::int64_t>(t) * heads_;
    const std::int64_t g = cache_ == CacheRows::latent ? 0 : h * a.kv_heads / a.q_heads * (qk_ + v_);
    // Of members that project each a part of the heads, member k has the k-th.
    const bool part = share_.projected < heads_;
    const std::int64_t own = h + (part ? std::int64_t{k} * share_.projected : 0);
    f.inputs.push_back({projected_, r, Whole::query, f.tokens(queries(d, 0, p.batch)),
                        f.range(own * qk_, (own + share_.projected) * qk_)});
    f.inputs.push_back({kv_, r, Whole::kv, f.tokens(keys(d, k, 0, p.batch)), f.range(g, g + kv_width_)});
  });
}

void DecodeFlow::gather_queries() {
  if (!on()) return;
  const std::int64_t columns = static_cast<std::int64_t>(share_.projected) * qk_;
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < shards(); ++other) {
      b_.flow()->move(b_.previous(), {r,
                                      rank(d, other, t),
                                      {projected_, 0, p_.batch, 0, columns},
                                      {q_, 0, p_.batch, k * columns, columns}});
    }
  });
}

void DecodeFlow::attend(int first, int count) {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  Action action;
  action.heads = heads_;
  action.kv_heads = kv_heads_;
  action.cache = cache_;
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
    width_ = up_ = c_.model.attention.v_dim;
    result_ = slot("partial values", up_, bytes_per_element(c_.precision.activations), false);
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
    for (int k = 0; k < shards(); ++k) {
      from_.push_back(slot("received out", width_, act, true));
      from_lse_.push_back(slot("received lse", 1, lse_bytes_, true));
    }
  }
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < shards(); ++other) {
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
  const SlotId merged_lse = slot("merged lse", 1, lse_bytes_, true);
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

void DecodeFlow::gather_lse() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  all_lse_ = f.slot("gathered lse", lse_bytes_);
  const std::int64_t n = p_.batch;
  for_each_rank([&](int r, int, int, int) { f.size(all_lse_, r, n * shards(), heads_); });
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < shards(); ++other)
      f.move(b_.previous(), {r, rank(d, other, t), {lse_, 0, n, 0, heads_}, {all_lse_, k * n, n, 0, heads_}});
  });
}

// Slices of the heads lie one below the other, as a reduce-scatter takes them; a rank's own is where the
// others' are added.
void DecodeFlow::correct() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const double act = bytes_per_element(c_.precision.activations);
  const std::int64_t n = p_.batch, w = width_;
  const SlotId lse = slot("merged lse", 1, lse_bytes_, false);
  sliced_ = true;
  corrected_ = f.slot("corrected out", act);
  const std::int64_t widest = (heads_ + shards() - 1) / shards() * w;
  for_each_rank([&](int r, int, int, int) { f.size(corrected_, r, n * shards(), widest); });
  result_ = slot("summed out", width_, act, true);
  Action action;
  action.function = Function::merge;
  action.v_dim = width_;
  for_each_rank([&](int r, int, int k, int) {
    action.rank = r;
    for (int to = 0; to < shards(); ++to) {
      const auto [first, last] = slice(to);
      const std::int64_t h = first, heads = last - first;
      std::vector<Region> regions;
      for (int part = 0; part < shards(); ++part) {
        regions.push_back({out_, 0, n, h * w, part == k ? heads * w : 0});
        regions.push_back({all_lse_, part * n, n, h, heads});
      }
      regions.push_back(to == k ? Region{result_, 0, n, 0, heads * w}
                                : Region{corrected_, to * n, n, 0, heads * w});
      regions.push_back({lse, 0, n, h, heads});
      action.heads = static_cast<int>(heads);
      f.act(b_.previous(), action, regions);
    }
  });
}

void DecodeFlow::reduce_scatter() {
  if (!on()) return;
  for_each_rank([&](int r, int d, int k, int t) {
    for (int to = 0; to < shards(); ++to) {
      const auto [first, last] = slice(to);
      const std::int64_t columns = static_cast<std::int64_t>(last - first) * width_;
      if (to == k) continue;
      b_.flow()->move(b_.previous(), {r,
                                      rank(d, to, t),
                                      {corrected_, to * p_.batch, p_.batch, 0, columns},
                                      {result_, 0, p_.batch, 0, columns},
                                      true});
    }
  });
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
