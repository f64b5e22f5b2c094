// What the ops of an index do: scores, choice, and the candidates of ranks that share a cache.
#include <algorithm>
#include <array>

#include "planner/layers/cache_flow.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

constexpr double kWord = 4;  // bytes of a score and of a position

}  // namespace

SlotId CacheFlow::row_slot(const char* name, std::int64_t columns) {
  const SlotId s = b_.flow()->slot(name, kWord);
  for_each_rank([&](int r, int, int, int) { b_.flow()->size(s, r, all_rows(), columns); });
  return s;
}

int CacheFlow::choices() const { return in_blocks() ? static_cast<int>(rank_index_heads(a_, p_)) : 1; }

Tokens CacheFlow::blocks(int d, int k) const {
  const std::int64_t block = a_.index->block;
  Tokens list = keys(d, k, 0, static_cast<int>(requests_.size()));
  for (Interval& i : list) i = {i.request, i.begin / block, (i.end - 1) / block + 1};
  return list;
}

void CacheFlow::score_blocks() {
  Dataflow& f = *b_.flow();
  const SparseIndex& index = *a_.index;
  const int kind = attention_index(c_.model, a_), all = static_cast<int>(requests_.size()), heads = choices();
  const std::int64_t width = std::int64_t{heads} * index.dim;
  const SlotId queries_in = row_slot("index queries", width);
  const SlotId keys_in = f.slot("index keys", bytes_per_element(c_.precision.kv));
  scores_ = f.slot("scores of blocks", kWord);
  Action action = block_scores_action(index);
  for_each_rank([&](int r, int d, int k, int t) {
    const std::int64_t held = key_rows_[static_cast<std::size_t>(k)], scored = rows(blocks(d, k));
    // The KV head of the rank's first query head.
    const std::int64_t first = std::int64_t{kv_head_of(a_, std::int64_t{t} * heads_)} * index.dim;
    f.size(keys_in, r, held, index.dim);
    f.size(scores_, r, all_rows(), heads * scored);
    action.rank = r;
    action.queries = f.tokens(queries(d, 0, all));
    action.keys = f.tokens(keys(d, k, 0, all));
    f.inputs.push_back(
        {queries_in, r, Whole::index_query, action.queries, f.range(first, first + width), kind});
    f.inputs.push_back({keys_in, r, Whole::index_key, action.keys, f.range(0, index.dim), kind});
    for (int h = 0; h < heads; ++h)
      f.act(b_.previous(), action,
            std::array{Region{queries_in, 0, all_rows(), std::int64_t{h} * index.dim, index.dim},
                       Region{keys_in, 0, held, 0, index.dim},
                       Region{scores_, 0, all_rows(), h * scored, scored}});
  });
}

void CacheFlow::score() {
  if (!on()) return;
  if (has_rows()) return score_rows();
  if (in_blocks()) return score_blocks();
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
  const int heads = choices();
  best_ = row_slot("best scores", std::int64_t{kept} * heads);
  chosen_ = row_slot("chosen keys", std::int64_t{kept} * heads);
  Action action;
  action.function = Function::choose;
  const int all = static_cast<int>(requests_.size());
  for_each_rank([&](int r, int d, int k, int) {
    action.rank = r;
    action.queries = f.tokens(queries(d, 0, all));
    const Tokens scored = has_rows()    ? row_numbers(d, k, 0, all)
                          : in_blocks() ? blocks(d, k)
                                        : keys(d, k, 0, all);
    const std::int64_t columns = rows(scored);
    action.keys = f.tokens(scored);
    for (int h = 0; h < heads; ++h) {
      const std::int64_t at = std::int64_t{h} * kept_;
      f.act(b_.previous(), action,
            std::array{Region{scores_, 0, all_rows(), h * columns, columns},
                       Region{best_, 0, all_rows(), at, kept_}, Region{chosen_, 0, all_rows(), at, kept_}});
    }
  });
  keep_choice();
}

void CacheFlow::keep_choice() {
  Dataflow& f = *b_.flow();
  const std::int64_t columns = std::int64_t{kept_} * choices();
  for_each_rank([&](int r, int d, int, int) {
    f.choices.push_back({chosen_, r, f.tokens(queries(d, 0, static_cast<int>(requests_.size()))), columns});
  });
}

void CacheFlow::gather_candidates() {
  if (!on()) return;
  const std::int64_t own = std::int64_t{kept_} * choices(), columns = own * shards();
  const SlotId scores = row_slot("scores of candidates", columns),
               positions = row_slot("candidates", columns);
  for_each_rank([&](int r, int d, int k, int t) {
    for (int other = 0; other < shards(); ++other) {
      const int to = rank(d, other, t);
      const std::int64_t at = k * own;
      b_.flow()->move(b_.previous(),
                      {r, to, {best_, 0, all_rows(), 0, own}, {scores, 0, all_rows(), at, own}});
      b_.flow()->move(b_.previous(),
                      {r, to, {chosen_, 0, all_rows(), 0, own}, {positions, 0, all_rows(), at, own}});
    }
  });
  best_ = scores;
  chosen_ = positions;
}

void CacheFlow::choose_among(int kept) {
  if (!on()) return;
  const int heads = choices();
  const std::int64_t all = std::int64_t{kept} * heads;
  const SlotId best = row_slot("best of all scores", all), chosen = row_slot("chosen of all keys", all);
  Action action;
  action.function = Function::choose_among;
  std::vector<Region> regions;
  for_each_rank([&](int r, int, int, int) {
    action.rank = r;
    for (int h = 0; h < heads; ++h) {
      regions.clear();
      for (int k = 0; k < shards(); ++k) {
        const std::int64_t at = (std::int64_t{k} * heads + h) * kept_;
        regions.push_back({best_, 0, all_rows(), at, kept_});
        regions.push_back({chosen_, 0, all_rows(), at, kept_});
      }
      regions.push_back({best, 0, all_rows(), std::int64_t{h} * kept, kept});
      regions.push_back({chosen, 0, all_rows(), std::int64_t{h} * kept, kept});
      b_.flow()->act(b_.previous(), action, regions);
    }
  });
  best_ = best;
  chosen_ = chosen;
  kept_ = kept;
  keep_choice();
}

void CacheFlow::bind_choice() {
  if (!on()) return;
  std::int64_t longest = 0;
  for (const One& one : requests_) longest = std::max(longest, one.end);
  kept_ = static_cast<int>(std::min<std::int64_t>(a_.index->top_k, longest));
  const int all = static_cast<int>(requests_.size());
  for_each_rank([&](int r, int d, int k, int t) {
    const KeptChoice& choice = b_.flow()->choice_of(r, queries(d, 0, all));
    SL_CHECK(choice.columns == kept_, "layers that share a choice choose as many keys");
    SL_CHECK((d == 0 && k == 0 && t == 0) || choice.slot == chosen_, "ranks keep a choice in one slot");
    chosen_ = choice.slot;
  });
}

}  // namespace shardline
