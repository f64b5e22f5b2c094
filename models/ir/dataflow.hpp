// What the ops of a schedule read and write, rank by rank: enough to run its attention path on real tensors.
// Built beside the ops when Schedule::flow is set; timing does not need it. Executors know no strategy: all
// they follow stands here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/ir/reach.hpp"
#include "models/ir/shapes.hpp"
#include "models/ir/tokens.hpp"
#include "sim/base/index.hpp"

namespace shardline {

using SlotId = Index<struct SlotTag>;
using TokensId = Index<struct TokensTag>;  // of Dataflow::token_list

/// A matrix of numbers that every rank holds one of; sizes may differ between ranks (see Extent).
struct Slot {
  const char* name = "";
  double element_bytes = 2;  // what one element costs in a message
};

/// Size of a slot on one rank.
struct Extent {
  SlotId slot;
  int rank = 0;
  std::int64_t rows = 0, columns = 0;
};

/// The whole (unsharded) matrices that inputs are cut from and outputs belong to. Rows of the first seven are
/// tokens. Columns: query [head][qk_dim]; absorbed_query, MLA's [head][kv_lora, rotary part] behind W_UK,
/// scaled so that 1 / sqrt(width) makes the scores of `query`; kv [kv head][qk_dim keys, then v_dim values];
/// latent [kv_lora, rotary key], which MLA caches and keys and values are expanded from; attention_output
/// [head][v_dim]. qkv_weight is D x [query columns, kv columns]; up_weight D x [gate,
/// up]; value_up_weight [head][kv_lora] x width of a value; kv_up_weight kv_lora x [head][qk_dim without the
/// rotary part, then v_dim]. Retaining heads (arXiv 2502.12085): retaining_up_weight [query columns, kv
/// columns] x width, retaining_down_weight width x KV heads. sinks 1 x heads. Rows of the index's four are
/// tokens, too, and so are those of linear attention's but conv_weight. Weights are one layer's.
enum class Whole : std::uint8_t {
  hidden,
  query,
  absorbed_query,
  kv,
  latent,
  attention_output,
  layer_output,
  qkv_weight,
  out_weight,
  up_weight,
  down_weight,
  value_up_weight,
  kv_up_weight,
  retaining_up_weight,
  retaining_down_weight,
  sinks,
  conv_weight,   // of linear attention, taps x channels: the last row is that of the token itself
  skip,          // Mamba-2: D, 1 x value heads
  index_query,   // of the whole index, [head][dim]; of blocks one head for each KV head
  index_weight,  // one number per index head
  index_key,     // one per token
  chosen,        // positions of the keys that a token sees, -1 where they are fewer
  channels,  // linear attention: [query heads, key heads][key_dim], [value heads][value_dim], as projected
  decay,     // logarithms of decays, one per value head, or [value head][key_dim]
  beta,      // how far a token corrects the state at its key, one per value head
  gate,      // [value head][value_dim]
  state,     // behind each token: [value head][key_dim][value_dim]
  // Compressed attention. As projected of each token: the parts of rows that it becomes part of, and its
  // gates in them; what is added to the gates of a row's tokens, [ratio, columns]; rows, of which row j of a
  // request stands where the request's token j does. The same of an index's keys, whose rows are index_key.
  row_value,
  row_gate,
  row_bias,
  row,
  index_row_value,
  index_row_gate,
  index_row_bias,
  count
};

/// A slot of a rank holds these rows x columns of a whole matrix, all of it. Row lists of weights use request
/// 0. Every slot of a rank has one extent.
struct Binding {
  Binding() = default;
  /// All of it: one that leaves its kind out would read the first kind's.
  Binding(SlotId of, int by, Whole part, TokensId row_list, TokensId column_list, int attention)
      : slot(of), rank(by), whole(part), rows(row_list), columns(column_list), kind(attention) {}
  SlotId slot;
  int rank = 0;
  Whole whole = Whole::hidden;
  TokensId rows, columns;
  int kind = 0;  // of attention: each kind of layer has whole matrices of its own
};

/// Rows [row, row + rows) x columns [column, column + columns) of a slot.
struct Region {
  SlotId slot;
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
  bool operator==(const Region&) const = default;
};

/// One message, or a local copy where from == to. Both regions have the same shape.
struct Move {
  int from = 0, to = 0;
  Region source, target;
  // Reductions: add to the target, which holds the rank's own part. All sources are read before any target
  // is written.
  bool add = false;
};

/// What a rank computes. Regions in order:
enum class Function : std::uint8_t {
  // query, kv -> output, lse (one column per head; natural logarithm). Causal by position, within `reach`.
  // A fifth region [1, heads] holds sinks: one more score per head, without a value. Where keys were chosen
  // (Action::chosen), one region more holds the positions that each query sees, those of each KV head
  // beside one another, in blocks of Action::block tokens.
  attend,
  // (output, lse) pairs -> output, lse: arXiv 2411.01783, Equation 4. lse of no pairs: -infinity. An output
  // region without columns stands for zeros: its part is weighed, and what it holds is added by others.
  merge,
  gemm,           // input, weight -> output = input * weight
  gemm_per_head,  // input [rows, heads * k], weight [heads * k, n] -> output [rows, heads * n]
  // latents [rows, kv_lora + rope], weight [kv_lora, heads * (qk_dim - rope + v_dim)] -> keys and values
  // [rows, heads * (qk_dim + v_dim)]: the rotary key ends the key of every head
  expand,
  swiglu,    // [gate, up] -> silu(gate) * up
  rms_norm,  // input -> input / sqrt(mean(input^2) + 1e-6)
  add,       // a, b -> a + b
  silu,      // x -> x / (1 + exp(-x))
  // scores [rows, kv_heads], kv [rows, kv_heads * (qk_dim + v_dim)] -> the rows of each KV head with the
  // highest scores, as many as the output has, in their order. Of equal scores the first are kept; a NaN is
  // the lowest.
  compress,
  // index queries [rows, heads * qk_dim], weights [rows, heads], index keys [keys, qk_dim] -> scores [rows,
  // keys]: sum over the heads of weight * max(0, query * key); -infinity where the key's token is not before
  // the query's in its request, or itself (DeepSeek-V3.2's lightning indexer).
  index_scores,
  // scores [rows, keys] -> [rows, k] highest ones and the positions of their keys: of equal scores the one
  // of lower position comes first; -infinity and -1 where there are no more.
  choose,
  // The same of blocks, one head: index queries [rows, qk_dim], index keys [keys, qk_dim] -> [rows, blocks]:
  // the highest product with a key of each block of Action::block tokens that keys lie in, one after the
  // other; +infinity for the first Action::init_blocks of a request and the last Action::local_blocks up to
  // the query's own, -infinity for those behind it (MiniMax-M3). No block lies in two intervals of the keys.
  block_scores,
  // pairs of (scores, positions), k columns each -> the k highest of all, by the same rule.
  choose_among,
  // One request: rows made before [m, width], values and gates of tokens [n, parts * width], what is added to
  // gates [ratio, parts * width] -> rows [Action::keys, width]: those made before, then the others, each of
  // the
  // Action::ratio tokens that it stands for, with two parts of as many before them, too, whose first part
  // they
  // give: values weighed by a softmax of gates over the tokens, channel by channel, over their root mean
  // square
  // (DeepSeek-V4's compressors). Action::queries lists the tokens.
  make_rows,
  // rows before [up to taps - 1, channels], rows [n, channels], weight [taps, channels] -> [n, channels]:
  // silu
  // of the sum over taps; what is before a request's first token is 0. With a fifth region the last of the
  // rows before and the new ones, as many as it holds, are kept there: what tokens behind will reach back to.
  convolve,
  // The value heads of one key head, one request: queries, keys [n, qk_dim], values [n, heads * v_dim],
  // decays
  // [n, heads], or [n, heads * qk_dim], betas [n, heads], state before [1, heads * qk_dim * v_dim], or no
  // row:
  // zeros -> state after, or, token by token, the state behind each [n, heads * qk_dim * v_dim], outputs
  // [n, heads * v_dim]. Queries and keys are divided by their lengths, queries
  // by sqrt(qk_dim), too; each token: S = decay S, S += beta k (v - S^T k)^T, output S^T q. In chunks of
  // Action::chunk tokens (1: token by token).
  delta_rule,
  // Mamba-2, the heads of one group; as delta_rule, but a ninth region between the state before and the state
  // after holds the heads' skip [1, heads]. Queries C and keys B are as they come; each token: S = decay S +
  // beta k v^T, output S^T q + skip v (arXiv 2405.21060, section 6).
  state_space,
  // With Action::gate_first outputs times silu(gate), then each v_dim numbers over their root mean square;
  // else
  // outputs, gates -> each head over its root mean square, times silu(gate), or the gate's logistic function.
  gated_norm,
  // outputs, gates [n, channels] -> outputs times silu(gate), the sum of squares of each row of them [n, 1].
  gated_squares,
  // rows [n, channels], sums of squares [n, 1] of rows of v_dim numbers, of which these are a part -> the
  // rows
  // over the root mean square of all.
  norm_by_squares,
};

struct Action {
  int rank = 0;
  Function function = Function::attend;
  std::uint32_t first_region = 0, regions = 0;
  TokensId queries, keys;     // attend, index_scores, choose: the rows' positions
  int heads = 1;              // attend, merge, gemm_per_head, expand: query heads of this rank
  int qk_dim = 0, v_dim = 0;  // attend, compress, expand, merge (v_dim)
  int kv_heads = 1;           // attend, compress: of this rank; latents have one row for all query heads
  CacheRows cache = CacheRows::heads;  // attend: what a row of keys is
  bool chosen = false;  // attend: the last region holds what each query sees [rows, KV heads * k]:
  int block = 1;        // the numbers of blocks of so many tokens. block_scores: tokens of a block
  int init_blocks = 0, local_blocks = 0;      // block_scores
  int chunk = 1;                              // delta_rule
  bool logistic = false, gate_first = false;  // gated_norm
  bool rectangle = false;  // attend: all pairs of a request are multiplied, and masked afterwards
  Reach reach = {};        // attend: which of the earlier keys a query sees
  // attend, index_scores: above 1, a key is a row of so many tokens, which a query sees that is not before
  // the last of them. make_rows: tokens of a row.
  int ratio = 1;
};

/// Keys before this number are not behind a query at `position`: tokens up to its own, or whole rows of them.
constexpr std::int64_t keys_upto(const Action& a, std::int64_t position) { return (position + 1) / a.ratio; }

/// Columns of a row of keys and values that the attend `a` reads.
constexpr std::int64_t kv_columns(const Action& a) {
  return a.cache == CacheRows::latent ? a.qk_dim
                                      : static_cast<std::int64_t>(a.kv_heads) * (a.qk_dim + a.v_dim);
}

/// Parts of one op: computing ops have actions, communication has moves (all of its group, all ranks); no op
/// has both.
struct OpFlow {
  std::uint32_t first_action = 0, actions = 0;
  std::uint32_t first_move = 0, moves = 0;
};

/// What a layer's index chose on one rank, for layers that take an earlier one's choice: of each of these
/// queries, one row each, the positions of `columns` keys.
struct KeptChoice {
  SlotId slot;
  int rank = 0;
  TokensId queries;
  std::int64_t columns = 0;
};

class Dataflow {
 public:
  std::vector<Slot> slots;
  std::vector<Extent> extents;
  std::vector<Binding> inputs, outputs;
  std::vector<Action> actions;
  std::vector<Region> regions;
  std::vector<Move> moves;
  std::vector<KeptChoice> choices;
  std::vector<OpFlow> ops;  // parallel to Schedule::ops; empty parts for ops that are timed only
  std::vector<Interval> intervals;
  std::vector<std::uint32_t> token_begin{0};  // list i is intervals[token_begin[i], token_begin[i + 1])

  void clear();
  SlotId slot(const char* name, double element_bytes);
  /// Declares the size of a slot on a rank.
  void size(SlotId slot, int rank, std::int64_t rows, std::int64_t columns);
  TokensId tokens(TokenView list);
  /// Columns [begin, end).
  TokensId range(std::int64_t begin, std::int64_t end);
  TokenView token_list(TokensId id) const {
    return {intervals.data() + token_begin[id], token_begin[id + 1] - token_begin[id]};
  }
  std::span<const Region> regions_of(const Action& a) const {
    return {regions.data() + a.first_region, a.regions};
  }

  /// The choice that was kept last for these queries of the rank; there is one.
  const KeptChoice& choice_of(int rank, TokenView queries) const;

  /// Appends to the parts of op `op`. Parts of one op must be added without those of another between them.
  void act(std::uint32_t op, Action action, std::span<const Region> action_regions);
  void move(std::uint32_t op, const Move& move);

  /// Bytes that leave `rank` for others in op `op`; copies inside a rank are free.
  double bytes_out(std::uint32_t op, int rank) const;
};

}  // namespace shardline
