// A context-parallel prefill of compressed attention (CSA and HCA of DeepSeek-V4): what new tokens add to the
// window, and the values and gates that rows are made of, are gathered; every rank makes all rows, and
// attends with its own queries alone. planner/README.md [C24].
#include <algorithm>
#include <array>
#include <map>
#include <span>

#include "models/model/cache.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/gathered.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/sparse_attention.hpp"

namespace shardline {

namespace {

constexpr double kMadeNumber = 4;  // bytes of a score, of a position, and of what rows are made of (float32)

// Numbers of a token's values, and of its gates, for rows as wide as `width`.
Count made_columns(const Attention& a, Count width) { return Count{rows_of_token(a)} * width; }

// Every method adds an op and says what it does.
class GatheredRows {
 public:
  explicit GatheredRows(ContextStep& step)
      : s_(step), share_(cache_share(s_.c, s_.a, s_.p)), ratio_(s_.a.compression->ratio) {
    for (int k = 0; k < s_.p.cp; ++k) {
      parts_.push_back(rank_queries(s_.queries(k)));
      message_ = std::max<std::int64_t>(message_, s_.rows(k));
    }
    list_requests();
  }

  void run() {
    bind_queries();
    const std::array keys{Source{Whole::latent, "own window keys", "window keys before", "window keys"}};
    const SlotId window = gather("gather window keys", "order window keys", keys, s_.a.head_dim,
                                 s_.act_bytes(), {&Request::seen, &Request::window_row, window_rows_})
                              .front();
    do_for_others("append window keys of other ranks",
                  s_.a.head_dim * s_.act_bytes() + row_bytes(s_.a, s_.c.precision.kv));
    if (s_.a.index) choose();
    attend(window, ratio_ > 0 ? make_rows(false) : SlotId(0));
    const OpIndex computed = s_.b.previous();
    s_.end_iteration({&computed, 1});
  }

 private:
  struct Request {
    std::int32_t name = 0;
    std::int64_t first = 0, end = 0;  // its new tokens
    std::int64_t seen = 0;            // the first token that one of them sees in the window
    std::int64_t made_of = 0;         // the first token that new rows are made of, or `first`
    std::int64_t window_row = 0, token_row = 0, old_row = 0, row = 0;  // where its own begin in a slot
  };
  // A whole matrix of which every rank has its own new tokens, and all of them what is kept of earlier ones.
  struct Source {
    Whole whole;
    const char *own, *kept, *all;
  };
  // Which tokens of a request lie in a slot, and where.
  struct Kept {
    std::int64_t Request::*first;
    std::int64_t Request::*row;
    std::int64_t rows;  // of all requests
  };

  Dataflow* flow() const { return s_.flow(); }
  int kind() const { return s_.kind(); }
  std::int64_t rows_before(const Request& r) const { return rows_of_tokens(s_.a, r.first); }
  std::int64_t rows_of(const Request& r) const { return rows_of_tokens(s_.a, r.end); }
  Region queries(SlotId slot, int k, std::int64_t columns) const {
    return s_.all_queries(slot, k, static_cast<double>(columns));
  }
  template <class F>
  void for_each_rank(F f) const {
    for (int k = 0; flow() && k < s_.p.cp; ++k) {
      for (int t = 0; t < s_.p.tpa; ++t) f(s_.rank(k, t), k, t);
    }
  }

  void list_requests() {
    std::map<std::int32_t, Request> by_name;
    for (int k = 0; k < s_.p.cp; ++k) {
      for (const Interval& i : s_.queries(k)) {
        if (i.request == kPadding || i.size() == 0) continue;
        Request& r = by_name.try_emplace(i.request, Request{i.request, i.begin, i.end}).first->second;
        r.first = std::min(r.first, i.begin);
        r.end = std::max(r.end, i.last() + 1);
      }
    }
    for (auto& [name, r] : by_name) {
      const std::int64_t before = rows_before(r), back = rows_of_token(s_.a) - 1;
      r.seen = first_seen(s_.a.reach, {r.first, r.end - r.first});
      r.made_of = before < rows_of(r) ? std::max<std::int64_t>(0, (before - back) * ratio_) : r.first;
      r.window_row = window_rows_;
      r.token_row = token_rows_;
      r.old_row = old_rows_;
      r.row = rows_;
      fresh_ += r.end - r.first;
      window_rows_ += r.end - r.seen;
      token_rows_ += r.end - r.made_of;
      old_rows_ += before;
      rows_ += rows_of(r);
      requests_.push_back(r);
    }
  }

  void bind_queries() {
    if (!flow()) return;
    s_.declare_queries();
    s_.bind_sinks();
    const LocalHeads& h = s_.heads;
    for_each_rank([&](int r, int k, int t) {
      const std::int64_t head = s_.first_q(t);
      const TokensId own = flow()->tokens(s_.queries(k));
      flow()->inputs.push_back(
          {s_.q, r, Whole::absorbed_query, own, flow()->range(head * h.qk, (head + h.q) * h.qk), kind()});
      flow()->outputs.push_back(
          {s_.out, r, Whole::attention_output, own, flow()->range(head * h.v, (head + h.q) * h.v), kind()});
    });
  }

  // New tokens of all ranks in one message, then in the order of their positions behind what every rank has
  // kept, request by request: a slot of each source.
  std::vector<SlotId> gather(const char* name, const char* order, std::span<const Source> sources,
                             std::int64_t columns, double bytes, const Kept& kept) {
    const double width = static_cast<double>(columns) * bytes * static_cast<double>(sources.size());
    const OpIndex op = s_.b.exchange(name, Part::exchange, OpKind::all_gather, {s_.p.cp, s_.p.tpa},
                                     Bytes(static_cast<double>(message_) * width));
    std::vector<SlotId> all;
    for (const Source& source : sources) all.push_back(move(op, source, columns, bytes, kept));
    s_.b.elementwise(order, Part::exchange, OpKind::elementwise,
                     {fresh_, columns * static_cast<Count>(sources.size()),
                      Bytes(2 * static_cast<double>(fresh_) * width)});
    return all;
  }

  SlotId move(OpIndex op, const Source& source, std::int64_t columns, double bytes, const Kept& kept) {
    const auto width = static_cast<double>(columns);
    const SlotId own = s_.message(source.own, message_, width, bytes),
                 all = s_.message(source.all, kept.rows, width, bytes),
                 before = s_.message(source.kept, kept.rows - fresh_, width, bytes),
                 padding = s_.message("padding", message_ * s_.p.cp, width, bytes);
    std::map<std::int32_t, const Request*> by_name;
    Tokens earlier;
    for (const Request& r : requests_) {
      by_name[r.name] = &r;
      if (r.*kept.first < r.first) earlier.push_back({r.name, r.*kept.first, r.first});
    }
    for_each_rank([&](int r, int k, int t) {
      Dataflow& f = *flow();
      Tokens sent = s_.queries(k);
      const std::int64_t real = s_.rows(k);
      if (real < message_) sent.push_back({kPadding, 0, message_ - real});
      f.inputs.push_back({own, r, source.whole, f.tokens(sent), f.range(0, columns), kind()});
      f.inputs.push_back({before, r, source.whole, f.tokens(earlier), f.range(0, columns), kind()});
      std::int64_t row = 0;
      const auto copy = [&](int to, SlotId from, std::int64_t at, SlotId target, std::int64_t target_row,
                            std::int64_t count) {
        if (count > 0)
          f.move(op, {r, to, {from, at, count, 0, columns}, {target, target_row, count, 0, columns}});
      };
      for (const Interval& i : earlier) {
        const Request& of = *by_name.at(i.request);
        copy(r, before, row, all, of.*kept.row, i.size());
        row += i.size();
      }
      for (int to = 0; to < s_.p.cp; ++to) {
        row = 0;
        for (const Interval& i : sent) {
          const bool pads = i.request == kPadding;
          const Request* of = pads ? nullptr : by_name.at(i.request);
          copy(s_.rank(to, t), own, row, pads ? padding : all,
               pads ? k * message_ + row : of->*kept.row + i.begin - of->*kept.first, i.size());
          row += i.size();
        }
      }
    });
    return all;
  }

  // A rank's own tokens are part of the small kernels of a layer; what is gathered passes them on every rank.
  void do_for_others(const char* name, double bytes_per_token) {
    s_.b.elementwise(name, Part::exchange, OpKind::elementwise, {});
    s_.vary([&](int k) {
      const std::int64_t others = fresh_ - s_.rows(k);
      return Shape(
          ElementwiseShape{others, s_.a.head_dim, Bytes(static_cast<double>(others) * bytes_per_token)});
    });
  }

  // Rows that the step makes, behind those that every rank has; of the index, or those that are attended to.
  SlotId make_rows(bool of_index) {
    const std::int64_t width = of_index ? s_.a.index->dim : s_.a.head_dim,
                       columns = made_columns(s_.a, width);
    const std::array sources =
        of_index ? std::array{Source{Whole::index_row_value, "own index row values",
                                     "index row values before", "index row values"},
                              Source{Whole::index_row_gate, "own index row gates", "index row gates before",
                                     "index row gates"}}
                 : std::array{Source{Whole::row_value, "own row values", "row values before", "row values"},
                              Source{Whole::row_gate, "own row gates", "row gates before", "row gates"}};
    const std::vector<SlotId> made_of =
        gather(of_index ? "gather values and gates of index rows" : "gather values and gates of rows",
               of_index ? "order values and gates of index rows" : "order values and gates of rows", sources,
               columns, kMadeNumber, {&Request::made_of, &Request::token_row, token_rows_});
    const Dtype kv = s_.c.precision.kv;
    const double row = of_index ? index_row_bytes(s_.a, kv) : row_bytes(s_.a, kv);
    do_for_others(of_index ? "make index rows of other ranks" : "make rows of other ranks",
                  2 * static_cast<double>(columns) * kMadeNumber + row / static_cast<double>(ratio_));
    return flow() ? make(of_index, made_of, width, columns) : SlotId(0);
  }

  SlotId make(bool of_index, const std::vector<SlotId>& made_of, std::int64_t width, std::int64_t columns) {
    Dataflow& f = *flow();
    const double kept = bytes_per_element(s_.c.precision.kv);
    const auto slot = [&](const char* name, std::int64_t row_count, std::int64_t of_row, double bytes) {
      return s_.message(name, row_count, static_cast<double>(of_row), bytes);
    };
    const SlotId old = slot(of_index ? "index rows before" : "rows before", old_rows_, width, kept),
                 bias = slot(of_index ? "index row bias" : "row bias", ratio_, columns, kMadeNumber),
                 out = slot(of_index ? "index rows" : "rows", rows_, width, kept);
    Tokens before;
    for (const Request& r : requests_) before.push_back({r.name, 0, rows_before(r)});
    Action action;
    action.function = Function::make_rows;
    action.ratio = static_cast<int>(ratio_);
    for_each_rank([&](int rank, int, int) {
      f.inputs.push_back(
          {old, rank, of_index ? Whole::index_key : Whole::row, f.tokens(before), f.range(0, width), kind()});
      f.inputs.push_back({bias, rank, of_index ? Whole::index_row_bias : Whole::row_bias, f.range(0, ratio_),
                          f.range(0, columns), kind()});
      action.rank = rank;
      for (const Request& r : requests_) {
        if (rows_of(r) == 0) continue;
        const bool makes = rows_before(r) < rows_of(r);
        const Interval tokens{r.name, makes ? r.made_of : r.end, makes ? rows_of(r) * ratio_ : r.end};
        const Interval numbers{r.name, 0, rows_of(r)};
        action.queries = f.tokens({&tokens, 1});
        action.keys = f.tokens({&numbers, 1});
        f.act(s_.b.previous(), action,
              std::array{Region{old, r.old_row, rows_before(r), 0, width},
                         Region{made_of[0], r.token_row, tokens.size(), 0, columns},
                         Region{made_of[1], r.token_row, tokens.size(), 0, columns},
                         Region{bias, 0, ratio_, 0, columns}, Region{out, r.row, rows_of(r), 0, width}});
      }
    });
    return out;
  }

  template <class F>
  void add(const char* name, Dtype math, F shape) {
    add_for_intervals(s_, parts_, name, math, shape);
  }

  Tokens row_numbers() const {
    Tokens list;
    for (const Request& r : requests_) list.push_back({r.name, 0, rows_of(r)});
    return list;
  }

  void choose() {
    const SlotId keys = make_rows(true);
    const IndexOps of(s_.c, s_.a, s_.p, share_, Asked::prefill);
    add("score keys", of.math(), [&](std::span<const Segment> part) { return of.scores(part); });
    const SlotId scores = score_gathered(s_, keys, row_numbers(), static_cast<int>(ratio_));
    std::int64_t longest = 1;  // a request may have no row yet: the choice is of none
    for (const Request& r : requests_) longest = std::max(longest, rows_of(r));
    kept_ = std::min<std::int64_t>(longest, s_.a.index->top_k);
    add("choose keys", of.math(), [&](std::span<const Segment> part) { return of.choice(part); });
    chosen_ = keep_gathered(s_, scores, row_numbers(), kept_, 1);
  }

  // Window and rows are one kernel, whose partial outputs are merged in it.
  void attend(SlotId window, SlotId made) {
    add("attend chosen", s_.c.precision.math, [&](std::span<const Segment> part) {
      return sparse_attend_shape(s_.c, s_.a, s_.p, share_, part, Asked::prefill);
    });
    const LocalHeads& h = s_.heads;
    if (ratio_ == 0) return attend_window(window, s_.out, s_.out_lse);
    const double act = s_.act_bytes(), out_width = static_cast<double>(h.q) * h.v;
    const SlotId window_out = s_.per_query("window out", out_width, act),
                 window_lse = s_.per_query("window lse", h.q, kMadeNumber),
                 rows_out = s_.per_query("rows out", out_width, act),
                 rows_lse = s_.per_query("rows lse", h.q, kMadeNumber);
    attend_window(window, window_out, window_lse);
    attend_rows(made, rows_out, rows_lse);
    const std::pair<SlotId, SlotId> both[]{{window_out, window_lse}, {rows_out, rows_lse}};
    s_.b.elementwise("merge window and rows", Part::attention, OpKind::merge, {}, 0);
    s_.vary([&](int k) { return Shape(ElementwiseShape{s_.rows(k), count_of(out_width), Bytes(0)}); });
    Action action;
    action.function = Function::merge;
    action.heads = h.q;
    action.v_dim = h.v;
    for_each_rank([&](int r, int k, int) {
      action.rank = r;
      std::vector<Region> regions;
      for (const auto& [out, lse] : both) {
        regions.push_back(s_.all_queries(out, k, out_width));
        regions.push_back(queries(lse, k, h.q));
      }
      regions.push_back(s_.all_queries(s_.out, k, out_width));
      regions.push_back(queries(s_.out_lse, k, h.q));
      flow()->act(s_.b.previous(), action, regions);
    });
  }

  void attend_window(SlotId window, SlotId out, SlotId lse) {
    if (!flow()) return;
    const LocalHeads& h = s_.heads;
    Action action = attend_action(h, h.q);
    Tokens keys;
    for (const Request& r : requests_) keys.push_back({r.name, r.seen, r.end});
    action.keys = flow()->tokens(keys);
    for_each_rank([&](int r, int k, int) {
      action.rank = r;
      action.queries = flow()->tokens(s_.queries(k));
      const std::array regions{
          queries(s_.q, k, std::int64_t{h.q} * h.qk), Region{window, 0, window_rows_, 0, h.qk},
          queries(out, k, std::int64_t{h.q} * h.v), queries(lse, k, h.q), s_.whole(s_.sinks(), 1, h.q)};
      flow()->act(s_.b.previous(), action, std::span(regions).first(h.sinks ? 5 : 4));
    });
  }

  void attend_rows(SlotId made, SlotId out, SlotId lse) {
    if (!flow()) return;
    const LocalHeads& h = s_.heads;
    Action action = attend_action(h, h.q);
    action.reach = {};
    action.ratio = static_cast<int>(ratio_);
    action.chosen = s_.a.index.has_value();
    action.keys = flow()->tokens(row_numbers());
    for_each_rank([&](int r, int k, int) {
      action.rank = r;
      action.queries = flow()->tokens(s_.queries(k));
      const std::array regions{queries(s_.q, k, std::int64_t{h.q} * h.qk), Region{made, 0, rows_, 0, h.qk},
                               queries(out, k, std::int64_t{h.q} * h.v), queries(lse, k, h.q),
                               queries(chosen_, k, kept_)};
      flow()->act(s_.b.previous(), action, std::span(regions).first(action.chosen ? 5 : 4));
    });
  }

  ContextStep& s_;
  const CacheShare share_;  // of caches that every rank has whole
  const std::int64_t ratio_;
  std::vector<RankQueries> parts_;  // of each rank
  std::vector<Request> requests_;
  std::int64_t message_ = 0;  // rows of the rank with most new tokens
  std::int64_t fresh_ = 0, window_rows_ = 0, token_rows_ = 0, old_rows_ = 0, rows_ = 0;  // of all requests
  SlotId chosen_ = 0;
  std::int64_t kept_ = 0;
};

}  // namespace

void attend_gathered_rows(ContextStep& s) { GatheredRows(s).run(); }

// As they come and in their order: window keys, or values and gates, of the index or of rows.
Bytes gathered_rows_buffers(const Case& c, const Attention& a, const Plan& p) {
  double widest = a.head_dim * activation_size(c);
  if (a.compression->ratio > 0)
    widest = std::max(widest, 2 * static_cast<double>(made_columns(a, a.head_dim)) * kMadeNumber);
  return Bytes(2 * prefill_rows(c, p) * p.cp * widest);
}

}  // namespace shardline
