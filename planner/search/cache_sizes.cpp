#include "planner/search/cache_sizes.hpp"

#include <algorithm>
#include <cmath>

#include "models/model/cache.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/layers/share.hpp"
#include "planner/search/compressed_pool.hpp"

namespace shardline {

namespace {

const Attention& attention_of(const Case& c, const KindLayers& l) {
  return c.model.attentions[static_cast<std::size_t>(l.attention)];
}

// Servers of a pair that answer alone have no prefix cache under SGLang (0.5.14,
// arg_groups/pd_disaggregation_hook.py:55).
bool only_answers(const Case& c) { return c.disaggregated && !c.batch.prefills(); }

// Further places of such a server for requests whose caches are on their way to it: two for each of its own,
// where these are at most 32, and none beyond (arg_groups/pd_disaggregation_hook.py:62-70). Here those of 32
// stay, so that memory rises with requests.
long long arriving(long long requests) {
  constexpr long long kFew = 32;
  return 2 * std::min(requests, kFew);
}

double rows_of(const Case& c, const Attention& a, const Plan& p) {
  return static_cast<double>(p.in_flight) * cached_rows(c, a, p);
}

double whole_rows(const Case& c, const Attention& a, const Plan& p) {
  Attention all = a;
  all.reach = {};
  return rows_of(c, all, p);
}

long long group_budget(const Case& c, const Plan& p) { return prompt_budget(*c.engine, c.system.device, p); }

// Each layer with a cache.
bool all_compressed(const Model& m) {
  return std::all_of(m.attentions.begin(), m.attentions.end(),
                     [](const Attention& a) { return a.none() || a.compression; });
}

// Of a request that decodes at `length` tokens, what stays in a layer beyond what its next query sees. The
// prompt's last pieces, as steps have cut it, are nodes of the prefix cache, which holds them whole until
// they are as long as a window (SGLang 0.5.14, mem_cache/swa_radix_cache.py:670, inc_lock_ref;
// SGLANG_OPT_SWA_SPLIT_LEAF_ON_INSERT is off, environ.py:801): at most one of a whole step, and a shorter
// one.
long long kept_beyond(const Case& c, const Attention& a, const Plan& p, long long length) {
  const WindowCaches& w = c.engine->pools.windows;
  const long long seen = kept_tokens(a.reach, length), late = a.reach.tokens + w.late;
  long long kept = std::min(length, seen + w.late);
  if (w.piece) {
    const long long prompt = c.served.input > 0 ? std::min(c.served.input, length) : length;
    const long long pieces = std::min<long long>(prompt, group_budget(c, p) + a.reach.tokens - 1);
    kept = std::max(kept, pieces + std::min(length - prompt, late));
  }
  return kept - seen;
}

// Rows in a layer with a window or chunks, of all microbatches: what queries see and what is dropped late, of
// all requests, and what steps with prompts compute meanwhile; never more than all tokens.
struct WindowRows {
  double requests = 0, steps = 0, most = 0;
  double sum() const { return std::min(requests + steps, most); }
};

WindowRows window_rows(const Case& c, const Attention& a, const Plan& p) {
  const CachePools& pools = c.engine->pools;
  const WindowCaches& w = pools.windows;
  const double all = whole_rows(c, a, p);
  if (pools.keeps_windows_whole(c.model.architecture)) return {all, 0, all};
  const long long requests = sequences(c, p);
  if (w.split && only_answers(c)) {  // model_executor/pool_configurator.py, SWAChunkCapPoolConfigurator
    const long long each = a.reach.tokens + w.late;
    const auto rows =
        static_cast<double>(each * requests + (a.reach.tokens + kPromptPage) * arriving(requests));
    return {rows, 0, rows};
  }
  WindowRows rows{rows_of(c, a, p), 0, all};
  for (const Segment& s : c.batch.decode)
    rows.requests += static_cast<double>(kept_beyond(c, a, p, s.length()) * s.count * p.batch * p.in_flight);
  rows.steps = static_cast<double>(tokens_under_way(c, p));
  return rows;
}

// Tokens of both pools of an engine that has two.
struct SplitTokens {
  double others = 0, windows = 0;
  int thousandths = 0;  // of the first that the second is; 0: it is what it is
};

SplitTokens split_tokens(const Case& c, const Plan& p) {
  SplitTokens t;
  for (const Attention& a : c.model.attentions) {
    if (a.none() || a.recurrent()) continue;
    if (a.reach.local())
      t.windows = std::max(t.windows, window_rows(c, a, p).sum());
    else
      t.others = std::max(t.others, rows_of(c, a, p));
  }
  if (t.others <= 0 || t.windows <= 0 || only_answers(c)) return t;
  t.others = std::max(t.others, t.windows);  // the part is 1 at most
  t.thousandths = std::min(1000, static_cast<int>(std::ceil(1000 * t.windows / t.others)));
  t.windows = std::min(t.windows + t.others / 1000, t.others);  // what rounding may add: grows with requests
  return t;
}

// Layers with compressors have pools of kinds of their own, which are not told apart here: each layer counts
// what it holds.
bool splits(const Case& c) {
  return c.engine && !has_compression(c.model) && c.engine->pools.windows.split &&
         !c.engine->pools.keeps_windows_whole(c.model.architecture) && has_local_attention(c.model);
}

// Requests that have states at once.
double holders(const Case& c, const Plan& p) {
  const long long requests = sequences(c, p);
  if (!c.engine || !c.engine->pools.states.told) return static_cast<double>(requests);
  if (only_answers(c)) return static_cast<double>(requests + arriving(requests));
  return static_cast<double>(requests * (c.disaggregated ? kBatchesUnderWay : 1));
}

// Beside the pool, for each request: the states behind all tokens that are verified, of which the accepted
// one is copied (SGLang 0.5.14: model_executor/model_runner_kv_cache_mixin.py, handle_max_mamba_cache, and
// disaggregation/decode.py, mamba_spec_state_size; TensorRT-LLM: pyexecutor/mamba_cache_manager.py,
// SpeculativeState).
Bytes states_to_copy(const Case& c, const Plan& p, const std::vector<KindLayers>& layers) {
  Bytes sum;
  if (p[kDrafts] == 0 || !copies_states(c)) return sum;
  for (const KindLayers& l : layers) {
    const Attention& a = attention_of(c, l);
    if (a.recurrent())
      sum += rank_state_bytes(a, p) * (holders(c, p) * static_cast<double>(new_tokens(p)) * l.count);
  }
  return sum;
}

Bytes state_bytes_of(const Case& c, const Plan& p, const KindLayers& l) {
  const Attention& a = attention_of(c, l);
  if (!c.engine || !c.engine->pools.states.told) return recurrent_cache_bytes(c, a, p) * l.count;
  const int all = c.engine->pools.states.of_all_stages ? layers_of_attention(c.model, l.attention) : 0;
  const double places = copies_states(c) ? 1 : static_cast<double>(new_tokens(p));
  return state_place_bytes(c, a, p) *
         (places * static_cast<double>(state_places(c, p)) * std::max(l.count, all));
}

// Of a token of a layer that takes an earlier one's choice, where the engine has room for index keys in all
// layers.
double unread_keys(const Case& c, const Attention& a) {
  if (!c.engine || !c.engine->pools.index_everywhere || !a.index || !a.index->shared) return 0;
  Attention own = a;
  own.index->shared = false;
  return index_row_bytes(own, c.precision.kv);
}

// Pools of their own for layers of each kind.
Bytes separate(const Case& c, const Plan& p, const std::vector<KindLayers>& layers) {
  const SplitTokens split = splits(c) ? split_tokens(c, p) : SplitTokens{};
  Bytes sum;
  for (const KindLayers& l : layers) {
    const Attention& a = attention_of(c, l);
    if (a.none()) continue;
    if (a.recurrent()) {
      sum += state_bytes_of(c, p, l);
      continue;
    }
    if (a.compression) {
      sum += compressed_cache_bytes(c, a, p) * l.count;
      continue;
    }
    double rows = a.reach.local() && c.engine ? window_rows(c, a, p).sum() : rows_of(c, a, p);
    if (split.thousandths > 0) rows = a.reach.local() ? split.windows : split.others;
    sum += Bytes(rows * (kv_bytes_per_token(c, a, p) + unread_keys(c, a))) * l.count;
  }
  return sum;
}

// A kind of layer as an engine tells them apart that gives all of them pages of one size.
struct PagedKind {
  const Attention* attention = nullptr;
  double token = 0;  // bytes on the rank; of a state, all of it
  int all = 0;       // layers of the model
  int count = 0;     // of the rank
  double blocks = 0;
  int groups = 0;
  bool same_as(const Attention& a, double bytes) const {
    return attention->recurrent() == a.recurrent() && attention->reach == a.reach && token == bytes;
  }
};

void paged_kinds(const Case& c, const Plan& p, const std::vector<KindLayers>& layers,
                 std::vector<PagedKind>& out) {
  out.clear();
  for (int i = 0; i < static_cast<int>(c.model.attentions.size()); ++i) {
    const Attention& a = c.model.attentions[static_cast<std::size_t>(i)];
    const int all = a.none() ? 0 : layers_of_attention(c.model, i);
    if (all == 0) continue;
    const double bytes = a.recurrent() ? state_place_bytes(c, a, p).value : kv_bytes_per_token(c, a, p);
    auto known =
        std::find_if(out.begin(), out.end(), [&](const PagedKind& k) { return k.same_as(a, bytes); });
    if (known == out.end()) known = out.insert(out.end(), PagedKind{&a, bytes});
    known->all += all;
    for (const KindLayers& l : layers) known->count += l.attention == i ? l.count : 0;
  }
}

// Whole blocks of so many tokens for rows of so many requests: exact of requests that are alike.
double blocks_of_rows(const Case& c, double rows, double requests, double block) {
  const bool alike = c.batch.decode.size() + c.batch.prefill.size() == 1;
  if (alike) return requests * std::ceil(rows / requests / block);
  return std::floor(rows / block) + requests;
}

double full_page(const Case& c, const std::vector<PagedKind>& kinds) {
  const CachePools& pools = c.engine->pools;
  double state = 0, page = 0;
  for (const PagedKind& k : kinds) {
    if (k.attention->recurrent()) state = std::max(state, k.token);
  }
  for (const PagedKind& k : kinds) {
    if (k.attention->recurrent()) continue;
    const double least =
        static_cast<double>(has_latents(*k.attention) ? pools.latent_page : pools.page) * k.token;
    page = std::max(page, least * std::max(1.0, std::ceil(state / least)));
  }
  return std::max(page, state);  // of states alone there is nothing to be like
}

// vLLM 0.24.0, v1/core/kv_cache_utils.py (@68afd7889723): unify_kv_cache_spec_page_size and
// _get_kv_cache_groups_uniform_page_size, with groups of as many layers as the rarest kind has, or of as many
// as the commonest one where it has less than 1.5 times as many; platforms/interface.py,
// _align_hybrid_block_size: a page of keys and values is as large as a state at least, and a state is padded
// to it. Stages have the layers of each group that fall to them.
Bytes paged(const Case& c, const Plan& p, const std::vector<PagedKind>& kinds) {
  const CachePools& pools = c.engine->pools;
  const double page = full_page(c, kinds), requests = static_cast<double>(sequences(c, p));
  int rarest = kinds.front().all, commonest = 0;
  for (const PagedKind& k : kinds) {
    rarest = std::min(rarest, k.all);
    commonest = std::max(commonest, k.all);
  }
  const int of_group = 2 * commonest < 3 * rarest ? commonest : rarest;
  double blocks = 0;
  int layers = 0;  // of a group on this rank
  for (const PagedKind& k : kinds) {
    const Attention& a = *k.attention;
    const int groups = (k.all + of_group - 1) / of_group;
    layers = std::max(layers, (k.count + groups - 1) / groups);
    if (a.recurrent()) {
      // num_speculative_blocks of a request beside its own (v1/kv_cache_interface.py, MambaSpec).
      const double each = copies_states(c) ? 1 : static_cast<double>(new_tokens(p));
      blocks += groups * each * static_cast<double>(state_places(c, p));
      continue;
    }
    const double least = static_cast<double>(has_latents(a) ? pools.latent_page : pools.page);
    const double block = least * std::max(1.0, std::floor(page / (least * k.token)));
    if (!a.reach.local()) {
      blocks += groups * blocks_of_rows(c, rows_of(c, a, p), requests, block);
      continue;
    }
    const WindowRows rows = window_rows(c, a, p);
    blocks +=
        groups * std::min(blocks_of_rows(c, rows.requests, requests, block) + std::ceil(rows.steps / block),
                          blocks_of_rows(c, rows.most, requests, block));
  }
  return Bytes(page * layers * blocks);
}

// Whether layers hold different numbers of tokens: else each has blocks of its own size in one pool
// (UniformTypeKVCacheSpecs).
bool unlike(const std::vector<PagedKind>& kinds) {
  return std::any_of(kinds.begin(), kinds.end(), [&](const PagedKind& k) {
    return k.attention->recurrent() != kinds.front().attention->recurrent() ||
           k.attention->reach != kinds.front().attention->reach;
  });
}

}  // namespace

long long state_places(const Case& c, const Plan& p) {
  if (!has_recurrence(c.model)) return 0;
  const long long requests = sequences(c, p);
  // TensorRT-LLM: of each of max_batch_size requests, in stages of as many for each of these (1.3.0rc20,
  // pyexecutor/mamba_cache_manager.py, CppMambaHybridCacheManager.get_cache_size_per_token, without reuse of
  // blocks, which launch files turn off); launch files name the requests of the plan.
  if (!c.engine || !c.engine->pools.states.told) return requests;
  if (only_answers(c)) return requests + arriving(requests);  // disaggregation/decode.py:183
  const StateCaches& s = c.engine->pools.states;
  const int each = !c.engine->pools.buffers_states(c.model.architecture) ? s.plain
                   : waits_for_host(c, p)                                ? s.buffered_waiting
                                                                         : s.buffered;
  return requests * each * (c.disaggregated ? kBatchesUnderWay : 1);
}

long long tokens_under_way(const Case& c, const Plan& p) {
  const int steps = c.engine->pools.windows.steps;
  if (steps == 0 || only_answers(c)) return 0;
  const long long in_batch = c.batch.prefills() ? p.in_flight : 0;
  return std::max(0LL, std::max<long long>(steps, p.in_flight) - in_batch) * group_budget(c, p);
}

int window_thousandths(const Case& c, const Plan& p) {
  return splits(c) ? split_tokens(c, p).thousandths : 0;
}

Bytes cache_pools(const Case& c, const Plan& p, const std::vector<KindLayers>& layers) {
  // Of models that mix such layers with others no engine is known: the sum of what each layer holds.
  if (c.engine && c.engine->pools.compressed_block > 0 && has_compression(c.model) && all_compressed(c.model))
    return compressed_pool(c, p, layers);
  if (c.engine && c.engine->pools.page > 0 && !has_compression(c.model) &&
      !c.engine->pools.keeps_windows_whole(c.model.architecture)) {
    thread_local std::vector<PagedKind> kinds;
    paged_kinds(c, p, layers, kinds);
    if (!kinds.empty() && unlike(kinds)) return paged(c, p, kinds) + states_to_copy(c, p, layers);
  }
  return separate(c, p, layers) + states_to_copy(c, p, layers);
}

}  // namespace shardline
