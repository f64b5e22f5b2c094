// What the ops of an index do: scores, choice, and the candidates of ranks that share a cache.
#include <algorithm>
#include <array>

#include "planner/layers/cache_flow.hpp"

namespace shardline {

namespace {

constexpr double kWord = 4;  // bytes of a score and of a position

}  // namespace

SlotId CacheFlow::row_slot(const char* name, std::int64_t columns) {
  const SlotId s = b_.flow()->slot(name, kWord);
  for_each_rank([&](int r, int, int, int) { b_.flow()->size(s, r, all_rows(), columns); });
  return s;
}

void CacheFlow::score() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  const SparseIndex& index = *a_.index;
  const int kind = attention_index(c_.model, a_), all = static_cast<int>(requests_.size());
  const std::int64_t width = std::int64_t{index.heads} * index.dim;
  const SlotId queries_in = row_slot("index queries", width),
               weights = row_slot("index weights", index.heads);
  const SlotId keys_in = f.slot("index keys", 1);
  scores_ = f.slot("scores", kWord);
  Action action;
  action.function = Function::index_scores;
  action.heads = index.heads;
  action.qk_dim = index.dim;
  for_each_rank([&](int r, int d, int k, int) {
    const std::int64_t held = key_rows_[static_cast<std::size_t>(k)];
    f.size(keys_in, r, held, index.dim);
    f.size(scores_, r, all_rows(), held);
    action.rank = r;
    action.queries = f.tokens(queries(d, 0, all));
    action.keys = f.tokens(keys(d, k, 0, all));
    f.inputs.push_back({queries_in, r, Whole::index_query, action.queries, f.range(0, width), kind});
    f.inputs.push_back({weights, r, Whole::index_weight, action.queries, f.range(0, index.heads), kind});
    f.inputs.push_back({keys_in, r, Whole::index_key, action.keys, f.range(0, index.dim), kind});
    f.act(b_.previous(), action,
          std::array{Region{queries_in, 0, all_rows(), 0, width},
                     Region{weights, 0, all_rows(), 0, index.heads}, Region{keys_in, 0, held, 0, index.dim},
                     Region{scores_, 0, all_rows(), 0, held}});
  });
}

void CacheFlow::choose(int kept) {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  kept_ = kept;
  best_ = row_slot("best scores", kept);
  chosen_ = row_slot("chosen keys", kept);
  Action action;
  action.function = Function::choose;
  const int all = static_cast<int>(requests_.size());
  for_each_rank([&](int r, int d, int k, int) {
    action.rank = r;
    action.queries = f.tokens(queries(d, 0, all));
    action.keys = f.tokens(keys(d, k, 0, all));
    f.act(b_.previous(), action,
          std::array{Region{scores_, 0, all_rows(), 0, key_rows_[static_cast<std::size_t>(k)]},
                     Region{best_, 0, all_rows(), 0, kept_}, Region{chosen_, 0, all_rows(), 0, kept_}});
  });
}

void CacheFlow::gather_candidates() {
  if (!on()) return;
  const std::int64_t columns = std::int64_t{kept_} * shards();
  const SlotId scores = row_slot("scores of candidates", columns),
               positions = row_slot("candidates", columns);
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < shards(); ++other) {
      const int to = rank(d, other, t);
      const std::int64_t at = std::int64_t{k} * kept_;
      b_.flow()->move(b_.previous(),
                      {r, to, {best_, 0, all_rows(), 0, kept_}, {scores, 0, all_rows(), at, kept_}});
      b_.flow()->move(b_.previous(),
                      {r, to, {chosen_, 0, all_rows(), 0, kept_}, {positions, 0, all_rows(), at, kept_}});
    }
  });
  best_ = scores;
  chosen_ = positions;
}

void CacheFlow::choose_among(int kept) {
  if (!on()) return;
  const SlotId best = row_slot("best of all scores", kept), chosen = row_slot("chosen of all keys", kept);
  Action action;
  action.function = Function::choose_among;
  std::vector<Region> regions;
  for_each_rank([&](int r, int, int, int) {
    regions.clear();
    for (int k = 0; k < shards(); ++k) {
      regions.push_back({best_, 0, all_rows(), std::int64_t{k} * kept_, kept_});
      regions.push_back({chosen_, 0, all_rows(), std::int64_t{k} * kept_, kept_});
    }
    regions.push_back({best, 0, all_rows(), 0, kept});
    regions.push_back({chosen, 0, all_rows(), 0, kept});
    action.rank = r;
    b_.flow()->act(b_.previous(), action, regions);
  });
  best_ = best;
  chosen_ = chosen;
  kept_ = kept;
}

void CacheFlow::bind_choice() {
  if (!on()) return;
  Dataflow& f = *b_.flow();
  std::int64_t longest = 0;
  for (const One& one : requests_) longest = std::max(longest, one.end);
  kept_ = static_cast<int>(std::min<std::int64_t>(a_.index->top_k, longest));
  chosen_ = row_slot("keys that an earlier layer chose", kept_);
  const int kind = attention_index(c_.model, a_), all = static_cast<int>(requests_.size());
  for_each_rank([&](int r, int d, int, int) {
    f.inputs.push_back({chosen_, r, Whole::chosen, f.tokens(queries(d, 0, all)), f.range(0, kept_), kind});
  });
}

}  // namespace shardline
