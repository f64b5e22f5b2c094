// A prefill (or a decode step under context parallelism) while it is lowered: the layer around attention
// once, and the pieces of attention that the strategies put together. Shapes and data flow of an op stand
// side by side, so that what is timed is what executors run.
#pragma once

#include <functional>

#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// A whole number that was computed as a double.
inline Count count_of(double x) { return static_cast<Count>(x + 0.5); }

/// Heads of one rank, and what one token is to them. A prefill under MLA attends to expanded heads, where
/// every query head has a key and a value; its cache and its messages hold the latents that those follow
/// from. A decode step under MLA attends to the latents themselves (absorbed).
struct LocalHeads {
  int q = 0, kv = 0, qk = 0, v = 0;
  AttentionFamily family = AttentionFamily::gqa;
  int latent = 0;  // numbers of the row that keys and values are expanded from; 0: none
  // latent: a cached row is the key of every head, its first v numbers the value; kv is 1.
  CacheRows cache = CacheRows::heads;
  /// Numbers per token that attention reads.
  double kv_width() const { return cache == CacheRows::latent ? qk : static_cast<double>(kv) * (qk + v); }
  /// Numbers per token that are cached and sent.
  double held_width() const { return latent > 0 ? latent : kv_width(); }
};
LocalHeads prefill_heads(const Case& c, const Plan& p);
LocalHeads decode_heads(const Case& c, const Plan& p);

/// Sequences of a plan's whole batch, as Case::requests `batch` times.
std::vector<Request> batch_requests(const Case& c, const Plan& p);

/// Most rows that one rank computes outside attention.
double prefill_rows(const Case& c, const Plan& p);

/// Rows of one request among a rank's new tokens, queries and keys (its first new one).
struct RequestRows {
  long long count = 0, token = 0, query = 0, key = 0;
};

/// Context-parallel ranks that pass messages to one another: `size` of them, each `stride` behind the next.
/// The others have such rings of their own.
struct Ring {
  int size = 1, stride = 1;
};

class ContextStep {
 public:
  /// All ranks are one ring. `pad_queries`: the query message has equal rows on all ranks.
  ContextStep(ScheduleBuilder& builder, const Case& c, const Plan& p, ContextLayout layout, bool pad_queries);
  /// The attention of `outer` by other shards, for what stands between two exchanges: every rank has `heads`
  /// of its tokens in `layout`. Its slots are the caller's to declare and to fill; only `outer` binds.
  ContextStep(const ContextStep& outer, ContextLayout layout, const LocalHeads& heads, Ring ring);

  ScheduleBuilder& b;
  const Case& c;
  const Plan& p;
  const ContextLayout layout;
  const LocalHeads heads;
  const Ring ring;
  const bool prefill;

  /// New tokens per context-parallel rank: rows of all ops but attention.
  const std::vector<double>& rows() const { return rows_; }
  const Tokens& queries(int k) const { return pad_ ? layout.queries[index(k)] : layout.fresh[index(k)]; }
  /// Tokens that the rows of `out` are results of.
  const Tokens& results(int k) const {
    return layout.results.empty() ? queries(k) : layout.results[index(k)];
  }
  const Tokens& keys(int k) const { return layout.keys[index(k)]; }
  /// The rank in rank `k`'s ring that is `steps` behind it.
  int behind(int k, int steps) const {
    const int at = k / ring.stride % ring.size;
    return k + (((at - steps) % ring.size + ring.size) % ring.size - at) * ring.stride;
  }
  Group ring_group() const { return {ring.size, ring.stride * p.tpa}; }
  int rank(int k, int t) const { return k * p.tpa + t; }

  std::vector<RequestRows> request_rows(int k) const;
  /// First global query and KV head of TP rank t.
  int first_q(int t) const { return t * heads.q; }
  int first_kv(int t) const;

  /// Declares the slots below. Call first when flow() is set.
  void declare_slots();
  /// Queries, keys and values are inputs, the attention output is the output.
  void bind_attention();

  // Slots of the data flow; meaningful only while flow() is set.
  Dataflow* flow() const { return b.flow(); }
  SlotId q = 0, kv = 0, out = 0, out_lse = 0;
  SlotId held = 0;  // what of `kv` is cached and sent: latents, or `kv` itself
  double act_bytes() const { return bytes_per_element(c.precision.activations); }
  double kv_bytes() const { return bytes_per_element(c.precision.kv); }
  /// A slot of equal size on all ranks, for messages.
  SlotId message(const char* name, long long row_count, double columns, double bytes) const;
  /// A slot with `row_count(k)` rows on the ranks of k.
  SlotId uneven(const char* name, const std::function<long long(int)>& row_count, double columns,
                double bytes) const;
  /// A slot with as many rows as each rank's queries.
  SlotId per_query(const char* name, double columns, double bytes) const;
  Region whole(SlotId slot, long long row_count, double columns) const {
    return {slot, 0, row_count, 0, static_cast<std::int64_t>(columns)};
  }
  Region all_queries(SlotId slot, int k, double columns) const;

  /// [C18] Makes keys and values of what every rank k holds in slot `from`, rows as in `list(k)`: under MLA
  /// an op that expands latents into slot `to`, else nothing. Returns the slot that they are in.
  SlotId expand(SlotId from, SlotId to, const std::function<const Tokens&(int)>& list);
  /// The same of a rank's own keys, into `kv`.
  void expand_own();
  /// MLA, absorbed: the values of `out` from the latent rows that attention has averaged; the step's output.
  void value_up();

  /// Attention of the queries of `queries_of(k)` over the keys of `keys_of(k)` on every rank k.
  struct Attend {
    std::function<int(int)> queries_of, keys_of;
    SlotId query, key, out, lse;
  };
  OpIndex attend(const char* name, const Attend& a);
  /// attend() for queries and keys that are no rank's own list; the regions come from the caller.
  OpIndex attend_lists(const char* name, const std::function<const Tokens&(int)>& query_list,
                       const std::function<const Tokens&(int)>& key_list, const LocalHeads& h,
                       const std::function<std::vector<Region>(int)>& regions);
  /// One kernel per rank that attends several groups of queries, each over keys of its own.
  struct AttendPart {
    Tokens queries, keys;         // positions decide the mask
    std::vector<Region> regions;  // of Function::attend
  };
  OpIndex attend_parts(const char* name, const std::function<std::vector<AttendPart>(int)>& parts);
  /// Every rank sends `source` to the next of its ring, which receives it in `target`.
  OpIndex pass_on(const char* name, SlotId source, SlotId target, long long row_count, double columns,
                  double element_bytes);
  /// All ranks gather all keys and values, then attend once.
  void attend_gathered();
  /// End of one iteration of the ring, where an eager engine waits for its kernels and messages.
  OpIndex end_iteration(std::span<const OpIndex> after);
  /// Merges partial outputs by their log-sum-exps: pairs of slots -> out.
  OpIndex merge(const char* name, const std::vector<std::pair<SlotId, SlotId>>& partials);
  /// One shape per context-parallel rank for the op just added.
  void vary(const std::function<Shape(int)>& shape);

 private:
  ContextStep(ScheduleBuilder& builder, const Case& c, const Plan& p, ContextLayout layout,
              const LocalHeads& heads, Ring ring, bool pad_queries);
  OpIndex add_attend(const char* name);
  void attend_flow(OpIndex op, int k, const Tokens& queries, const Tokens& keys, const LocalHeads& h,
                   const std::vector<Region>& regions);
  static std::size_t index(int k) { return static_cast<std::size_t>(k); }
  bool pad_;
  std::vector<double> rows_;
  std::vector<Shape> shapes_;
  SlotId kv_up_ = 0;  // weight of expand()
};

/// Context-parallel ranks over which one KV head's cache is spread.
double cache_shards(const Case& c, const Plan& p);
Bytes prefill_activation_bytes(const Case& c, const Plan& p);  // [P4]
Bytes prefill_buffer_bytes(const Case& c, const Plan& p);      // [P5]
/// What is held (LocalHeads) of cached and new tokens on the rank with most of them; the keys and values that
/// latents among it expand to, else nothing; that rank's partial output with its log-sum-exps.
Bytes key_message(const Case& c, const Plan& p);
Bytes expanded_message(const Case& c, const Plan& p);
Bytes partial_output(const Case& c, const Plan& p);
/// Buffers of strategies that gather the keys and values of all ranks, of those that pass them round a ring,
/// and of those that exchange none.
Bytes gathered_buffers(const Case& c, const Plan& p);
Bytes ring_buffers(const Case& c, const Plan& p);
Bytes unsharded_buffers(const Case& c, const Plan& p);

/// [C4] The blocks of one layer, whose FFN is dense or of experts; 0 for what the model has not.
struct PrefillBlocks {
  BlockIndex attend = 0, dense = 0, experts = 0;
};
PrefillBlocks add_prefill_blocks(ContextStep& step, void (*attention)(ContextStep&));

/// All stages of a prefill with the attention of a strategy, by default in the shards of [C1].
void build_prefill(Schedule& schedule, const Case& c, const Plan& p, bool pad_queries,
                   void (*attention)(ContextStep&));
void build_prefill(Schedule& schedule, const Case& c, const Plan& p, ContextLayout layout, bool pad_queries,
                   void (*attention)(ContextStep&));
/// [C17] The same, `p.prefill_chunk` tokens of each request at a time.
void build_chunked_prefill(Schedule& schedule, const Case& c, const Plan& p, void (*attention)(ContextStep&));
/// Where the cached tokens of a plan's whole batch lie; null: each was prefilled in one turn.
const Placement* cached_placement(const Case& c, const Plan& p);

/// [C5] Keys and values (under MLA latents) round the ring of a prefill, partial outputs merged into `out`.
void attend_pass_kv(ContextStep& s);
/// Queries round the ring, also those of a decode step.
void attend_pass_q(ContextStep& s);

/// A prefill of strategies that keep each request's tokens together (tensor, pipeline).
void prefill_unsharded(Schedule& schedule, const Case& c, const Plan& p);

}  // namespace shardline
