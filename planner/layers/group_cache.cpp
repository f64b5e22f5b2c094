#include "planner/layers/group_cache.hpp"

#include "planner/layers/cache_attention.hpp"

namespace shardline {

namespace {

// A kernel that reads and writes `times` the partial outputs of `heads` heads.
ElementwiseShape over(const Case& c, const Partials& a, Count heads, double times) {
  const auto numbers = static_cast<double>(a.rows * heads * a.width);
  return {a.rows, heads * a.width, Bytes(a.charged ? numbers * times * activation_size(c) : 0)};
}

// Corrected outputs travel as activations, in BF16 as vLLM's. SGLang's float32 is a note of launch().
void add_ag_rs(ScheduleBuilder& b, const Case& c, const Partials& a, Group group, CacheFlow& flow) {
  const auto rows = static_cast<double>(a.rows * a.heads);
  b.exchange("gather log-sum-exps", Part::exchange, OpKind::all_gather, group, Bytes(rows * kGroupLseBytes));
  flow.gather_lse();
  b.elementwise("correct partial outputs", Part::exchange, OpKind::merge, over(c, a, a.heads, 2));
  flow.correct();
  b.exchange("reduce-scatter outputs", Part::exchange, OpKind::reduce_scatter, group,
             Bytes(rows * static_cast<double>(a.width) * activation_size(c)));
  flow.reduce_scatter();
}

// One message of outputs with their log-sum-exps behind them, packed and unpacked by kernels of their own.
void add_a2a(ScheduleBuilder& b, const Case& c, const Partials& a, Group group, CacheFlow& flow) {
  const Count own = a.heads / group.size;
  const double head = static_cast<double>(a.width) * activation_size(c) + kGroupLseBytes;
  b.elementwise("pack partial outputs", Part::exchange, OpKind::elementwise, over(c, a, a.heads, 2));
  b.exchange("exchange partial outputs", Part::exchange, OpKind::all_to_all, group,
             Bytes((group.size - 1) * static_cast<double>(a.rows * own) * head));
  flow.exchange(OpKind::all_to_all, 0, a.requests);
  b.elementwise("merge shards", Part::exchange, OpKind::merge, over(c, a, own, group.size + 1));
  flow.merge();
}

}  // namespace

void bring_together(ScheduleBuilder& b, const Case& c, const Partials& partials, Group group,
                    PartialExchange exchange, CacheFlow& flow) {
  (exchange == PartialExchange::ag_rs ? add_ag_rs : add_a2a)(b, c, partials, group, flow);
}

void gather_queries(ScheduleBuilder& b, const Case& c, const CacheShare& share, Count rows, Count width,
                    CacheFlow& flow) {
  const auto numbers = static_cast<double>(rows * share.projected * width);
  b.exchange("gather queries", Part::exchange, OpKind::all_gather, share.sharers,
             Bytes(numbers * activation_size(c)));
  flow.gather_queries();
}

namespace {

class Prefills {
 public:
  Prefills(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, PartialExchange exchange,
           bool gathers_queries)
      : b_(b),
        c_(c),
        a_(a),
        p_(p),
        exchange_(exchange),
        gathers_queries_(gathers_queries),
        heads_(prefill_heads(a_, p_)),
        share_(cache_share(c_, a_, p_)),
        rows_(prefill_tokens(c_, p_)),
        requests_(static_cast<int>(prefill_sequences(c_, p_))) {
    const auto on_most = [&](auto f) {
      return on_fullest(share_, a_.reach, [&](int member) {
        Count all = 0;
        for (const Segment& s : c_.batch.prefill) all += s.count * p_.batch * f(member, s);
        return all;
      });
    };
    on_shard_ = on_most([&](int member, const Segment& s) {
      return tokens_on_member(share_, member, first_seen(a_.reach, s), s.cached);
    });
    shard_pairs_ = on_most(
        [&](int member, const Segment& s) { return cached_pairs_on_member(share_, member, a_.reach, s); });
    for (const Segment& s : c_.batch.prefill) {
      const Count n = static_cast<Count>(s.count) * p_.batch;
      cached_ += n * (s.cached - first_seen(a_.reach, s));
      pairs_ += n * cached_pairs_of(a_.reach, s);
      own_pairs_ += n * (pairs_of(a_.reach, s) - cached_pairs_of(a_.reach, s));
      all_own_pairs_ += n * (s.fresh * (s.fresh + 1) / 2);
      tiles_ += n * ((s.fresh + kTileRows - 1) / kTileRows);
      seeing_tiles_ += n * ((rows_seeing_cached(a_.reach, s) + kTileRows - 1) / kTileRows);
    }
  }

  void run() {
    const int own = heads_.q;
    CacheFlow fresh(b_, c_, a_, p_, {own, own, {1, 1}, 1, ValueUp::before}, kGroupLseBytes, Asked::prefill,
                    Keys::fresh);
    if (cached_ == 0) {
      attend_fresh(fresh);
      return fresh.finish();
    }
    heads_.latent > 0 ? over_gathered_latents(fresh) : over_shards(fresh);
  }

 private:
  AttendPrefillShape shape(Count heads, Count pairs, Count keys) const {
    auto s = shape_of_heads<AttendPrefillShape>(heads_, heads);
    s.pairs = pairs;
    s.kv_rows = keys;
    s.q_rows = rows_;
    s.tiles = seeing_tiles_;
    s.intervals = requests_;
    return s;
  }
  void expand(Count rows, CacheFlow& flow) {
    if (heads_.latent == 0) return;
    add_kv_up(b_, c_, a_, rows, heads_.q);
    flow.expand();
  }
  void attend_fresh(CacheFlow& fresh) {
    expand(rows_, fresh);
    AttendPrefillShape s = shape(heads_.q, own_pairs_, rows_);
    s.whole = own_pairs_ == all_own_pairs_;
    s.tiles = tiles_;
    b_.attend("attend new tokens", c_.precision.kv, c_.precision.math, s);
    fresh.attend(0, requests_);
  }
  void join(CacheFlow& context, const CacheFlow& fresh) {
    const Count width = static_cast<Count>(heads_.q) * heads_.v;
    b_.elementwise("merge cached and new", Part::exchange, OpKind::merge,
                   {rows_, width, Bytes(3 * static_cast<double>(rows_ * width) * activation_size(c_))});
    context.join(fresh);
    context.finish();
  }
  void over_shards(CacheFlow& fresh) {
    const CacheShare& share = share_;
    CacheFlow context(b_, c_, a_, p_, share, kGroupLseBytes, Asked::prefill, Keys::cached);
    if (gathers_queries_) gather_queries(b_, c_, share, rows_, heads_.qk, context);
    b_.attend("attend cached tokens", c_.precision.kv, c_.precision.math,
              shape(share.attended, shard_pairs_, on_shard_));
    context.attend(0, requests_);
    bring_together(b_, c_, {rows_, share.attended, heads_.v, requests_, true}, share_.sharers, exchange_,
                   context);
    attend_fresh(fresh);
    join(context, fresh);
  }
  void over_gathered_latents(CacheFlow& fresh) {
    const int own = heads_.q;
    CacheFlow context(b_, c_, a_, p_, {own, own, {1, 1}, 1, ValueUp::before}, kGroupLseBytes, Asked::prefill,
                      Keys::gathered);
    attend_fresh(fresh);
    b_.exchange("gather latents", Part::exchange, OpKind::all_gather, share_.sharers,
                Bytes(static_cast<double>(on_shard_ * heads_.latent) * activation_size(c_)));
    context.gather_latents(share_.sharers.size, share_.block);
    expand(cached_, context);
    b_.attend("attend cached tokens", c_.precision.kv, c_.precision.math, shape(own, pairs_, cached_));
    context.attend(0, requests_);
    join(context, fresh);
  }

  ScheduleBuilder& b_;
  const Case& c_;
  const Attention& a_;
  const Plan& p_;
  const PartialExchange exchange_;
  const bool gathers_queries_;
  const LocalHeads heads_;
  const CacheShare share_;
  const Count rows_;  // new tokens
  const int requests_;
  Count cached_ = 0, on_shard_ = 0;  // cached tokens, and those on the fullest rank
  // Of one head: new tokens with cached ones, with those on the fullest rank, and with one another.
  Count pairs_ = 0, shard_pairs_ = 0, own_pairs_ = 0;
  Count all_own_pairs_ = 0;             // as own_pairs_, whatever the reach
  Count tiles_ = 0, seeing_tiles_ = 0;  // of new tokens, and of those that see a cached one
};

}  // namespace

void add_group_prefill(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p,
                       PartialExchange exchange, bool gathers_queries) {
  Prefills(b, c, a, p, exchange, gathers_queries).run();
}

}  // namespace shardline
