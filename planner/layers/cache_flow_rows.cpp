// What the ops of compressed attention do: rows that the step makes, those that a query sees, and its window.
// Rows of the caches of all requests of a rank lie one below the other, those that the step makes behind
// those of each request that were there.
#include <algorithm>
#include <array>

#include "models/model/cache.hpp"
#include "planner/layers/cache_flow.hpp"
#include "planner/layers/compressed.hpp"

namespace shardline {

namespace {

// Rows that a member has of a request's first `tokens` tokens.
std::int64_t rows_on(const Attention& a, const CacheShare& rows, int member, std::int64_t tokens) {
  return tokens_on_member(rows, member, 0, rows_of_tokens(a, tokens));
}

}  // namespace

Tokens CacheFlow::row_numbers(int d, int k, int first, int count) const {
  const auto all = static_cast<std::int32_t>(requests_.size());
  const CacheShare rows = row_share(a_, share_);
  Tokens list;
  for (int i = first; i < first + count; ++i) {
    const One& one = requests_[static_cast<std::size_t>(i)];
    append_tokens(list, d * all + one.request, sharer_tokens(rows, k, 0, rows_of_tokens(a_, one.end)));
  }
  return list;
}

// Tokens that the rows are made of which the step adds to a member's; empty where it adds none there.
std::pair<std::int64_t, std::int64_t> CacheFlow::made_of(const One& one, int k) const {
  const CacheShare rows = row_share(a_, share_);
  const std::int64_t before = rows_of_tokens(a_, one.first), end = rows_of_tokens(a_, one.end);
  const HeldTokens held = sharer_tokens(rows, k, before, end);
  const std::int64_t first = held.next(before);
  if (first >= end) return {one.end, one.end};
  const std::int64_t ratio = a_.compression->ratio, parts = rows_of_token(a_);
  return {std::max<std::int64_t>(0, (first - (parts - 1)) * ratio), end * ratio};
}

CacheFlow::RowSlots CacheFlow::bind_rows(bool of_index) {
  Dataflow& f = *b_.flow();
  const CacheShare rows = row_share(a_, share_);
  const int kind = attention_index(c_.model, a_), all = static_cast<int>(requests_.size());
  const std::int64_t parts = rows_of_token(a_), ratio = a_.compression->ratio;
  const double act = bytes_per_element(c_.precision.activations), kept = bytes_per_element(c_.precision.kv);
  RowSlots s;
  s.width = of_index ? a_.index->dim : a_.head_dim;
  s.old = f.slot(of_index ? "index rows before" : "rows before", kept);
  s.values = f.slot(of_index ? "index row values" : "row values", act);
  s.gates = f.slot(of_index ? "index row gates" : "row gates", act);
  s.bias = f.slot(of_index ? "index row bias" : "row bias", act);
  s.rows = f.slot(of_index ? "index rows" : "rows", kept);
  const std::int64_t columns = parts * s.width;
  for_each_rank([&](int r, int d, int k, int) {
    Tokens old, tokens;
    std::int64_t held = 0;
    for (const One& one : requests_) {
      const std::int32_t request = d * all + one.request;
      append_tokens(old, request, sharer_tokens(rows, k, 0, rows_of_tokens(a_, one.first)));
      const auto [first, end] = made_of(one, k);
      if (first < end) tokens.push_back({request, first, end});
      held += rows_on(a_, rows, k, one.end);
    }
    const std::int64_t made_of_tokens = shardline::rows(tokens);
    f.size(s.old, r, shardline::rows(old), s.width);
    f.size(s.values, r, made_of_tokens, columns);
    f.size(s.gates, r, made_of_tokens, columns);
    f.size(s.bias, r, ratio, columns);
    f.size(s.rows, r, held, s.width);
    const auto bind = [&](SlotId slot, Whole whole, TokensId list, std::int64_t width) {
      f.inputs.push_back({slot, r, whole, list, f.range(0, width), kind});
    };
    bind(s.old, of_index ? Whole::index_key : Whole::row, f.tokens(old), s.width);
    bind(s.values, of_index ? Whole::index_row_value : Whole::row_value, f.tokens(tokens), columns);
    bind(s.gates, of_index ? Whole::index_row_gate : Whole::row_gate, f.tokens(tokens), columns);
    bind(s.bias, of_index ? Whole::index_row_bias : Whole::row_bias, f.range(0, ratio), columns);
  });
  return s;
}

void CacheFlow::make_rows(const RowSlots& s, int first, int count) {
  Dataflow& f = *b_.flow();
  const CacheShare rows = row_share(a_, share_);
  const auto all = static_cast<std::int32_t>(requests_.size());
  const std::int64_t parts = rows_of_token(a_), columns = parts * s.width;
  Action action;
  action.function = Function::make_rows;
  action.ratio = a_.compression->ratio;
  for_each_rank([&](int r, int d, int k, int) {
    action.rank = r;
    std::int64_t old_row = 0, token_row = 0, row = 0;
    for (int i = 0; i < first + count; ++i) {
      const One& one = requests_[static_cast<std::size_t>(i)];
      const std::int64_t before = rows_on(a_, rows, k, one.first), held = rows_on(a_, rows, k, one.end);
      const auto [from, end] = made_of(one, k);
      if (i >= first && held > 0) {
        const Interval tokens{d * all + one.request, from, end};
        action.queries = f.tokens({&tokens, 1});
        action.keys = f.tokens(row_numbers(d, k, i, 1));
        f.act(b_.previous(), action,
              std::array{Region{s.old, old_row, before, 0, s.width},
                         Region{s.values, token_row, end - from, 0, columns},
                         Region{s.gates, token_row, end - from, 0, columns},
                         Region{s.bias, 0, a_.compression->ratio, 0, columns},
                         Region{s.rows, row, held, 0, s.width}});
      }
      old_row += before;
      token_row += end - from;
      row += held;
    }
  });
}

void CacheFlow::score_rows() {
  Dataflow& f = *b_.flow();
  const SparseIndex& index = *a_.index;
  const int kind = attention_index(c_.model, a_), all = static_cast<int>(requests_.size());
  const std::int64_t width = std::int64_t{index.heads} * index.dim;
  const RowSlots made = bind_rows(true);
  make_rows(made, 0, all);
  const SlotId queries_in = row_slot("index queries", width),
               weights = row_slot("index weights", index.heads);
  scores_ = f.slot("scores of rows", 4);
  Action action;
  action.function = Function::index_scores;
  action.heads = index.heads;
  action.qk_dim = index.dim;
  action.ratio = a_.compression->ratio;
  for_each_rank([&](int r, int d, int k, int) {
    const Tokens numbers = row_numbers(d, k, 0, all);
    const std::int64_t held = rows(numbers);
    f.size(scores_, r, all_rows(), held);
    action.rank = r;
    action.queries = f.tokens(queries(d, 0, all));
    action.keys = f.tokens(numbers);
    f.inputs.push_back({queries_in, r, Whole::index_query, action.queries, f.range(0, width), kind});
    f.inputs.push_back({weights, r, Whole::index_weight, action.queries, f.range(0, index.heads), kind});
    f.act(b_.previous(), action,
          std::array{Region{queries_in, 0, all_rows(), 0, width},
                     Region{weights, 0, all_rows(), 0, index.heads}, Region{made.rows, 0, held, 0, index.dim},
                     Region{scores_, 0, all_rows(), 0, held}});
  });
}

// The window as attend() has it, then the rows: merge_rows() brings both together.
void CacheFlow::attend_rows(int first, int count) {
  Dataflow& f = *b_.flow();
  if (first == 0) {
    const double act = bytes_per_element(c_.precision.activations);
    made_ = bind_rows(false);
    rows_out_ = slot("partial out of rows", local_.v, act, false);
    rows_lse_ = slot("partial lse of rows", 1, lse_bytes_, false);
  }
  make_rows(made_, first, count);
  Action action = attend_action(local_, heads_);
  action.reach = {};
  action.ratio = a_.compression->ratio;
  action.chosen = a_.index.has_value();
  const std::int64_t from = row(first), n = row(first + count) - from;
  for_each_rank([&](int r, int d, int k, int) {
    action.rank = r;
    action.queries = f.tokens(queries(d, first, count));
    const std::int64_t before = rows(row_numbers(d, k, 0, first));
    const Tokens list = row_numbers(d, k, first, count);
    action.keys = f.tokens(list);
    const std::array regions{Region{q_, from, n, 0, heads_ * local_.qk},
                             Region{made_.rows, before, rows(list), 0, kv_width_},
                             Region{rows_out_, from, n, 0, heads_ * local_.v},
                             Region{rows_lse_, from, n, 0, heads_}, Region{chosen_, from, n, 0, kept_}};
    f.act(b_.previous(), action, std::span(regions).first(a_.index ? 5 : 4));
  });
}

void CacheFlow::merge_rows(int first, int count) {
  if (!on()) return;
  if (first == 0) {
    const SlotId window = out_, window_lse = lse_;
    out_ = result_ = slot("window and rows", local_.v, bytes_per_element(c_.precision.activations), false);
    lse_ = slot("lse of window and rows", 1, lse_bytes_, false);
    window_out_ = window;
    window_lse_ = window_lse;
  }
  Action action;
  action.function = Function::merge;
  action.v_dim = local_.v;
  action.heads = heads_;
  const std::int64_t from = row(first), n = row(first + count) - from, columns = heads_ * local_.v;
  for_each_rank([&](int r, int, int, int) {
    action.rank = r;
    b_.flow()->act(
        b_.previous(), action,
        std::array{Region{window_out_, from, n, 0, columns}, Region{window_lse_, from, n, 0, heads_},
                   Region{rows_out_, from, n, 0, columns}, Region{rows_lse_, from, n, 0, heads_},
                   Region{out_, from, n, 0, columns}, Region{lse_, from, n, 0, heads_}});
  });
}

}  // namespace shardline
