// What the ops of a schedule work on: one struct per kind of work, each with its fields named once. Counts
// are integers; means over routed tokens are doubles, and say so; traffic is Bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

#include "models/ir/count.hpp"
#include "models/ir/dtype.hpp"
#include "models/ir/fields.hpp"
#include "models/ir/index_shapes.hpp"

namespace shardline {

/// What the rows of a KV cache are. heads: keys and values of each KV head (MHA, GQA, MQA, and MLA expanded).
/// latent: one row that all heads share, keys whole and values its start (MLA, absorbed).
enum class CacheRows : std::uint8_t { heads, latent };
/// Where the keys and values of an attention come from: as projected, or expanded from MLA's latents.
enum class AttentionFamily : std::uint8_t { gqa, mla };
/// MLA's up-projections where they are absorbed, one matrix per head. absorb_query: W_UK, queries to the
/// width of latent rows. expand_values: W_UV, averaged latents to values.
enum class LatentProduct : std::uint8_t { absorb_query, expand_values };
/// How a new token changes a state. per_head, per_channel: the delta rule, which corrects it at the token's
/// key, after a decay by a number per head (gated DeltaNet) or one per channel of the key (Kimi Delta
/// Attention). added: Mamba-2, which decays it per head and adds to it.
enum class StateDecay : std::uint8_t { per_head, per_channel, added };
/// Whose kernels carry a message. library: a library's collectives alone (NCCL). engine: also an engine's
/// own, which handle tokens as rows.
enum class Carrier : std::uint8_t { library, engine };
std::string_view to_string(CacheRows rows);
std::string_view to_string(AttentionFamily family);
std::string_view to_string(LatentProduct product);
std::string_view to_string(StateDecay decay);
std::string_view to_string(Carrier carrier);

/// [rows, k] x [k, n], one matrix.
struct GemmShape {
  Count rows = 0, k = 0, n = 0;
  static constexpr void visit(auto& s, auto&& f) {
    f("rows", s.rows);
    f("k", s.k);
    f("n", s.n);
  }
};

/// [rows, k] x [k, n] for each of `matrices`, one per head. This op is one of `parts` of the kernel (chunks
/// of its rows): matrices are read once for all parts.
struct BatchedGemmShape {
  LatentProduct product = LatentProduct::absorb_query;
  Count rows = 0, k = 0, n = 0, matrices = 1, parts = 1;
  static constexpr void visit(auto& s, auto&& f) {
    f("product", s.product);
    f("rows", s.rows);
    f("k", s.k);
    f("n", s.n);
    f("matrices", s.matrices);
    f("parts", s.parts);
  }
};

/// One product of a rank's experts: `pairs` (token, expert) rows of [k] x [k, n] that visit `active` of the
/// `held` experts, both means over the routing. `tokens` of the group before they are routed; the matrices of
/// an expert are of hidden x inner. `passed`: pairs of the tokens that the rank has, other ranks' included,
/// which some kernels pass over before they pick the rank's own out.
/// Engines choose the kernel by `ranks`, that the layer's experts are spread over, by whether a dispatch
/// brought the tokens, and by whether the step has prompts.
struct GroupedGemmShape {
  double pairs = 0, active = 0;
  Count k = 0, n = 0;
  Count held = 0, tokens = 0, hidden = 0, inner = 0;
  bool gated = false;  // experts have gate, up and down; else up and down
  double passed = 0;
  Count ranks = 1;  // that the experts are spread over
  bool dispatched = false, prompts = false;
  static constexpr void visit(auto& s, auto&& f) {
    f("pairs", s.pairs);
    f("active", s.active);
    f("k", s.k);
    f("n", s.n);
    f("held", s.held);
    f("tokens", s.tokens);
    f("hidden", s.hidden);
    f("inner", s.inner);
    f("gated", s.gated);
    f("passed", s.passed);
    f("ranks", s.ranks);
    f("dispatched", s.dispatched);
    f("prompts", s.prompts);
  }
};

/// Query rows of new tokens against keys of cached and new ones, all requests together; padding not counted.
struct AttendPrefillShape {
  AttentionFamily family = AttentionFamily::gqa;
  CacheRows cache = CacheRows::heads;
  Count q_heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
  Count pairs = 0;    // (query, key) pairs of one head that the mask leaves
  Count kv_rows = 0;  // keys, read once by each KV head
  Count q_rows = 0;
  Count tiles = 0;     // query tiles of one head [T2]
  bool whole = false;  // the pairs of whole sequences of q_rows: no cached prefix, no other rank's block
  // A matrix product of all queries and all keys of a request: `pairs` are those, not the mask's, and scores
  // lie in memory, where an op of their own rewrites them.
  bool all_pairs = false;
  Count window = 0;     // last tokens that a query sees at most; 0: no window slides along
  Count intervals = 1;  // of queries, that a kernel tiles each by itself [T2]
  static constexpr void visit(auto& s, auto&& f) {
    f("family", s.family);
    f("cache", s.cache);
    f("q_heads", s.q_heads);
    f("kv_heads", s.kv_heads);
    f("qk_dim", s.qk_dim);
    f("v_dim", s.v_dim);
    f("pairs", s.pairs);
    f("kv_rows", s.kv_rows);
    f("q_rows", s.q_rows);
    f("tiles", s.tiles);
    f("whole", s.whole);
    f("all_pairs", s.all_pairs);
    f("window", s.window);
    f("intervals", s.intervals);
  }
};

/// One query row of each request against its cache, or a few where drafts are verified.
struct AttendDecodeShape {
  CacheRows cache = CacheRows::heads;
  Count q_heads = 0, kv_heads = 0, qk_dim = 0, v_dim = 0;
  Count pairs = 0, kv_rows = 0, q_rows = 0;  // as of a prefill
  Count longest = 0;                         // keys of the request of the kernel with most of them
  Count kernel_rows = 0, kernel_parts = 1;
  Count skipped = 0;     // rows of the caches before the windows: not read, but a kernel may look for them
  Count fresh = 1;       // rows of each request, which share one read of its cache: 1, with k drafts 1 + k
  bool partial = false;  // other ranks have other tokens: the kernel returns log-sum-exps beside its outputs
  static constexpr void visit(auto& s, auto&& f) {
    f("cache", s.cache);
    f("q_heads", s.q_heads);
    f("kv_heads", s.kv_heads);
    f("qk_dim", s.qk_dim);
    f("v_dim", s.v_dim);
    f("pairs", s.pairs);
    f("kv_rows", s.kv_rows);
    f("q_rows", s.q_rows);
    f("longest", s.longest);
    f("kernel_rows", s.kernel_rows);
    f("kernel_parts", s.kernel_parts);
    f("skipped", s.skipped);
    f("fresh", s.fresh);
    f("partial", s.partial);
  }
};

/// Linear attention by the delta rule, the heads of one rank: the short convolution over queries, keys and
/// values, or the state, value_heads matrices of key_dim x value_dim per request, which every new token
/// decays, corrects at its key and reads. Of Mamba-2: groups are key heads, their output and input matrices C
/// and B queries and keys as wide as the state, inputs x the values; nothing is corrected.
struct RecurrentShape {
  StateDecay decay = StateDecay::per_head;
  Count key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  Count taps = 0;          // of the convolution: a request keeps its last taps - 1 rows
  Count number_bytes = 0;  // of a number of the state
  Count rows = 0;          // new tokens of all requests
  Count requests = 0;      // each has a state that is read once
  Count longest = 0;       // new tokens of the request with most
  bool prompts = false;    // in chunks of tokens (a scan), not token by token
  // Of a request, states that are written: that behind its last new token; where drafts are verified, the one
  // behind each of its new tokens, as any of them may be the last that is accepted [P29].
  Count states = 1;
  Count channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  Count state() const { return value_heads * key_dim * value_dim; }  // numbers of one request
  static constexpr void visit(auto& s, auto&& f) {
    f("decay", s.decay);
    f("key_heads", s.key_heads);
    f("value_heads", s.value_heads);
    f("key_dim", s.key_dim);
    f("value_dim", s.value_dim);
    f("taps", s.taps);
    f("number_bytes", s.number_bytes);
    f("rows", s.rows);
    f("requests", s.requests);
    f("longest", s.longest);
    f("prompts", s.prompts);
    f("states", s.states);
  }
};

/// Manifold-constrained hyper-connections (DeepSeek-V4): `streams` residual streams of `hidden` numbers per
/// row. before: mixed to what a sublayer reads, by weights that a product of all of them with a matrix gives.
/// Else its output joins all of them, which are mixed among themselves.
struct MixShape {
  Count rows = 0, hidden = 0, streams = 1;
  bool before = false;
  static constexpr void visit(auto& s, auto&& f) {
    f("rows", s.rows);
    f("hidden", s.hidden);
    f("streams", s.streams);
    f("before", s.before);
  }
};

/// `rows` x `width` elements; `bytes` is what the kernel reads and writes in HBM (0: not charged).
struct ElementwiseShape {
  Count rows = 0, width = 0;
  Bytes bytes;
  static constexpr void visit(auto& s, auto&& f) {
    f("rows", s.rows);
    f("width", s.width);
    f("bytes", s.bytes);
  }
};

/// For all_to_all and send_recv `bytes` leave this rank. For all_reduce and reduce_scatter they are the whole
/// buffer, for all_gather this rank's contribution; the algorithm decides what then crosses links.
struct ExchangeShape {
  Bytes bytes;
  Carrier carrier = Carrier::library;
  double rows = 0;  // engine: tokens of this rank, a mean; a library sees bytes only
  static constexpr void visit(auto& s, auto&& f) {
    f("bytes", s.bytes);
    f("carrier", s.carrier);
    f("rows", s.rows);
  }
};

/// Tokens on their way to the ranks of their experts (dispatch), or their results on the way back (combine):
/// `bytes` leave this rank, or reach the busiest one if those are more.
struct RoutedShape {
  Bytes bytes;
  double rows = 0;  // tokens of this rank, a mean; as many as send so much under even uniform routing
  Count width = 0, topk = 0, experts = 0;
  Dtype dispatched = Dtype::bf16;  // type of the rows on their way to the experts
  bool uneven = false;             // `rows` are not this rank's: routing is uneven, and they stand for it
  bool prompts = false;            // of a step with prompts, whose tokens engines exchange by other kernels
  static constexpr void visit(auto& s, auto&& f) {
    f("bytes", s.bytes);
    f("rows", s.rows);
    f("width", s.width);
    f("topk", s.topk);
    f("experts", s.experts);
    f("dispatched", s.dispatched);
    f("uneven", s.uneven);
    f("prompts", s.prompts);
  }
};

/// Order as in shape_of(OpKind).
using Shape = std::variant<GemmShape, BatchedGemmShape, GroupedGemmShape, AttendPrefillShape,
                           AttendDecodeShape, ElementwiseShape, ExchangeShape, RoutedShape, IndexLogitsShape,
                           TopKShape, AttendSparseShape, ModuleRestShape, RecurrentShape, MixShape>;

template <class... S>
constexpr bool all_complete(const std::variant<S...>*) {
  return (complete<S>() && ...);
}
static_assert(all_complete(static_cast<const Shape*>(nullptr)), "visit() names every field of a shape once");

/// Words of the largest shape: what a memo key must have room for.
template <class... S>
constexpr std::size_t most_words(const std::variant<S...>*) {
  std::size_t most = 0;
  ((most = kWordsOf<S> > most ? kWordsOf<S> : most), ...);
  return most;
}
inline constexpr std::size_t kMostWords = most_words(static_cast<const Shape*>(nullptr));

bool equal(const Shape& a, const Shape& b);

/// Matrices of hidden x inner that one expert has.
constexpr Count matrices_of_expert(const GroupedGemmShape& s) { return s.gated ? 3 : 2; }

/// Tokens that a scan of a prompt multiplies at once: of flash-linear-attention's kernels, which vLLM and
/// SGLang run (fla/ops/chunk_delta_h.py, chunk_size 64).
inline constexpr Count kScanChunk = 64;
/// The same of Mamba-2: chunk_size of Nemotron-H's and Nemotron 3's config.json.
inline constexpr Count kMambaChunk = 128;

/// Elements read per row of keys: 2 * KV heads * width, or a latent row.
constexpr Count kv_elements(const AttendPrefillShape& s) {
  return s.cache == CacheRows::latent ? s.qk_dim : s.kv_heads * (s.qk_dim + s.v_dim);
}
constexpr Count kv_elements(const AttendDecodeShape& s) {
  return s.cache == CacheRows::latent ? s.qk_dim : s.kv_heads * (s.qk_dim + s.v_dim);
}

}  // namespace shardline
