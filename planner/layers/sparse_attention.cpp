#include "planner/layers/sparse_attention.hpp"

#include <algorithm>
#include <cmath>

#include "models/model/cache.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/memory.hpp"

namespace shardline {

namespace {

constexpr double kCandidateBytes = 4 + 4;  // a float32 score and where its key is
// vllm-project/vllm envs.py, VLLM_SPARSE_INDEXER_MAX_LOGITS_MB: scores of prompts that lie in memory at once.
constexpr double kMostScores = 512.0 * (1 << 20);

// Kernels beside products, scores, choice and attention: norms of both latents, rotation, KV append; of an
// index the norm of its key, rotation, quantisation and append (vllm models/deepseek_v2.py, class Indexer).
// Of compressed attention also the norm of queries and the rotation of outputs back; what rows are made of is
// kept, and rows are made, of an index, too (vllm models/deepseek_v4, common/ops).
constexpr double kSmallKernels = 3, kIndexKernels = 3, kCompressedKernels = 2, kRowKernels = 2;

bool scores(const Attention& a) { return a.index && !a.index->shared; }
bool in_blocks(const Attention& a) { return a.index && a.index->block > 1; }

// Index keys of DSA are FP8 whatever the cache is; without such a unit they are widened. Those of blocks are
// of the cache's type, and multiplied in BF16 (sglang and vllm, minimax sparse kernels).
Dtype index_math(const Case& c, const Attention& a) {
  const auto has = [&](Dtype t) {
    return c.system.device.peak[static_cast<std::size_t>(t)] > FlopsPerSecond(0);
  };
  if (in_blocks(a)) return has(Dtype::bf16) ? Dtype::bf16 : c.precision.math;
  return has(Dtype::fp8) ? Dtype::fp8 : Dtype::bf16;
}

IndexedBlock block_of(const Case& c, const Attention& a, const Plan& p, Count q_heads, Asked asked) {
  return {q_heads,
          rank_index_heads(a, p),
          a.index->shared,
          c.precision.of(Module::attention).weights,
          asked == Asked::prefill,
          a.index->block};
}

// Of one cached row on one rank: latents are whole on each, keys and values those of its KV heads.
double rank_row_bytes(const Case& c, const Attention& a, const Plan& p) {
  if (has_latents(a)) return row_bytes(a, c.precision.kv);
  return static_cast<double>(kv_elements_per_token(a, p)) * bytes_per_element(c.precision.kv);
}

template <class F>
Count over(std::span<const Segment> segments, F f) {
  Count sum = 0;
  for (const Segment& s : segments) sum += s.count * f(s);
  return sum;
}

Count pairs_on_fullest(const CacheShare& share, const Segment& s) {
  return s.fresh == 0 ? 0 : pairs_on_member(share, 0, Reach{}, s);
}

// Blocks of `block` tokens that the keys of a segment's rows lie in on the fullest sharer, row by row: the n
// blocks of a row's tokens are dealt out as whole blocks are.
Count blocks_on_fullest(const CacheShare& share, Count block, const Segment& s) {
  CacheShare coarse = share;
  coarse.block = std::max(1, share.block / static_cast<int>(block));
  const auto upto = [&](long long tokens) {
    const long long whole = tokens / block;
    const Count sum = whole > 0 ? block * pairs_on_fullest(coarse, {0, whole}) : 0;
    return sum + (tokens % block) * tokens_on_fullest(coarse, whole + 1);
  };
  return upto(s.length()) - upto(s.cached);
}

// Scores of one head of the index that the rows of a segment choose among.
Count scores_on_fullest(const SparseIndex& index, const CacheShare& share, const Segment& s) {
  return index.block > 1 ? blocks_on_fullest(share, index.block, s) : pairs_on_fullest(share, s);
}

// Keys that a rank has of the longest request: no row has more candidates.
Count longest_on_rank(const CacheShare& share, std::span<const Segment> segments) {
  Count most = 0;
  for (const Segment& s : segments) most = std::max<Count>(most, tokens_on_fullest(share, s.length()));
  return most;
}

const CacheShare kWhole{1, 1, {1, 1}, 1, ValueUp::before};

Count candidates(const Attention& a, const CacheShare& share, std::span<const Segment> segments) {
  if (a.compression)  // a request may have no row yet: the choice is of none
    return std::clamp<Count>(longest_rows(a, share, segments), 1, a.index->top_k);
  return std::min<Count>(a.index->top_k, rank_share(longest_on_rank(share, segments), a.index->block));
}

// Choices of one row: one, or of blocks one for each head.
Count choices(const IndexedBlock& b) { return b.block > 1 ? b.index_heads : 1; }

TopKShape choice_of(const IndexedBlock& block, const Attention& a, const CacheShare& share,
                    std::span<const Segment> segments) {
  TopKShape s;
  s.q_heads = block.q_heads;
  s.index_heads = block.index_heads;
  s.projections = block.projections;
  s.prompts = block.prompts;
  s.block = block.block;
  s.kept = a.index->top_k;
  s.rows = rows_of(segments);
  s.requests = requests_of(segments);
  s.longest = rank_share(longest_on_rank(share, segments), a.index->block);
  const long long length = first_with_more(share, a.index->chosen());
  s.choosing = over(segments, [&](const Segment& r) { return from_length(r, length).fresh; });
  s.scores = choices(block) * over(segments, [&](const Segment& r) {
               return scores_on_fullest(*a.index, share, from_length(r, length));
             });
  return s;
}

// Every rank's candidates, of which the best are those of the whole cache: a row has `each` of them.
TopKShape among(TopKShape s, Count choices_of_row, Count each) {
  s.candidates = true;
  s.longest = each;
  s.choosing = s.longest > s.kept ? s.rows : 0;
  s.scores = choices_of_row * s.choosing * s.longest;
  return s;
}

}  // namespace

std::vector<Segment> asked_segments(const Case& c, const Plan& p, Asked asked) {
  std::vector<Segment> out = asked == Asked::decode ? c.batch.decode : c.batch.prefill;
  for (Segment& s : out) {
    s.count *= p.batch;
    if (asked == Asked::decode) s = with_drafts(s, p);
  }
  return out;
}

Count requests_of(std::span<const Segment> segments) {
  return over(segments, [](const Segment&) { return Count{1}; });
}
Count rows_of(std::span<const Segment> segments) {
  return over(segments, [](const Segment& s) { return Count{s.fresh}; });
}

Count chosen_pairs(const SparseIndex& index, const Segment& s) {
  const Count growing = std::clamp<Count>(index.chosen() - s.cached, 0, s.fresh), rest = s.fresh - growing;
  const Count all = growing * s.cached + growing * (growing + 1) / 2;
  if (index.block == 1) return all + rest * index.top_k;
  // Whole blocks, and of a row's own as much as there is: what rows have of their own ones up to a position.
  const Count block = index.block;
  const auto own = [&](Count tokens) {
    const Count part = tokens % block;
    return tokens / block * (block * (block + 1) / 2) + part * (part + 1) / 2;
  };
  return all + rest * (index.top_k - 1) * block + own(s.length()) - own(s.cached + growing);
}

AttendSparseShape sparse_attend_shape(const Case& c, const Attention& a, const Plan& p,
                                      const CacheShare& share, std::span<const Segment> segments,
                                      Asked asked) {
  if (a.compression) return compressed_attend_shape(c, a, p, share, segments, asked);
  const LocalHeads h = decode_heads(a, p);
  AttendSparseShape s;
  s.q_heads = share.attended;
  s.qk_dim = h.qk;
  s.v_dim = h.v;
  s.row_bytes = count_of(rank_row_bytes(c, a, p));
  s.q_rows = rows_of(segments);
  s.requests = requests_of(segments);
  s.kept = a.index->chosen();
  s.index_heads = rank_index_heads(a, p);
  s.block = a.index->block;
  s.shared = a.index->shared;
  s.projections = c.precision.of(Module::attention).weights;
  s.prompts = asked == Asked::prefill;
  s.candidates = over(segments, [](const Segment& r) { return pairs_of(Reach{}, r); });
  s.pairs = over(segments, [&](const Segment& r) { return chosen_pairs(*a.index, r); });
  Count held = over(segments, [](const Segment& r) { return Count{r.length()}; });
  if (share.sharers.size > 1) {
    s.spread = true;
    // What is chosen lies on the ranks as the keys do: evenly.
    s.pairs = over(segments, [&](const Segment& r) {
      const double part =
          static_cast<double>(pairs_on_fullest(share, r)) / static_cast<double>(pairs_of(Reach{}, r));
      return static_cast<Count>(std::ceil(static_cast<double>(chosen_pairs(*a.index, r)) * part - 1e-6));
    });
    held = over(segments, [&](const Segment& r) { return Count{tokens_on_fullest(share, r.length())}; });
  }
  s.kv_rows = asked == Asked::decode ? s.pairs : std::min(s.pairs, held);
  return s;
}

void add_index_projections(const RowOps& ops, const Case& c, const Attention& a) {
  if (!scores(a)) return;
  SL_CHECK(has_latents(a), "an index over keys of heads is projected with these");
  const SparseIndex& index = *a.index;
  const Count from = a.q_lora_rank > 0 ? a.q_lora_rank : c.model.hidden;
  ops.gemm("index queries", Part::qkv, Module::index, from, Count{index.heads} * index.dim);
  ops.gemm("index keys and weights", Part::qkv, Module::index, c.model.hidden, index.dim + index.heads);
}

namespace {

double small_kernels(const Attention& a) {
  double count = kSmallKernels + (scores(a) ? kIndexKernels : 0);
  if (a.compression) count += kCompressedKernels;
  if (a.compression && a.compression->ratio > 0) count += kRowKernels * (a.index ? 2 : 1);
  return count;
}

// Widths of the block's projections.
void set_widths(const Case& c, const Attention& a, const Plan& p, ModuleRestShape& s) {
  s.hidden = c.model.hidden;
  s.q_rank = a.q_lora_rank;
  s.rope = a.rope_dim;
  s.v_dim = value_width(a);
  s.index_dim = a.index ? a.index->dim : 0;
  if (a.compression) {
    const OutputGroups out = output_groups(a, p);
    s.ratio = std::max(1, a.compression->ratio);
    s.rank = a.compression->o_rank;
    s.nope = a.head_dim - a.rope_dim;
    s.groups = out.groups;
    s.row_bytes = count_of(row_bytes(a, c.precision.kv));
    return;
  }
  s.rank = a.kv_lora_rank;
  s.nope = has_latents(a) ? a.nope_dim : key_width(a);
  s.row_bytes = count_of(rank_row_bytes(c, a, p));
}

}  // namespace

namespace {

// Of `rows` new tokens, those of prompts and those of requests that decode beside them.
ModuleRestShape module_rest_shape(const Case& c, const Attention& a, const Plan& p, Count rows,
                                  std::vector<Segment> all, Asked asked) {
  ModuleRestShape s;
  s.q_heads = cache_share(c, a, p).projected;
  s.index_heads = a.index ? rank_index_heads(a, p) : 0;
  s.shared = a.index && a.index->shared;
  s.projections = c.precision.of(Module::attention).weights;
  s.prompts = asked == Asked::prefill;
  s.rows = rows;
  s.requests = requests_of(all);
  if (asked == Asked::prefill)
    for (const Segment& d : asked_segments(c, p, Asked::decode)) all.push_back({0, d.fresh, d.count});
  s.candidates = over(all, [](const Segment& r) { return pairs_of(Reach{}, r); });
  s.block = a.index ? a.index->block : 1;
  set_widths(c, a, p, s);
  return s;
}

void add_rest(ScheduleBuilder& b, const Case& c, const Attention& a, const ModuleRestShape& s) {
  b.indexed("norms, rope and appends", Part::qkv, c.precision.kv, c.precision.math, s, small_kernels(a));
}

}  // namespace

void add_module_rest(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, Count rows,
                     std::span<const Segment> chunk) {
  const Asked asked = c.batch.prefills() ? Asked::prefill : Asked::decode;
  std::vector<Segment> all = asked_segments(c, p, asked);
  if (!chunk.empty()) all.assign(chunk.begin(), chunk.end());
  add_rest(b, c, a, module_rest_shape(c, a, p, rows, std::move(all), asked));
}

void add_module_rest(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p,
                     std::span<const RankQueries> ranks) {
  std::vector<Shape> shapes;
  for (const RankQueries& of : ranks) {
    ModuleRestShape s = module_rest_shape(c, a, p, rows_of(of.intervals), of.intervals, Asked::prefill);
    s.requests = of.requests;
    shapes.emplace_back(s);
  }
  add_rest(b, c, a, std::get<ModuleRestShape>(shapes.front()));
  b.vary(shapes);
}

RankQueries rank_queries(TokenView queries) {
  RankQueries out;
  std::vector<std::int32_t> of;
  for (const Interval& i : queries) {
    if (i.request == kPadding || i.size() == 0) continue;
    SL_CHECK(i.stride == 1, "new tokens of prompts whose keys an index chooses lie one behind the other");
    out.intervals.push_back({i.begin, i.size()});
    of.push_back(i.request);
  }
  std::sort(of.begin(), of.end());
  out.requests = std::unique(of.begin(), of.end()) - of.begin();
  return out;
}

Dtype IndexOps::math() const { return index_math(c_, a_); }

IndexLogitsShape IndexOps::scores(std::span<const Segment> segments) const {
  const Attention& a = a_;
  const CacheShare& share = share_;
  if (a.compression) return row_logits_shape(c_, a, share, segments, asked_);
  const IndexedBlock block = block_of(c_, a, p_, share.attended, asked_);
  IndexLogitsShape s;
  s.q_heads = block.q_heads;
  s.heads = block.index_heads;
  s.block = block.block;
  s.dim = a.index->dim;
  s.projections = block.projections;
  s.prompts = block.prompts;
  s.pairs = over(segments, [&](const Segment& r) { return pairs_on_fullest(share, r); });
  s.keys = over(segments, [&](const Segment& r) { return Count{tokens_on_fullest(share, r.length())}; });
  s.key_bytes = count_of(index_row_bytes(a, c_.precision.kv));
  s.q_rows = rows_of(segments);
  s.requests = requests_of(segments);
  s.longest = longest_on_rank(share, segments);
  return s;
}

TopKShape IndexOps::choice(const CacheShare& of, std::span<const Segment> segments) const {
  if (a_.compression) return row_choice_shape(c_, a_, of, segments, asked_);
  return choice_of(block_of(c_, a_, p_, share_.attended, asked_), a_, of, segments);
}

void add_choice(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, const CacheShare& share,
                std::span<const Segment> segments, Asked asked, CacheFlow& flow) {
  if (!a.index) return;  // all rows are attended to
  if (!scores(a)) return flow.bind_choice();
  const IndexOps of(c, a, p, share, asked);
  const Dtype math = of.math();
  const IndexLogitsShape s = of.scores(segments);
  b.indexed("score keys", Part::attention, c.precision.kv, math, s);
  flow.score();
  const IndexedBlock block = block_of(c, a, p, share.attended, asked);
  const Count each = candidates(a, share, segments), ranks = share.sharers.size;
  b.indexed("choose keys", Part::attention, c.precision.kv, math, of.choice(segments));
  flow.choose(static_cast<int>(each));
  if (ranks == 1) return;
  b.exchange("gather candidates", Part::exchange, OpKind::all_gather, share.sharers,
             Bytes(static_cast<double>(s.q_rows * each * choices(block)) * kCandidateBytes));
  flow.gather_candidates();
  CacheShare whole = kWhole;
  whole.attended = share.attended;
  b.indexed("choose among candidates", Part::attention, c.precision.kv, math,
            among(of.choice(whole, segments), choices(block), each * ranks));
  flow.choose_among(static_cast<int>(candidates(a, kWhole, segments)));
}

Bytes candidate_buffers(const Case& c, const Attention& a, const Plan& p, Asked asked) {
  const CacheShare share = cache_share(c, a, p);
  if (!scores(a) || share.sharers.size == 1) return Bytes(0);
  const std::vector<Segment> all = asked_segments(c, p, asked);
  const Count each = candidates(a, share, all) * (in_blocks(a) ? rank_index_heads(a, p) : 1);
  return Bytes(static_cast<double>(rows_of(all) * each * share.sharers.size) * kCandidateBytes);
}

Bytes choice_activations(const Case& c, const Attention& a, const Plan& p) {
  if (!scores(a)) return Bytes(0);
  const CacheShare share = cache_share(c, a, p);
  const auto heads = static_cast<double>(rank_index_heads(a, p));
  const double choices_of_row = in_blocks(a) ? heads : 1;
  double bytes = 0;
  for (const Asked asked : {Asked::decode, Asked::prefill}) {
    const std::vector<Segment> all = asked_segments(c, p, asked);
    const double pairs = 4 * choices_of_row * static_cast<double>(over(all, [&](const Segment& r) {
                           return a.compression ? row_pairs(a, row_share(a, share), 0, r)
                                                : scores_on_fullest(*a.index, share, r);
                         }));
    // Of context-parallel ranks each scores its own new tokens.
    bytes += asked == Asked::decode ? pairs : std::min(pairs / p.cp, kMostScores);
    // Queries of the index and the rows' choices.
    const double rows = asked == Asked::prefill ? prefill_rows(c, p) : static_cast<double>(rows_of(all));
    bytes += rows * (heads * a.index->dim * activation_size(c) + 4.0 * a.index->top_k * choices_of_row);
  }
  return Bytes(bytes);
}

}  // namespace shardline
