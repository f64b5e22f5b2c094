#include "planner/layers/cache_attention.hpp"

#include "planner/layers/cache_flow.hpp"
#include "planner/layers/sparse_attention.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

// Sums over requests [first, first + count) of a batch entry that is repeated: f(segment, how many of them).
template <class F>
void for_requests(const std::vector<Segment>& entry, Count first, Count count, F f) {
  if (entry.size() == 1) return f(entry.front(), count);
  const Count each = requests_in(entry);
  Count at = first / each * each;  // start of the entry that holds the first one
  for (const Count end = first + count; at < end;) {
    for (const Segment& s : entry) {
      const Count from = std::max(at, first), to = std::min(at + s.count, end);
      if (to > from) f(s, to - from);
      at += s.count;
    }
  }
}

AttendDecodeShape decode_attend_shape(const Case& c, const Attention& a, const Plan& p,
                                      const CacheShare& share, Count first, Count count) {
  auto shape = shape_of_heads<AttendDecodeShape>(decode_heads(a, p), share.attended);
  shape.fresh = new_tokens(p);
  shape.partial = share.sharers.size > 1;
  shape.q_rows = count * shape.fresh;
  const auto requests = [&](auto f) {
    for_requests(c.batch.decode, first, count, [&](const Segment& s, Count n) { f(with_drafts(s, p), n); });
  };
  Count cached = 0;
  requests([&](const Segment& s, Count n) {
    const Count tokens = tokens_on_fullest(share, s.length());
    shape.longest = std::max(shape.longest, tokens);
    cached += n * tokens;
  });
  shape.kv_rows = shape.pairs = cached;
  // Each of several new tokens sees those before it.
  const auto all_pairs = [&] {
    return on_fullest(share, a.reach, [&](int member) {
      Count pairs = 0;
      requests([&](const Segment& s, Count n) { pairs += n * pairs_on_member(share, member, a.reach, s); });
      return pairs;
    });
  };
  if (shape.fresh > 1) shape.pairs = all_pairs();
  if (!a.reach.local()) return shape;
  const auto seen = [&](const Segment& s, int member) {
    return tokens_on_member(share, member, first_seen(a.reach, s), s.length());
  };
  shape.longest = 0;
  requests([&](const Segment& s, Count) {
    const Count most = on_fullest(share, a.reach, [&](int member) { return seen(s, member); });
    shape.longest = std::max(shape.longest, most);
  });
  shape.kv_rows = on_fullest(share, a.reach, [&](int member) {
    Count rows = 0;
    requests([&](const Segment& s, Count n) { rows += n * seen(s, member); });
    return rows;
  });
  if (shape.fresh == 1) shape.pairs = shape.kv_rows;
  if (a.reach.slides()) shape.skipped = cached - shape.kv_rows;
  return shape;
}

}  // namespace

AttendDecodeShape decode_attend_shape(const Case& c, const Attention& a, const Plan& p, Count first,
                                      Count count) {
  return decode_attend_shape(c, a, p, cache_share(c, a, p), first, count);
}

AttendPrefillShape shared_prefill_shape(const Case& c, const Attention& a, const Plan& p) {
  const CacheShare share = cache_share(c, a, p);
  auto shape = shape_of_heads<AttendPrefillShape>(prefill_heads(a, p), share.attended);
  for (const Segment& s : c.batch.prefill) {
    shape.tiles += s.count * p.batch * ((s.fresh + kTileRows - 1) / kTileRows);
  }
  shape.pairs = p.batch * on_fullest(share, a.reach, [&](int member) {
                  Count pairs = 0;
                  for (const Segment& s : c.batch.prefill)
                    pairs += s.count * pairs_on_member(share, member, a.reach, s);
                  return pairs;
                });
  shape.q_rows = prefill_tokens(c, p);
  shape.intervals = prefill_sequences(c, p);
  shape.kv_rows = prefill_keys_on_fullest(c, a, p);
  return shape;
}

Count prefill_keys_on_fullest(const Case& c, const Attention& a, const Plan& p) {
  const CacheShare share = cache_share(c, a, p);
  return p.batch * on_fullest(share, a.reach, [&](int member) {
           Count rows = 0;
           for (const Segment& s : c.batch.prefill)
             rows += s.count * tokens_on_member(share, member, first_seen(a.reach, s), s.length());
           return rows;
         });
}

Count prefill_tokens(const Case& c, const Plan& p) { return c.fresh_tokens() * p.batch; }

OpIndex add_kv_up(ScheduleBuilder& b, const Case& c, const Attention& a, Count rows, Count heads) {
  const ModuleType t = c.precision.of(Module::attention);
  return b.gemm("kv up", Part::qkv, t.weights, t.math,
                GemmShape{rows, a.kv_lora_rank, heads * (a.nope_dim + a.v_dim)});
}

OpIndex add_value_up(ScheduleBuilder& b, const Case& c, const Attention& a, Count rows, Count heads,
                     Count parts, double launches) {
  const ModuleType t = c.precision.of(Module::attention);
  return b.gemm("value up", Part::attention, t.weights, t.math,
                BatchedGemmShape{LatentProduct::expand_values, rows, a.kv_lora_rank, a.v_dim, heads, parts},
                launches);
}

double partial_output_bytes(const Case& c, const Attention& a, const Plan& p) {
  const bool latents = has_latents(a) && cache_share(c, a, p).value_up == ValueUp::after;
  const int width = latents ? a.kv_lora_rank : value_width(a);
  return width * activation_size(c) + 8;
}

void merge_window_and_rows(ScheduleBuilder& b, const Attention& a, Count rows, Count heads, CacheFlow& flow,
                           int first, int count) {
  if (!a.compression || a.compression->ratio == 0) return;
  b.elementwise("merge window and rows", Part::attention, OpKind::merge,
                {rows, heads * value_width(a), Bytes(0)}, 0);
  flow.merge_rows(first, count);
}

void add_decode_attention(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p) {
  const Strategy& s = strategy(p.strategy);
  if (s.decode_attention) return s.decode_attention(b, c, a, p);
  add_kvp_attention(b, c, a, p,
                    s.partials == PartialOutputs::all_gather ? OpKind::all_gather : OpKind::all_to_all, 1);
}

namespace {

// Partial outputs of `rows` query rows with `heads` heads each, to the ranks that merge them.
OpIndex exchange_partials(const char* name, ScheduleBuilder& b, const Case& c, const Plan& p, OpKind kind,
                          Count rows, double bytes_per_row, Carrier carrier) {
  const double wire = kind == OpKind::all_to_all ? bytes_per_row * (p.kvp - 1) / p.kvp : bytes_per_row;
  ExchangeShape partials;
  partials.bytes = Bytes(static_cast<double>(rows) * wire);
  partials.carrier = carrier;
  if (carrier == Carrier::engine) partials.rows = static_cast<double>(rows);
  return b.exchange(name, Part::exchange, kind, {p.kvp, p.tpa}, partials, c.precision.activations);
}

// One persistent kernel attends to all chunks and signals each: its launch is paid before the first, and
// W_UV, kept in L2, is read once.
class KvpAttention {
 public:
  KvpAttention(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, OpKind exchange,
               int chunks)
      : b_(b),
        c_(c),
        a_(a),
        p_(p),
        share_(cache_share(c, a, p)),
        heads_(share_.attended),
        requests_(decode_requests(c, p)),
        fresh_(new_tokens(p)),
        exchange_(exchange),
        chunks_(chunks),
        all_(decode_attend_shape(c, a, p, share_, 0, requests_)),
        partial_bytes_(static_cast<double>(heads_) * partial_output_bytes(c, a, p)),
        last_compute_(b.previous()),
        flow_(b, c, a, p, share_, 8, Asked::decode) {}

  void run() {
    if (a_.sparse()) choose();
    for (Count i = 0, first = 0, count = 0; i < chunks_; ++i, first += count) {
      count = requests_ / chunks_ + (i < requests_ % chunks_ ? 1 : 0);
      attend(i == 0, first, count);
      if (p_.kvp > 1) exchange(i == 0, first, count);
    }
    if (p_.kvp > 1) {
      const bool separate = c_.kernels.separate_shard_merge;
      b_.elementwise("merge shards", Part::exchange, OpKind::merge,
                     {requests_ * fresh_, heads_ * all_.v_dim, separate ? merge_traffic() : Bytes(0)},
                     separate ? 1 : 0);
      flow_.merge();
    }
    if (has_latents(a_) && share_.value_up == ValueUp::after) {
      add_value_up(b_, c_, a_, requests_ * fresh_, value_up_heads(share_));
      flow_.value_up_after();
    }
    flow_.finish();
  }

 private:
  void choose() {
    const std::vector<Segment> all = asked_segments(c_, p_, Asked::decode);
    add_choice(b_, c_, a_, p_, share_, all, Asked::decode, flow_);
    last_compute_ = b_.previous();
  }

  // Of a chunk what its index has chosen.
  OpIndex attend_chosen(Count first, Count count, double launches) {
    std::vector<Segment> of_chunk;
    for_requests(c_.batch.decode, first, count, [&](const Segment& s, Count n) {
      Segment& some = of_chunk.emplace_back(with_drafts(s, p_));
      some.count = static_cast<int>(n);
    });
    return b_.indexed("attend chosen", Part::attention, c_.precision.kv, c_.precision.math,
                      sparse_attend_shape(c_, a_, p_, share_, of_chunk, Asked::decode), launches);
  }

  // Reads the partial outputs of all shards with their statistics, of the heads that this rank merges, and
  // writes one output. Fused with the receiving side of the exchange it would read them there.
  Bytes merge_traffic() const {
    constexpr double kStatistics = 8;  // bytes: maximum and sum
    const double partial = partial_output_bytes(c_, a_, p_);
    const Count merged = exchange_ == OpKind::all_to_all ? rank_share(heads_, p_.kvp) : heads_;
    return Bytes(static_cast<double>(requests_ * fresh_ * merged) *
                 (p_.kvp * partial + partial - kStatistics));
  }

  void attend(bool is_first, Count first, Count count) {
    const Count rows = count * fresh_;
    // Of requests that are all alike, as many have the same shape.
    if (is_first || shape_.q_rows != rows || c_.batch.decode.size() > 1)
      shape_ = count == requests_ ? all_ : decode_attend_shape(c_, a_, p_, share_, first, count);
    AttendDecodeShape shape = shape_;
    shape.kernel_rows = chunks_ > 1 ? requests_ * fresh_ : 0;
    shape.kernel_parts = chunks_;
    shape.longest = all_.longest;
    const double launches = is_first ? 1 : 0;
    if (!is_first) b_.after(std::span(&last_compute_, 1));
    last_compute_ = a_.sparse() ? attend_chosen(first, count, launches)
                                : b_.attend("attend", c_.precision.kv, c_.precision.math, shape, launches);
    flow_.attend(static_cast<int>(first), static_cast<int>(count));
    if (a_.sparse() && !has_latents(a_)) {  // splits are merged in the measured block
      merge_window_and_rows(b_, a_, rows, heads_, flow_, static_cast<int>(first), static_cast<int>(count));
      last_compute_ = b_.previous();
      return;
    }
    if (!has_latents(a_)) {
      last_compute_ = b_.elementwise("merge splits", Part::attention, OpKind::merge,
                                     {rows, heads_ * all_.v_dim, Bytes(0)},
                                     c_.kernels.fused_split_merge ? 0 : launches, Within::decode_merge);
    } else if (share_.value_up == ValueUp::before) {
      last_compute_ = add_value_up(b_, c_, a_, rows, heads_, chunks_, launches);
      flow_.value_up_before(static_cast<int>(first), static_cast<int>(count));
    }
  }

  void exchange(bool is_first, Count first, Count count) {
    if (chunks_ > 1) {
      const OpIndex both[2] = {last_compute_, last_exchange_};
      b_.after(std::span(both, is_first ? 1 : 2));
    }
    last_exchange_ = exchange_partials("exchange partial outputs", b_, c_, p_, exchange_, count * fresh_,
                                       partial_bytes_, Carrier::engine);
    flow_.exchange(exchange_, static_cast<int>(first), static_cast<int>(count));
  }

  ScheduleBuilder& b_;
  const Case& c_;
  const Attention& a_;
  const Plan& p_;
  const CacheShare share_;
  const Count heads_, requests_, fresh_;
  const OpKind exchange_;
  const int chunks_;
  const AttendDecodeShape all_;  // of all requests in one kernel
  AttendDecodeShape shape_;      // of the last chunk
  const double partial_bytes_;   // of a row
  OpIndex last_compute_, last_exchange_ = 0;
  CacheFlow flow_;
};

// Of one query row and all heads of a rank.
double prefill_partial_bytes(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  return h.q * (h.v * activation_size(c) + 8);
}

}  // namespace

void add_kvp_attention(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, OpKind exchange,
                       int chunks) {
  KvpAttention(b, c, a, p, exchange, chunks).run();
}

void add_sparse_prefill(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, OpKind exchange,
                        TokenView own) {
  const CacheShare share = cache_share(c, a, p);
  std::vector<Segment> all;
  for (const Interval& i : own) all.push_back({i.begin, i.end - i.begin});
  if (own.empty()) all = asked_segments(c, p, Asked::prefill);
  const Count rows = rows_of(all);
  const auto requests = static_cast<int>(requests_of(all));
  CacheFlow flow(b, c, a, p, share, 8, Asked::prefill, Keys::all, own);
  add_choice(b, c, a, p, share, all, Asked::prefill, flow);
  b.indexed("attend chosen", Part::attention, c.precision.kv, c.precision.math,
            sparse_attend_shape(c, a, p, share, all, Asked::prefill));
  flow.attend(0, requests);
  merge_window_and_rows(b, a, rows, share.attended, flow, 0, requests);
  const bool latents = has_latents(a), before = share.value_up == ValueUp::before;
  if (latents && before) {
    add_value_up(b, c, a, rows, share.attended);
    flow.value_up_before(0, requests);
  }
  if (share.sharers.size > 1) {
    exchange_partials("exchange prefills' partial outputs", b, c, p, exchange, rows,
                      share.attended * partial_output_bytes(c, a, p), Carrier::library);
    flow.exchange(exchange, 0, requests);
    const Count width = share.attended * (before || !latents ? value_width(a) : a.kv_lora_rank);
    const Count merged = exchange == OpKind::all_to_all ? rank_share(width, p.kvp) : width;
    b.elementwise(
        "merge shards", Part::exchange, OpKind::merge,
        {rows, merged, Bytes(static_cast<double>(rows * merged) * activation_size(c) * (p.kvp + 1))});
    flow.merge();
  }
  if (latents && !before) {
    add_value_up(b, c, a, rows, value_up_heads(share));
    flow.value_up_after();
  }
  flow.finish();
}

void add_kvp_prefill(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, OpKind exchange) {
  if (a.sparse()) return add_sparse_prefill(b, c, a, p, exchange);
  const LocalHeads h = prefill_heads(a, p);
  CacheFlow flow(b, c, a, p, cache_share(c, a, p), 8, Asked::prefill);
  const AttendPrefillShape shape = shared_prefill_shape(c, a, p);
  if (h.latent > 0) {
    add_kv_up(b, c, a, shape.kv_rows, h.q);
    flow.expand();
  }
  b.attend("attend", c.precision.kv, c.precision.math, shape);
  const auto sequences = static_cast<int>(prefill_sequences(c, p));
  flow.attend(0, sequences);
  exchange_partials("exchange prefills' partial outputs", b, c, p, exchange, shape.q_rows,
                    prefill_partial_bytes(c, a, p), Carrier::library);
  flow.exchange(exchange, 0, sequences);
  // Reads the partial output of every shard, writes one.
  const Count width = shape.q_heads * shape.v_dim;
  const Count merged = exchange == OpKind::all_to_all ? rank_share(width, p.kvp) : width;
  const Bytes traffic(static_cast<double>(shape.q_rows * merged) * activation_size(c) * (p.kvp + 1));
  b.elementwise("merge shards", Part::exchange, OpKind::merge, {shape.q_rows, merged, traffic});
  flow.merge();
  flow.finish();
}

Bytes kvp_prefill_buffers(const Case& c, const Attention& a, const Plan& p) {
  const auto rows = static_cast<double>(prefill_tokens(c, p));
  const double tokens = p.dp * c.model.hidden * activation_size(c);  // of all attention groups
  const LocalHeads h = prefill_heads(a, p);
  if (a.sparse()) {
    const double partial = cache_share(c, a, p).attended * partial_output_bytes(c, a, p);
    return Bytes(2 * rows * std::max(tokens, partial)) + 2 * candidate_buffers(c, a, p, Asked::prefill);
  }
  const double expanded = h.latent > 0 ? static_cast<double>(prefill_keys_on_fullest(c, a, p)) *
                                             h.kv_width() * bytes_per_element(c.precision.kv)
                                       : 0;
  return Bytes(2 * rows * std::max(tokens, prefill_partial_bytes(c, a, p)) + expanded);
}

}  // namespace shardline
