// The attention of a step's prefills (or of decoding requests under context parallelism) while it is lowered:
// the pieces that strategies put together. Shapes and data flow of an op stand side by side, so that what is
// timed is what executors run.
#pragma once

#include <functional>

#include "planner/layers/share.hpp"

namespace shardline {

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
  /// Prefills, or decoding requests, in a layer with attention `a`; all ranks are one ring.
  ContextStep(ScheduleBuilder& builder, const Case& c, const Attention& a, const Plan& p,
              ContextLayout layout, Asked asked = Asked::prefill);
  /// The attention of `outer` by other shards, for what stands between two exchanges: every rank has `heads`
  /// of its tokens in `layout`. Its slots are the caller's to declare and to fill; only `outer` binds.
  ContextStep(const ContextStep& outer, ContextLayout layout, const LocalHeads& heads, Ring ring);

  ScheduleBuilder& b;
  const Case& c;
  const Attention& a;
  const Plan& p;
  const ContextLayout layout;
  const LocalHeads heads;
  const Ring ring;
  const bool prefill;

  /// New tokens of a context-parallel rank.
  Count rows(int k) const { return rows_[index(k)]; }
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
  /// Ranks of one context-parallel rank: a TP group, or those of all attention groups, each of which has
  /// requests of its own. None has both several groups and several context-parallel ranks.
  int lanes() const { return p.dp * p.tpa; }
  /// The same tokens of the requests of lane t's attention group.
  Tokens of_group(const Tokens& tokens, int t) const;

  std::vector<RequestRows> request_rows(int k) const;
  /// First global query and KV head of lane t.
  int first_q(int t) const { return t % p.tpa * heads.q; }
  int first_kv(int t) const;
  /// What whole matrices of this kind of attention are known by (Binding::kind).
  int kind() const { return attention_index(c.model, a); }

  /// Declares the slots below. Call first when flow() is set.
  void declare_slots();
  /// Those of queries and results alone, and of sinks, for steps that bring their keys themselves.
  void declare_queries();
  /// Queries, keys and values are inputs, the attention output is the output.
  void bind_attention();
  /// Sinks alone, of a kind that has some.
  void bind_sinks();

  // Slots of the data flow; meaningful only while flow() is set.
  Dataflow* flow() const { return b.flow(); }
  SlotId q = 0, kv = 0, out = 0, out_lse = 0;
  SlotId held = 0;  // what of `kv` is cached and sent: latents, or `kv` itself
  SlotId sinks() const { return sinks_; }
  double act_bytes() const { return bytes_per_element(c.precision.activations); }
  /// Of a number of a row that is held or sent, the scales of a cached row among them.
  double kv_bytes() const;
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

  /// Whether some of these queries sees one of these keys. Of full attention always: that a causal mask
  /// leaves nothing of a rank's part is for kernels to find.
  bool reaches(const Tokens& query_list, const Tokens& key_list) const;
  /// Of the iterations of a ring, up to the last one in which any rank has something to do, whether one has:
  /// `seen(k, j)` says it of rank k in iteration j. What comes later need not travel.
  std::vector<bool> iterations(const std::function<bool(int, int)>& seen) const;
  /// Attention of the queries of `queries_of(k)` over the keys of `keys_of(k)` on every rank k; a rank whose
  /// queries do not reach the keys has nothing to do, and writes nothing.
  struct Attend {
    std::function<int(int)> queries_of, keys_of;
    SlotId query, key, out, lse;
    bool sinks = true;  // counts those of the layer: one attend of each query does
  };
  OpIndex attend(const char* name, const Attend& a);
  /// attend() for queries and keys that are no rank's own list; the regions come from the caller.
  OpIndex attend_lists(const char* name, const std::function<const Tokens&(int)>& query_list,
                       const std::function<const Tokens&(int)>& key_list, const LocalHeads& h,
                       const std::function<std::vector<Region>(int)>& regions, bool sinks = true);
  /// One kernel per rank that attends several groups of queries, each over keys of its own.
  struct AttendPart {
    Tokens queries, keys;         // positions decide the mask
    std::vector<Region> regions;  // of Function::attend
  };
  OpIndex attend_parts(const char* name, const std::function<std::vector<AttendPart>(int)>& parts);
  /// Every rank sends `source` to the next of its ring, which receives it in `target`.
  OpIndex pass_on(const char* name, SlotId source, SlotId target, long long row_count, double columns,
                  double element_bytes);
  /// All ranks gather `row_bytes` of each row of the message of keys.
  OpIndex gather(const char* name, double row_bytes);
  /// The whole matrix that `held` is a part of, and its columns on lane t.
  Whole held_matrix() const;
  TokensId held_columns(int t) const;
  /// [C26] A slot of the cached tokens that every rank keeps beside its keys, of a whole matrix; meaningless
  /// where it keeps none.
  SlotId kept_rows(const char* name, Whole of, double columns, double bytes,
                   const std::function<TokensId(int)>& columns_of);
  /// [C26] What ranks with whole caches do with new rows that they have gathered; bytes of a cached number.
  void keep_gathered_rows(const char* name, Count columns, double kept_bytes);
  /// All ranks gather all keys and values, then attend once.
  void attend_gathered();
  /// End of one iteration of the ring, where an eager engine waits for its kernels and messages.
  OpIndex end_iteration(std::span<const OpIndex> after);
  /// Merges partial outputs by their log-sum-exps: pairs of slots -> out. `has(k, i)`: whether rank k has the
  /// i-th pair; without it, all. A rank that has no other than `out` itself does nothing.
  OpIndex merge(const char* name, const std::vector<std::pair<SlotId, SlotId>>& partials,
                const std::function<bool(int, std::size_t)>& has = nullptr);
  /// One shape per context-parallel rank for the op just added.
  void vary(const std::function<Shape(int)>& shape);

 private:
  ContextStep(ScheduleBuilder& builder, const Case& c, const Attention& a, const Plan& p,
              ContextLayout layout, const LocalHeads& heads, Ring ring, Asked asked, bool pad_queries);
  OpIndex add_attend(const char* name);
  void attend_flow(OpIndex op, int k, const Tokens& queries, const Tokens& keys, const LocalHeads& h,
                   std::vector<Region> regions, bool sinks = true);
  static std::size_t index(int k) { return static_cast<std::size_t>(k); }
  bool pad_;
  std::vector<Count> rows_;
  std::vector<Shape> shapes_;
  SlotId kv_up_ = 0;  // weight of expand()
  SlotId sinks_ = 0;
};

/// [C5] Keys and values (under MLA latents) round the ring of a prefill, partial outputs merged into `out`.
void attend_pass_kv(ContextStep& s);
/// Queries round the ring, also those of a decode step.
void attend_pass_q(ContextStep& s);

/// Of strategies that keep each request's tokens together.
void attend_own(ContextStep& s);

}  // namespace shardline
