// What the ops of sparse attention work on, over keys that an index chose (DSA, MSA) or compressed rows (CSA,
// HCA): parts of one measured block.
#pragma once

#include "models/ir/count.hpp"
#include "models/ir/dtype.hpp"
#include "models/ir/fields.hpp"

namespace shardline {

/// What prices of sparse attention (DSA, MSA, CSA, HCA) follow from beside the counts of an op: which
/// measured block it is a part of. hardware/cost/forms/README.md [H71]. `ratio`: tokens that a row of
/// compressed attention stands for; 1: a layer of its kind that has a window alone; 0: rows are tokens.
/// `hidden`: width of the model, which tells blocks of compressed attention apart; 0 of others.
struct IndexedBlock {
  Count q_heads = 0;                // that attend on this rank
  Count index_heads = 0;            // of the index on this rank: DSA's is whole on each
  bool shared = false;              // the choice is that of an earlier layer (IndexShare)
  Dtype projections = Dtype::bf16;  // of the block's weights
  bool prompts = false;             // rows are new tokens of prompts, not those of decoding requests
  Count block = 1;                  // tokens that are chosen together (MSA); 1: each by itself (DSA)
  Count ratio = 0, hidden = 0;
  bool operator==(const IndexedBlock&) const = default;
};

/// Index queries of `heads` x `dim` against one key per cached row, of a rank: weighed over the heads; of
/// blocks the highest of each, per head. Rows of CSA stand for several tokens; all counts are of rows.
struct IndexLogitsShape {
  Count q_heads = 0, heads = 0, dim = 0;
  Count pairs = 0;      // (query, index key) pairs of one head, causal
  Count keys = 0;       // index keys of all requests, read once
  Count key_bytes = 0;  // of one, with its scale
  Count q_rows = 0, requests = 0;
  Count longest = 0;  // keys of the request with most
  Dtype projections = Dtype::bf16;
  bool prompts = false;
  Count block = 1;
  Count ratio = 0, hidden = 0;
  IndexedBlock measured() const {
    return {q_heads, heads, false, projections, prompts, block, ratio, hidden};
  }
  static constexpr void visit(auto& s, auto&& f) {
    f("q_heads", s.q_heads);
    f("heads", s.heads);
    f("dim", s.dim);
    f("pairs", s.pairs);
    f("keys", s.keys);
    f("key_bytes", s.key_bytes);
    f("q_rows", s.q_rows);
    f("requests", s.requests);
    f("longest", s.longest);
    f("projections", s.projections);
    f("prompts", s.prompts);
    f("block", s.block);
    f("ratio", s.ratio);
    f("hidden", s.hidden);
  }
};

/// The `kept` highest of the scores of each row, of blocks for each head of the index. Rows that have no more
/// than these have no choice.
struct TopKShape {
  Count q_heads = 0, index_heads = 0;
  Count kept = 0;
  Count rows = 0, choosing = 0;  // all, and those with more scores than are kept
  Count scores = 0;              // of those that choose, all together, and of blocks those of all heads
  Count requests = 0;
  Count longest = 0;        // scores of the row with most, one head
  bool candidates = false;  // scores are those that several ranks have kept, brought together
  Dtype projections = Dtype::bf16;
  bool prompts = false;
  Count block = 1;
  Count ratio = 0, hidden = 0;
  IndexedBlock measured() const {
    return {q_heads, index_heads, false, projections, prompts, block, ratio, hidden};
  }
  static constexpr void visit(auto& s, auto&& f) {
    f("q_heads", s.q_heads);
    f("index_heads", s.index_heads);
    f("kept", s.kept);
    f("rows", s.rows);
    f("choosing", s.choosing);
    f("scores", s.scores);
    f("requests", s.requests);
    f("longest", s.longest);
    f("candidates", s.candidates);
    f("projections", s.projections);
    f("prompts", s.prompts);
    f("block", s.block);
    f("ratio", s.ratio);
    f("hidden", s.hidden);
  }
};

/// Attention of query rows to rows that were chosen for each of them: latents (MLA, absorbed), or keys and
/// values of the rank's KV heads, each with a choice of its own. Of compressed attention those of a window of
/// tokens and, where `ratio` is above 1, compressed ones: all, or what an index chose.
struct AttendSparseShape {
  Count q_heads = 0, qk_dim = 0, v_dim = 0;
  Count pairs = 0;      // (query, chosen row) pairs of one head
  Count kv_rows = 0;    // rows that are read: those pairs, or where rows are fewer, each once
  Count row_bytes = 0;  // of one cached row, with its scales
  Count q_rows = 0, requests = 0;
  Count kept = 0;        // chosen rows that a kernel goes through, whether or not they are there
  Count candidates = 0;  // (query, key) pairs that the choice was made of, whole caches
  // Rows lie on several ranks: pairs are the even share of the rank with most rows, a mean.
  bool spread = false;
  Count index_heads = 0;
  bool shared = false;
  Dtype projections = Dtype::bf16;
  bool prompts = false;
  Count block = 1;
  Count ratio = 0, hidden = 0;
  IndexedBlock measured() const {
    return {q_heads, index_heads, shared, projections, prompts, block, ratio, hidden};
  }
  static constexpr void visit(auto& s, auto&& f) {
    f("q_heads", s.q_heads);
    f("qk_dim", s.qk_dim);
    f("v_dim", s.v_dim);
    f("pairs", s.pairs);
    f("kv_rows", s.kv_rows);
    f("row_bytes", s.row_bytes);
    f("q_rows", s.q_rows);
    f("requests", s.requests);
    f("kept", s.kept);
    f("candidates", s.candidates);
    f("spread", s.spread);
    f("index_heads", s.index_heads);
    f("shared", s.shared);
    f("projections", s.projections);
    f("prompts", s.prompts);
    f("block", s.block);
    f("ratio", s.ratio);
    f("hidden", s.hidden);
  }
};

/// What a measured block of sparse attention has beside products, scores, choice and attention: norms,
/// rotation, quantisation, cache writes, of compressed attention the making of rows; and what its products
/// take otherwise than by their own fits. Widths are those of its projections; `rank` is that of latents, or
/// of each of the rank's `groups` of outputs.
struct ModuleRestShape {
  Count q_heads = 0, index_heads = 0;
  Count rows = 0, requests = 0;
  Count candidates = 0;  // (query, key) pairs, whole caches
  Count hidden = 0, q_rank = 0, rank = 0, rope = 0, nope = 0, v_dim = 0, index_dim = 0;
  Count row_bytes = 0;  // of one cached row
  bool shared = false;
  Dtype projections = Dtype::bf16;
  bool prompts = false;
  Count block = 1;
  Count ratio = 0, groups = 0;
  IndexedBlock measured() const {
    return {q_heads, index_heads, shared, projections, prompts, block, ratio, ratio > 0 ? hidden : 0};
  }
  static constexpr void visit(auto& s, auto&& f) {
    f("q_heads", s.q_heads);
    f("index_heads", s.index_heads);
    f("rows", s.rows);
    f("requests", s.requests);
    f("candidates", s.candidates);
    f("hidden", s.hidden);
    f("q_rank", s.q_rank);
    f("rank", s.rank);
    f("rope", s.rope);
    f("nope", s.nope);
    f("v_dim", s.v_dim);
    f("index_dim", s.index_dim);
    f("row_bytes", s.row_bytes);
    f("shared", s.shared);
    f("projections", s.projections);
    f("prompts", s.prompts);
    f("block", s.block);
    f("ratio", s.ratio);
    f("groups", s.groups);
  }
};

}  // namespace shardline
