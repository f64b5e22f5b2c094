#include "planner/layers/cache_flow.hpp"

#include <array>

namespace shardline {

std::pair<int, int> CacheFlow::slice(int k) const {
  if (!sliced_) return {0, heads_};
  return {heads_ * k / shards(), heads_ * (k + 1) / shards()};
}

std::int64_t CacheFlow::row(int request) const {
  const auto i = static_cast<std::size_t>(request);
  if (i < requests_.size()) return requests_[i].row;
  return requests_.empty() ? 0 : requests_.back().row + requests_.back().end - requests_.back().first;
}

Tokens CacheFlow::queries(int d, int first, int count) const {
  const auto all = static_cast<std::int32_t>(requests_.size());
  Tokens list;
  for (int i = first; i < first + count; ++i) {
    const One& one = requests_[static_cast<std::size_t>(i)];
    list.push_back({d * all + one.request, one.first, one.end});
  }
  return list;
}

Tokens CacheFlow::keys(int d, int k, int first, int count) const {
  const auto all = static_cast<std::int32_t>(requests_.size());
  Tokens list;
  CacheShare gathered = share_;
  gathered.sharers.size = members_;
  gathered.block = block_;
  const auto add = [&](const One& one, std::int64_t end, const CacheShare& share, int member) {
    append_tokens(list, d * all + one.request, sharer_tokens(share, member, one.seen, end));
  };
  const int members = keys_ == Keys::gathered ? members_ : 1;
  for (int m = 0; m < members; ++m) {
    for (int i = first; i < first + count; ++i) {
      const One& one = requests_[static_cast<std::size_t>(i)];
      if (keys_ == Keys::fresh)
        list.push_back({d * all + one.request, one.first, one.end});
      else if (keys_ == Keys::gathered)
        add(one, one.first, gathered, m);
      else
        add(one, keys_ == Keys::all ? one.end : one.first, share_, k);
    }
  }
  return list;
}

SlotId CacheFlow::slot(const char* name, int width_per_head, double bytes, bool sliced) {
  const SlotId s = b_.flow()->slot(name, bytes);
  for_each_rank([&](int r, int, int k, int) {
    const auto [first, last] = slice(k);
    b_.flow()->size(s, r, all_rows(),
                    static_cast<std::int64_t>(width_per_head) * (sliced ? last - first : heads_));
  });
  return s;
}

CacheFlow::CacheFlow(ScheduleBuilder& builder, const Case& c, const Attention& a, const Plan& p,
                     const CacheShare& share, double lse_bytes, Asked asked, Keys keys,
                     TokenView rows_of_requests)
    : b_(builder),
      c_(c),
      a_(a),
      p_(p),
      share_(share),
      lse_bytes_(lse_bytes),
      asked_(asked),
      keys_(keys),
      own_rows_(rows_of_requests),
      local_(asked == Asked::decode || a.sparse() ? decode_heads(a, p) : prefill_heads(a, p)),
      heads_(share.attended) {
  if (!on() || keys == Keys::gathered) return;  // gather_latents() binds
  list_requests();
  bind();
}

// Requests of all attention groups are numbered one after the other, those that decode first.
void CacheFlow::list_requests() {
  const bool decode = asked_ == Asked::decode;
  int next = decode ? 0 : p_.dp * static_cast<int>(decode_requests(c_, p_));
  std::int64_t row = 0;
  key_rows_.assign(static_cast<std::size_t>(shards()), 0);
  const auto add = [&](int request, const Segment& s) {
    requests_.push_back({request, s.cached, s.length(), first_seen(a_.reach, s), row, key_rows_});
    row += s.fresh;
    for (int k = 0; k < shards(); ++k) key_rows_[static_cast<std::size_t>(k)] += keys_of(s, k);
  };
  for (const Interval& i : own_rows_) add(i.request, {i.begin, i.end - i.begin});
  if (!own_rows_.empty()) return;
  for (int copy = 0; copy < p_.batch; ++copy) {
    for (const Segment& s : decode ? c_.batch.decode : c_.batch.prefill) {
      for (int i = 0; i < s.count; ++i) add(next++, decode ? with_drafts(s, p_) : s);
    }
  }
}

std::int64_t CacheFlow::keys_of(const Segment& s, int k) const {
  if (keys_ == Keys::fresh) return s.fresh;
  const long long seen = first_seen(a_.reach, s);
  if (keys_ == Keys::gathered) return s.cached - seen;
  const auto held = [&](long long tokens) { return kv_tokens_on_shard(tokens, shards(), share_.block, k); };
  return held(keys_ == Keys::all ? s.length() : s.cached) - held(seen);
}

void CacheFlow::gather_latents(int members, int block) {
  SL_CHECK(!a_.reach.local(), "latents are of full attention");
  members_ = members;
  block_ = block;
  if (!on()) return;
  list_requests();
  bind();
  // Own rows are inputs, those of all arrive in held_.
  Dataflow& f = *b_.flow();
  const SlotId own = f.slot("own latents of prefills", bytes_per_element(c_.precision.activations));
  const auto all = static_cast<int>(requests_.size());
  std::vector<std::int64_t> rows_of(static_cast<std::size_t>(members), 0), first_row(rows_of);
  for (int m = 0; m < members; ++m) {
    for (const One& one : requests_)
      rows_of[static_cast<std::size_t>(m)] += kv_tokens_on_shard(one.first, members, block, m);
    if (m > 0)
      first_row[static_cast<std::size_t>(m)] =
          first_row[static_cast<std::size_t>(m - 1)] + rows_of[static_cast<std::size_t>(m - 1)];
  }
  for_each_rank([&](int r, int d, int, int t) {
    const int m = t % members;
    const auto i = static_cast<std::size_t>(m);
    Tokens list;
    for (int n = 0; n < all; ++n) {
      const One& one = requests_[static_cast<std::size_t>(n)];
      for (std::int64_t at = std::int64_t{m} * block; at < one.first; at += std::int64_t{block} * members)
        list.push_back({d * all + one.request, at, std::min(at + block, one.first)});
    }
    f.size(own, r, rows_of[i], local_.latent);
    f.inputs.push_back(
        {own, r, Whole::latent, f.tokens(list), f.range(0, local_.latent), attention_index(c_.model, a_)});
    for (int to = 0; to < members; ++to) {
      f.move(b_.previous(), {r,
                             r - m + to,
                             {own, 0, rows_of[i], 0, local_.latent},
                             {held_, first_row[i], rows_of[i], 0, local_.latent}});
    }
  });
}

void CacheFlow::bind() {
  const Attention& a = a_;
  const int kind = attention_index(c_.model, a);
  const LocalHeads& h = local_;
  kv_width_ = count_of(static_cast<double>(h.kv_width()));
  const double act = bytes_per_element(c_.precision.activations);
  Dataflow& f = *b_.flow();
  const bool decode = asked_ == Asked::decode, latent = h.cache == CacheRows::latent;
  q_ = projected_ = slot(decode ? "q" : "q of prefills", h.qk, act, false);
  if (share_.projected < heads_) {
    projected_ = f.slot(decode ? "projected q" : "projected q of prefills", act);
    for_each_rank([&](int r, int, int, int) {
      f.size(projected_, r, all_rows(), static_cast<std::int64_t>(share_.projected) * h.qk);
    });
  }
  out_ = slot("partial out", h.v, act, false);
  lse_ = slot("partial lse", 1, lse_bytes_, false);
  kv_ = held_ = f.slot(decode ? "kv" : "kv of prefills", bytes_per_element(c_.precision.kv));
  if (h.latent > 0) held_ = f.slot("latents of prefills", bytes_per_element(c_.precision.kv));
  if (h.sinks) sinks_ = f.slot(decode ? "sinks" : "sinks of prefills", act);
  result_ = out_;
  width_ = h.v;
  for_each_rank([&](int r, int d, int k, int t) {
    const std::int64_t held_rows = key_rows_[static_cast<std::size_t>(k)];
    f.size(kv_, r, held_rows, kv_width_);
    if (h.latent > 0) f.size(held_, r, held_rows, h.latent);
    const std::int64_t head = static_cast<std::int64_t>(t) * heads_;
    const std::int64_t g = latent ? 0 : std::int64_t{kv_head_of(a, head)} * (h.qk + h.v);
    // Of members that project each a part of the heads, member k has the k-th.
    const bool part = share_.projected < heads_;
    const std::int64_t own = head + (part ? std::int64_t{k} * share_.projected : 0);
    const auto all = static_cast<int>(requests_.size());
    f.inputs.push_back({projected_, r, latent ? Whole::absorbed_query : Whole::query,
                        f.tokens(queries(d, 0, all)), f.range(own * h.qk, (own + share_.projected) * h.qk),
                        kind});
    if (adds_sinks(k)) {
      f.size(sinks_, r, 1, heads_);
      f.inputs.push_back({sinks_, r, Whole::sinks, f.range(0, 1), f.range(head, head + heads_), kind});
    }
    if (keys_ == Keys::gathered) return;  // messages bring them
    const bool of_latents = latent || h.latent > 0;
    f.inputs.push_back({held_, r, of_latents ? Whole::latent : Whole::kv, f.tokens(keys(d, k, 0, all)),
                        of_latents ? f.range(0, latent ? kv_width_ : h.latent) : f.range(g, g + kv_width_),
                        kind});
  });
}

void CacheFlow::expand() {
  if (!on()) return;
  const Attention& a = a_;
  const int kind = attention_index(c_.model, a);
  Dataflow& f = *b_.flow();
  const std::int64_t up = a.nope_dim + a.v_dim;
  const SlotId weight = f.slot("W kv up", bytes_per_element(c_.precision.of(Module::attention).weights));
  Action action;
  action.function = Function::expand;
  action.heads = heads_;
  action.qk_dim = local_.qk;
  action.v_dim = local_.v;
  for_each_rank([&](int r, int, int k, int t) {
    const std::int64_t head = static_cast<std::int64_t>(t) * heads_,
                       held = key_rows_[static_cast<std::size_t>(k)];
    f.size(weight, r, a.kv_lora_rank, heads_ * up);
    f.inputs.push_back({weight, r, Whole::kv_up_weight, f.range(0, a.kv_lora_rank),
                        f.range(head * up, (head + heads_) * up), kind});
    action.rank = r;
    f.act(b_.previous(), action,
          std::array{Region{held_, 0, held, 0, local_.latent},
                     Region{weight, 0, a.kv_lora_rank, 0, heads_ * up}, Region{kv_, 0, held, 0, kv_width_}});
  });
}

}  // namespace shardline
