// A context-parallel prefill where an index chooses keys: those of the index are gathered, each rank chooses
// among all of them, and gathers what it attends to. planner/README.md [C22], [C26].
#include "planner/layers/gathered.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "models/model/cache.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/sparse_attention.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kGatheredWord = 4;  // bytes of a score and of a position

template <class F>
void for_each_gatherer(const ContextStep& s, F f) {
  for (int k = 0; s.flow() && k < s.p.cp; ++k) {
    for (int t = 0; t < s.p.tpa; ++t) f(s.rank(k, t), k, t);
  }
}

Region query_columns(const ContextStep& s, SlotId slot, int k, std::int64_t column, std::int64_t columns) {
  return {slot, 0, rows(s.queries(k)), column, columns};
}

}  // namespace

SlotId score_gathered(ContextStep& s, SlotId keys, const Tokens& list, int ratio) {
  if (!s.flow()) return 0;
  Dataflow& f = *s.flow();
  const SparseIndex& index = *s.a.index;
  const std::int64_t width = std::int64_t{index.heads} * index.dim, all = rows(list);
  const SlotId queries_in = s.per_query("index queries", static_cast<double>(width), kGatheredWord),
               weights = s.per_query("index weights", index.heads, kGatheredWord),
               scores = s.per_query("scores", static_cast<double>(all), kGatheredWord);
  Action action;
  action.function = Function::index_scores;
  action.heads = index.heads;
  action.qk_dim = index.dim;
  action.ratio = ratio;
  action.keys = f.tokens(list);
  for_each_gatherer(s, [&](int r, int k, int) {
    action.rank = r;
    action.queries = f.tokens(s.queries(k));
    f.inputs.push_back({queries_in, r, Whole::index_query, action.queries, f.range(0, width), s.kind()});
    f.inputs.push_back({weights, r, Whole::index_weight, action.queries, f.range(0, index.heads), s.kind()});
    f.act(s.b.previous(), action,
          std::array{query_columns(s, queries_in, k, 0, width), query_columns(s, weights, k, 0, index.heads),
                     Region{keys, 0, all, 0, index.dim}, query_columns(s, scores, k, 0, all)});
  });
  return scores;
}

SlotId keep_gathered(ContextStep& s, SlotId scores, const Tokens& list, std::int64_t kept,
                     std::int64_t choices) {
  if (!s.flow()) return 0;
  const std::int64_t columns = rows(list);
  const SlotId best = s.per_query("best scores", static_cast<double>(kept * choices), kGatheredWord),
               chosen = s.per_query("chosen keys", static_cast<double>(kept * choices), kGatheredWord);
  Action action;
  action.function = Function::choose;
  action.keys = s.flow()->tokens(list);
  for_each_gatherer(s, [&](int r, int k, int) {
    action.rank = r;
    action.queries = s.flow()->tokens(s.queries(k));
    for (std::int64_t h = 0; h < choices; ++h)
      s.flow()->act(
          s.b.previous(), action,
          std::array{query_columns(s, scores, k, h * columns, columns),
                     query_columns(s, best, k, h * kept, kept), query_columns(s, chosen, k, h * kept, kept)});
  });
  return chosen;
}

namespace {

// Every method adds an op and says what it does.
class GatheredChoice {
 public:
  explicit GatheredChoice(ContextStep& step)
      : s_(step), share_(cache_share(s_.c, s_.a, s_.p)), index_(*s_.a.index) {
    for (int k = 0; k < s_.p.cp; ++k) {
      parts_.push_back(rank_queries(s_.queries(k)));
      for (const Interval& i : s_.keys(k)) {
        if (i.request != kPadding && i.size() > 0)
          length_[i.request] = std::max(length_[i.request], i.last() + 1);
      }
    }
    for (const auto& [request, length] : length_) {
      first_row_[request] = rows_;
      rows_ += length;
      longest_ = std::max(longest_, length);
      all_.push_back({request, 0, length});
    }
    kept_ = static_cast<int>(std::min<std::int64_t>(index_.top_k, rank_share(longest_, index_.block)));
  }

  void run() {
    begin();
    const SlotId kept = s_.kept_rows("KV before", s_.held_matrix(), s_.heads.kv_width(), s_.kv_bytes(),
                                     [&](int t) { return s_.held_columns(t); });
    const SlotId held =
        gather("gather KV", "order KV", s_.kv, kept, count_of(s_.heads.kv_width()), s_.kv_bytes());
    add("attend chosen", s_.c.precision.math, [&](std::span<const Segment> part) {
      return sparse_attend_shape(s_.c, s_.a, s_.p, share_, part, Asked::prefill);
    });
    for (int k = 0; flow() && k < s_.p.cp; ++k)
      attend_flow(k, all_, {held, 0, rows_, 0, count_of(s_.heads.kv_width())}, s_.out, s_.out_lse);
    if (has_latents(s_.a)) s_.value_up();
    const OpIndex computed = s_.b.previous();
    s_.end_iteration({&computed, 1});
  }

  // As attend_pass_kv() does of all keys: what a rank holds in an iteration is attended to where it was
  // chosen.
  void run_ring() {
    begin();
    const auto width = static_cast<double>(s_.heads.kv_width());
    const long long rows = s_.layout.key_message;
    const std::array<SlotId, 2> received{s_.message("KV received, even", rows, width, s_.kv_bytes()),
                                         s_.message("KV received, odd", rows, width, s_.kv_bytes())};
    const SlotId partial = s_.per_query("partial out", s_.heads.q * s_.heads.v, s_.act_bytes()),
                 partial_lse = s_.per_query("partial lse", s_.heads.q, 4);
    const auto seen = [&](int k, int j) { return keys_before(s_.queries(k), k, j) > 0; };
    OpIndex start = s_.b.previous();
    for (int j = 0; j < s_.ring.size; ++j) {
      const bool last = j + 1 == s_.ring.size;
      const SlotId held = j == 0 ? s_.kv : received[static_cast<std::size_t>((j - 1) % 2)];
      OpIndex sent = start;
      if (!last) {
        s_.b.after({&start, 1});
        sent = s_.pass_on("pass KV", held, received[static_cast<std::size_t>(j % 2)], rows, width,
                          s_.kv_bytes());
      }
      s_.b.after(j == 0 && s_.c.persistent_kv ? std::span(&sent, 1) : std::span(&start, 1));
      attend_part(j, held, j == 0 ? s_.out : partial, j == 0 ? s_.out_lse : partial_lse);
      OpIndex computed = s_.b.previous();
      if (j > 0) {
        s_.b.after({&computed, 1});
        computed = s_.merge("merge", {{s_.out, s_.out_lse}, {partial, partial_lse}},
                            [&](int k, std::size_t i) { return i == 0 || seen(k, j); });
      }
      const OpIndex both[2] = {computed, sent};
      start = s_.end_iteration({both, last ? 1u : 2u});
    }
    if (has_latents(s_.a)) s_.value_up();
  }

 private:
  void begin() {
    if (s_.flow()) {
      s_.declare_slots();
      s_.bind_attention();
    }
    index_.shared ? bind_choice() : choose();
  }
  Dataflow* flow() const { return s_.flow(); }
  // (query, key) pairs of these queries of rank k with the keys that it holds in iteration j.
  Count keys_before(TokenView queries, int k, int j) const {
    return causal_pairs(queries, s_.keys(s_.behind(k, j)), Reach{});
  }
  // Choices of a row: one, or of blocks one for each of the rank's KV heads.
  bool in_blocks() const { return index_.block > 1; }
  int choices() const { return in_blocks() ? static_cast<int>(rank_index_heads(s_.a, s_.p)) : 1; }
  void add(const char* name, Dtype math, auto shape) { add_for_intervals(s_, parts_, name, math, shape); }

  // Rows of all ranks, then in the order of their positions, request by request; among them those that every
  // rank has kept.
  SlotId gather(const char* name, const char* order, SlotId own, SlotId kept, std::int64_t columns,
                double bytes) {
    const OpIndex op = s_.gather(name, static_cast<double>(columns) * bytes);
    const SlotId gathered = s_.message(name, rows_, static_cast<double>(columns), bytes);
    const SlotId padding =
        s_.message("padding", s_.layout.key_message * s_.p.cp, static_cast<double>(columns), bytes);
    for_each_gatherer(s_, [&](int r, int k, int t) {
      std::int64_t kept_row = 0;
      for (const Interval& i : s_.layout.kept) {
        flow()->move(op, {r,
                          r,
                          {kept, kept_row, i.size(), 0, columns},
                          {gathered, first_row_.at(i.request) + i.begin, i.size(), 0, columns}});
        kept_row += i.size();
      }
      for (int to = 0; to < s_.p.cp; ++to) {
        std::int64_t row = 0;
        const auto move = [&](SlotId target, std::int64_t at, std::int64_t count) {
          if (count > 0)
            flow()->move(op,
                         {r, s_.rank(to, t), {own, row, count, 0, columns}, {target, at, count, 0, columns}});
          row += count;
        };
        for (const Interval& i : s_.keys(k)) {
          if (i.request == kPadding) {
            move(padding, k * s_.layout.key_message + row, i.size());
            continue;
          }
          const std::int64_t first = first_row_.at(i.request);
          for (std::int64_t n = 0; i.stride > 1 && n < i.size(); ++n)
            move(gathered, first + i.position(n), 1);
          if (i.stride == 1) move(gathered, first + i.begin, i.size());
        }
      }
    });
    if (keeps_whole_caches(s_.c, s_.p))
      s_.keep_gathered_rows(order, columns, bytes_per_element(s_.c.precision.kv));
    else
      s_.b.elementwise(order, Part::exchange, OpKind::elementwise,
                       {rows_, columns, Bytes(2 * static_cast<double>(rows_ * columns) * bytes)});
    return gathered;
  }

  void choose() {
    const std::int64_t dim = index_.dim;
    const double bytes = keeps_whole_caches(s_.c, s_.p)
                             ? s_.act_bytes()
                             : index_row_bytes(s_.a, s_.c.precision.kv) / static_cast<double>(dim);
    const SlotId own = s_.uneven(
        "index keys", [&](int k) { return rows(s_.keys(k)); }, static_cast<double>(dim), bytes);
    for_each_gatherer(s_, [&](int r, int k, int) {
      flow()->inputs.push_back(
          {own, r, Whole::index_key, flow()->tokens(s_.keys(k)), flow()->range(0, dim), s_.kind()});
    });
    const SlotId kept = s_.kept_rows("index keys before", Whole::index_key, static_cast<double>(dim), bytes,
                                     [&](int) { return flow()->range(0, dim); });
    const SlotId keys = gather("gather index keys", "order index keys", own, kept, dim, bytes);
    const IndexOps of(s_.c, s_.a, s_.p, share_, Asked::prefill);
    add("score keys", of.math(), [&](std::span<const Segment> part) { return of.scores(part); });
    if (in_blocks())
      score_blocks(keys);
    else
      scores_ = score_gathered(s_, keys, all_, 1);
    add("choose keys", of.math(), [&](std::span<const Segment> part) { return of.choice(part); });
    chosen_ = keep_gathered(s_, scores_, scored_keys(), kept_, choices());
    for_each_gatherer(s_, [&](int r, int k, int) {
      flow()->choices.push_back({chosen_, r, flow()->tokens(s_.queries(k)), std::int64_t{kept_} * choices()});
    });
  }

  void score_blocks(SlotId keys) {
    if (!flow()) return;
    Dataflow& f = *flow();
    const int heads = choices();
    const std::int64_t width = std::int64_t{heads} * index_.dim, scored = rows(scored_keys());
    const SlotId queries_in = s_.per_query("index queries", static_cast<double>(width), kGatheredWord);
    scores_ = s_.per_query("scores of blocks", static_cast<double>(heads * scored), kGatheredWord);
    Action action = block_scores_action(index_);
    action.keys = f.tokens(all_);
    for_each_gatherer(s_, [&](int r, int k, int t) {
      const std::int64_t first = std::int64_t{s_.first_kv(t)} * index_.dim;
      action.rank = r;
      action.queries = f.tokens(s_.queries(k));
      f.inputs.push_back(
          {queries_in, r, Whole::index_query, action.queries, f.range(first, first + width), s_.kind()});
      for (std::int64_t h = 0; h < heads; ++h)
        f.act(s_.b.previous(), action,
              std::array{query_columns(s_, queries_in, k, h * index_.dim, index_.dim),
                         Region{keys, 0, rows_, 0, index_.dim},
                         query_columns(s_, scores_, k, h * scored, scored)});
    });
  }

  // All keys, or the numbers of the blocks that they lie in.
  Tokens scored_keys() const {
    Tokens list = all_;
    for (Interval& i : list) i.end = rank_share(i.end, index_.block);
    return list;
  }

  void bind_choice() {
    for_each_gatherer(s_, [&](int r, int k, int) {
      const KeptChoice& choice = flow()->choice_of(r, s_.queries(k));
      SL_CHECK(choice.columns == kept_, "layers that share a choice choose as many keys");
      chosen_ = choice.slot;
    });
  }

  // Of what was chosen the part that is there in iteration j: as much of it as of the keys that a query sees.
  void attend_part(int j, SlotId keys, SlotId out, SlotId lse) {
    const auto of = [&](int k) {
      const RankQueries& part = parts_[static_cast<std::size_t>(k)];
      AttendSparseShape s = sparse_attend_shape(s_.c, s_.a, s_.p, share_, part.intervals, Asked::prefill);
      s.requests = part.requests;
      s.spread = true;
      s.pairs = 0;
      for (const Interval& i : s_.queries(k)) {
        if (i.request == kPadding || i.size() == 0) continue;
        const Segment segment{i.begin, i.size()};
        const double there =
            static_cast<double>(keys_before({&i, 1}, k, j)) / static_cast<double>(pairs_of(Reach{}, segment));
        s.pairs +=
            static_cast<Count>(std::ceil(static_cast<double>(chosen_pairs(index_, segment)) * there - 1e-6));
      }
      s.kv_rows = std::min<Count>(s.pairs, real_rows(s_.keys(s_.behind(k, j))));
      if (keys_before(s_.queries(k), k, j) == 0) s.q_rows = s.requests = s.candidates = 0;
      return s;
    };
    s_.b.indexed("attend chosen", Part::attention, s_.c.precision.kv, s_.c.precision.math, of(0));
    s_.vary([&](int k) { return Shape(of(k)); });
    for (int k = 0; flow() && k < s_.p.cp; ++k) {
      if (keys_before(s_.queries(k), k, j) > 0)
        attend_flow(k, s_.keys(s_.behind(k, j)), s_.whole(keys, s_.layout.key_message, s_.heads.kv_width()),
                    out, lse);
    }
  }

  // Rank k attends to what it has chosen of these keys.
  void attend_flow(int k, const Tokens& list, const Region& keys, SlotId out, SlotId lse) {
    const LocalHeads& h = s_.heads;
    Action action = attend_action(h, h.q);
    action.chosen = true;
    action.block = index_.block;
    action.keys = flow()->tokens(list);
    action.queries = flow()->tokens(s_.queries(k));
    for (int t = 0; t < s_.p.tpa; ++t) {
      action.rank = s_.rank(k, t);
      flow()->act(s_.b.previous(), action,
                  std::array{s_.all_queries(s_.q, k, h.q * h.qk), keys, s_.all_queries(out, k, h.q * h.v),
                             s_.all_queries(lse, k, h.q),
                             query_columns(s_, chosen_, k, 0, std::int64_t{kept_} * choices())});
    }
  }

  ContextStep& s_;
  const CacheShare share_;  // of the gathered caches: whole
  const SparseIndex index_;
  std::vector<RankQueries> parts_;                           // of each rank
  std::map<std::int32_t, std::int64_t> length_, first_row_;  // by request
  std::int64_t rows_ = 0, longest_ = 0;
  Tokens all_;  // every token, in the order of gathered rows
  int kept_ = 0;
  SlotId scores_ = 0, chosen_ = 0;
};

}  // namespace

void attend_gathered_choice(ContextStep& s) { GatheredChoice(s).run(); }
void attend_ring_choice(ContextStep& s) { GatheredChoice(s).run_ring(); }

namespace {

// Of all ranks together, padded [C3].
double message_rows(const Case& c, const Attention& a, const Plan& p) {
  const double number = bytes_per_element(c.precision.kv) * prefill_heads(a, p).held_width();
  return key_message(c, a, p).value / number * p.cp;
}

}  // namespace

// Rows as they come and in their order; index keys stay in theirs meanwhile, or are in whole caches by then.
Bytes gathered_choice_buffers(const Case& c, const Attention& a, const Plan& p) {
  if (keeps_whole_caches(c, p)) {
    const double width = std::max<double>(prefill_heads(a, p).held_width(), a.index->dim);
    return Bytes(2 * prefill_rows(c, p) * p.cp * width * activation_size(c));
  }
  const double row = kv_bytes_per_token(c, a, p), index = index_row_bytes(a, c.precision.kv);
  return Bytes(message_rows(c, a, p) * (2 * (row - index) + index));
}

// Index keys in their order, beside them as they came; or two messages of rows, and a partial output.
Bytes ring_choice_buffers(const Case& c, const Attention& a, const Plan& p) {
  const double row = kv_bytes_per_token(c, a, p), index = index_row_bytes(a, c.precision.kv);
  const double rows = message_rows(c, a, p), passed = 2 * rows / p.cp * (row - index);
  const LocalHeads h = decode_heads(a, p);
  const double partial = prefill_rows(c, p) * h.q * (h.v * activation_size(c) + 4);
  return Bytes(rows * index + std::max(rows * index, passed + partial));
}

}  // namespace shardline
