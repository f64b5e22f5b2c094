// What the ops of an attention over shared caches do, in the order in which strategies call them.
#include <array>

#include "planner/layers/cache_flow.hpp"

namespace shardline {

void CacheFlow::gather_queries() {
  if (!on()) return;
  const std::int64_t columns = static_cast<std::int64_t>(share_.projected) * local_.qk;
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < shards(); ++other) {
      b_.flow()->move(b_.previous(), {r,
                                      rank(d, other, t),
                                      {projected_, 0, all_rows(), 0, columns},
                                      {q_, 0, all_rows(), k * columns, columns}});
    }
  });
}

void CacheFlow::attend(int first, int count) {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  Action action = attend_action(local_, heads_);
  const bool chosen = a_.index && !has_rows();
  action.chosen = chosen;
  if (chosen) action.block = a_.index->block;
  const SlotId out = has_rows() && first > 0 ? window_out_ : out_,
               lse = has_rows() && first > 0 ? window_lse_ : lse_;
  const std::int64_t from = row(first), n = row(first + count) - from;
  for_each_rank([&](int r, int d, int k, int) {
    action.rank = r;
    action.queries = f.tokens(queries(d, first, count));
    const Tokens list = keys(d, k, first, count);
    action.keys = f.tokens(list);
    const std::int64_t key = requests_[static_cast<std::size_t>(first)].key_row[static_cast<std::size_t>(k)];
    const std::array regions{Region{q_, from, n, 0, heads_ * local_.qk},
                             Region{kv_, key, rows(list), 0, kv_width_},
                             Region{out, from, n, 0, heads_ * local_.v}, Region{lse, from, n, 0, heads_},
                             chosen ? Region{chosen_, from, n, 0, std::int64_t{kept_} * choices()}
                                    : Region{sinks_, 0, 1, 0, heads_}};
    f.act(b_.previous(), action, std::span(regions).first(adds_sinks(k) || chosen ? 5 : 4));
  });
  if (has_rows()) attend_rows(first, count);
}

void CacheFlow::value_up_before(int first, int count) {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  if (first == 0) {
    width_ = up_ = a_.v_dim;
    result_ = slot("partial values", up_, bytes_per_element(c_.precision.activations), false);
    weight_ = f.slot("W_UV", bytes_per_element(c_.precision.of(Module::attention).weights));
    for_each_rank([&](int r, int, int, int t) {
      const std::int64_t h = static_cast<std::int64_t>(t) * heads_;
      f.size(weight_, r, heads_ * local_.v, up_);
      f.inputs.push_back({weight_, r, Whole::value_up_weight, f.range(h * local_.v, (h + heads_) * local_.v),
                          f.range(0, up_), attention_index(c_.model, a_)});
    });
  }
  Action action;
  action.function = Function::gemm_per_head;
  action.heads = heads_;
  const std::int64_t from = row(first), n = row(first + count) - from;
  for_each_rank([&](int r, int, int, int) {
    action.rank = r;
    f.act(
        b_.previous(), action,
        std::array{Region{out_, from, n, 0, heads_ * local_.v}, Region{weight_, 0, heads_ * local_.v, 0, up_},
                   Region{result_, from, n, 0, heads_ * up_}});
  });
}

void CacheFlow::exchange(OpKind kind, int first, int count) {
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
  const std::int64_t at = row(first), n = row(first + count) - at;
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < shards(); ++other) {
      const auto [h, end] = slice(other);
      const auto i = static_cast<std::size_t>(k);
      const int to = rank(d, other, t);
      const std::int64_t w = width_;
      // The slice that stays is copied where the merge reads it.
      f.move(b_.previous(),
             {r, to, {result_, at, n, h * w, (end - h) * w}, {from_[i], at, n, 0, (end - h) * w}});
      f.move(b_.previous(), {r, to, {lse_, at, n, h, end - h}, {from_lse_[i], at, n, 0, end - h}});
    }
  });
}

void CacheFlow::merge() {
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
      regions.push_back({o, 0, all_rows(), 0, static_cast<std::int64_t>(heads) * width_});
      regions.push_back({lse, 0, all_rows(), 0, heads});
    };
    for (std::size_t i = 0; i < from_.size(); ++i) pair(from_[i], from_lse_[i]);
    pair(merged, merged_lse);
    action.rank = r;
    action.heads = heads;
    b_.flow()->act(b_.previous(), action, regions);
  });
  result_ = merged;
  lse_ = merged_lse;
}

void CacheFlow::gather_lse() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  all_lse_ = f.slot("gathered lse", lse_bytes_);
  const std::int64_t n = all_rows();
  for_each_rank([&](int r, int, int, int) { f.size(all_lse_, r, n * shards(), heads_); });
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < shards(); ++other)
      f.move(b_.previous(), {r, rank(d, other, t), {lse_, 0, n, 0, heads_}, {all_lse_, k * n, n, 0, heads_}});
  });
}

// Slices of the heads lie one below the other, as a reduce-scatter takes them; a rank's own is where the
// others' are added.
void CacheFlow::correct() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const double act = bytes_per_element(c_.precision.activations);
  const std::int64_t n = all_rows(), w = width_;
  const SlotId lse = slot("merged lse", 1, lse_bytes_, false);
  sliced_ = lse_of_all_ = true;
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
  lse_ = lse;
}

void CacheFlow::reduce_scatter() {
  if (!on()) return;
  for_each_rank([&](int r, int d, int k, int t) {
    for (int to = 0; to < shards(); ++to) {
      const auto [first, last] = slice(to);
      const std::int64_t columns = static_cast<std::int64_t>(last - first) * width_;
      if (to == k) continue;
      b_.flow()->move(b_.previous(), {r,
                                      rank(d, to, t),
                                      {corrected_, to * all_rows(), all_rows(), 0, columns},
                                      {result_, 0, all_rows(), 0, columns},
                                      true});
    }
  });
}

void CacheFlow::value_up_after() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const int width = a_.v_dim;
  const SlotId merged = result_;
  result_ = slot("values", width, bytes_per_element(c_.precision.activations), true);
  weight_ = f.slot("W_UV", bytes_per_element(c_.precision.of(Module::attention).weights));
  Action action;
  action.function = Function::gemm_per_head;
  for_each_rank([&](int r, int, int k, int t) {
    const auto [first, last] = slice(k);
    const std::int64_t h = static_cast<std::int64_t>(t) * heads_ + first, n = last - first;
    f.size(weight_, r, n * local_.v, width);
    f.inputs.push_back({weight_, r, Whole::value_up_weight, f.range(h * local_.v, (h + n) * local_.v),
                        f.range(0, width), attention_index(c_.model, a_)});
    action.rank = r;
    action.heads = last - first;
    f.act(
        b_.previous(), action,
        std::array{Region{merged, 0, all_rows(), 0, n * local_.v}, Region{weight_, 0, n * local_.v, 0, width},
                   Region{result_, 0, all_rows(), 0, n * width}});
  });
  width_ = up_ = width;
}

void CacheFlow::join(const CacheFlow& other) {
  if (!on()) return;
  const SlotId joined = slot("joined out", width_, bytes_per_element(c_.precision.activations), true);
  const SlotId joined_lse = slot("joined lse", 1, lse_bytes_, true);
  const std::int64_t n = all_rows();
  Action action;
  action.function = Function::merge;
  action.v_dim = width_;
  for_each_rank([&](int r, int, int k, int) {
    const auto [first, last] = slice(k);
    const int heads = last - first;
    const std::int64_t columns = std::int64_t{heads} * width_;
    action.rank = r;
    action.heads = heads;
    b_.flow()->act(b_.previous(), action,
                   std::array{Region{result_, 0, n, 0, columns}, Region{lse_, 0, n, first_lse(k), heads},
                              Region{other.result_, 0, n, 0, columns}, Region{other.lse_, 0, n, 0, heads},
                              Region{joined, 0, n, 0, columns}, Region{joined_lse, 0, n, 0, heads}});
  });
  result_ = joined;
  lse_ = joined_lse;
  lse_of_all_ = false;
}

void CacheFlow::finish() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const auto [low, high] = slice(shards() - 1);  // the last shard has as many heads as any
  SL_CHECK((high - low) * Count{width_} >= out_proj_width(a_, p_),
           "a rank ends with the heads that its output projection reads");
  for_each_rank([&](int r, int d, int k, int t) {
    const auto [first, last] = slice(k);
    const std::int64_t h = static_cast<std::int64_t>(t) * heads_;
    f.outputs.push_back({result_, r, Whole::attention_output,
                         f.tokens(queries(d, 0, static_cast<int>(requests_.size()))),
                         f.range((h + first) * width_, (h + last) * width_), attention_index(c_.model, a_)});
  });
}

}  // namespace shardline
