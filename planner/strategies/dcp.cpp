// Decode context parallelism inside a TP group, as vLLM and SGLang run it: where TP has more ranks than there
// are KV heads, `dcp` consecutive ranks share one cache by sequence instead of holding copies of it. It adds
// no GPUs. Every rank attends with the query heads of its whole dcp group, over its part of the tokens; the
// group then brings each rank its own heads back, merged. Output projection and FFN are those of TP over all
// ranks.
//
// Sources, cited below: vllm = vllm-project/vllm 833483f3578a (after v0.25.0), sglang = sgl-project/sglang
// 8905cbd42f4a, sglang' = its later srt/layers/dcp/comm.py 00ac7105db02 and docs/advanced_features/dcp.mdx.
// Groups and owners: vllm distributed/parallel_state.py, v1/worker/block_table.py. MLA's order (absorb,
// gather queries 576 wide, attend, combine 512 wide, W_UV): vllm
// model_executor/layers/attention/mla_attention.py; GQA's: v1/attention/backends/flashinfer.py. Combining:
// v1/attention/ops/common.py (ag_rs), ops/dcp_alltoall.py (a2a). Both engines call NCCL for all of these, by
// torch.distributed or a binding of their own: messages keep Carrier::library, whatever their rows.
//
// Ignored: copies that vLLM makes around its gather of queries and its reduce-scatter, which work along the
// heads (distributed/device_communicators/cuda_communicator.py; SGLang lays queries out so that it needs
// none); queries sent in FP8; FlashAttention's own order for GQA, where a rank attends to the new token
// apart, with its own heads (vllm v1/attention/backends/flash_attn.py); coarser prefix hits; fi_a2a,
// FlashInfer's exchange (sglang').
#include <fmt/format.h>

#include "hardware/cost/kernel_list.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/layers/cache_attention.hpp"
#include "planner/layers/cache_flow.hpp"
#include "planner/layers/context_step.hpp"
#include "planner/layers/group_cache.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/sparse_attention.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

enum class Queries : unsigned char { gathered, replicated };

constexpr OptionOf<int> kRanks({
    .key = "dcp",
    .help = "consecutive ranks of a TP group that share one cache by sequence",
    .least = 2,
    .absent = 1,
    .prefills = false,
});
constexpr const char* kExchangeWords[]{"ag_rs", "a2a"};
constexpr OptionOf<PartialExchange> kExchange({
    .key = "exchange",
    .help =
        "partial outputs: log-sum-exps gathered and corrected outputs reduce-scattered, or both all-to-all",
    .words = kExchangeWords,
    .prefills = false,
});
constexpr const char* kQueriesWords[]{"gathered", "replicated"};
constexpr OptionOf<Queries> kQueries({
    .key = "queries",
    .help = "queries of a dcp group's heads: gathered from its ranks, or projected by each of them",
    .words = kQueriesWords,
    .prefills = false,
});
constexpr OptionOf<int> kInterleave({
    .key = "interleave",
    .help = "tokens in a row on one rank of a dcp group",
    .absent = 1,
    .tokens = true,
    .prefills = false,
});
constexpr const Option* kOptions[]{&kRanks, &kExchange, &kQueries, &kInterleave, &kExpertTokens, &kDrafts};

bool replicates(const Plan& p) { return p[kQueries] == Queries::replicated; }

// Owner of token t: (t / interleave) mod dcp.
CacheShare share_of(const Case&, const Attention& a, const Plan& p) {
  const int own = local_q_heads(a, p), all = own * p[kRanks];
  return {replicates(p) ? all : own, all, {p[kRanks], 1}, p[kInterleave], ValueUp::after};
}

// vLLM gathers W_UK into a further buffer and keeps the rank's own (mla_attention.py).
double extra_weights(const Case&, const Attention& a, const Plan& p) {
  if (!has_latents(a) || !replicates(p)) return 0;
  return static_cast<double>(local_q_heads(a, p)) * a.nope_dim * a.kv_lora_rank;
}

// Queries of all heads as they arrive, and partial outputs with their log-sum-exps.
Bytes buffers(const Case& c, const Attention& a, const Plan& p) {
  const AttendDecodeShape s = decode_attend_shape(c, a, p, 0, decode_requests(c, p));
  const double act = bytes_per_element(c.precision.activations);
  const double rows = static_cast<double>(s.q_rows * s.q_heads);
  const double queries = replicates(p) ? 0 : rows * static_cast<double>(s.qk_dim) * act;
  return std::max(Bytes(std::max(queries, rows * (static_cast<double>(s.v_dim) * act + kGroupLseBytes))),
                  candidate_buffers(c, a, p, Asked::decode));
}

// Scores are of whole indexes, which every rank of the group has of all its tokens: each scores its own keys,
// and candidates travel [P27]. Queries are gathered, absorbed, as without an index; prompts attend absorbed.
void attention_to_chosen(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p, Asked asked) {
  const CacheShare share = cache_share(c, a, p);
  const std::vector<Segment> all = asked_segments(c, p, asked);
  const Count rows = rows_of(all);
  const auto requests = static_cast<int>(requests_of(all));
  CacheFlow flow(b, c, a, p, share, kGroupLseBytes, asked);
  add_choice(b, c, a, p, share, all, asked, flow);
  const AttendSparseShape s = sparse_attend_shape(c, a, p, share, all, asked);
  if (!replicates(p)) gather_queries(b, c, share, rows, s.qk_dim, flow);
  b.indexed("attend chosen", Part::attention, c.precision.kv, c.precision.math, s);
  flow.attend(0, requests);
  merge_window_and_rows(b, a, rows, s.q_heads, flow, 0, requests);
  bring_together(b, c, {rows, s.q_heads, s.v_dim, requests, asked == Asked::prefill}, share.sharers,
                 p[kExchange], flow);
  if (has_latents(a)) {
    add_value_up(b, c, a, rows, local_q_heads(a, p));
    flow.value_up_after();
  }
  flow.finish();
}

void attention(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p) {
  if (a.sparse()) return attention_to_chosen(b, c, a, p, Asked::decode);
  const CacheShare share = cache_share(c, a, p);
  const Count rows = decode_tokens(c, p);
  const auto requests = static_cast<int>(decode_requests(c, p));
  const AttendDecodeShape s = decode_attend_shape(c, a, p, 0, requests);
  CacheFlow flow(b, c, a, p, share, kGroupLseBytes, Asked::decode);
  if (!replicates(p)) gather_queries(b, c, share, rows, s.qk_dim, flow);
  b.attend("attend", c.precision.kv, c.precision.math, s);
  flow.attend(0, requests);
  if (!has_latents(a)) {
    b.elementwise("merge splits", Part::attention, OpKind::merge, {rows, s.q_heads * s.v_dim, Bytes(0)},
                  c.kernels.fused_split_merge ? 0 : 1, Within::decode_merge);
  }
  bring_together(b, c, {rows, s.q_heads, s.v_dim, requests}, share.sharers, p[kExchange], flow);
  if (has_latents(a)) {
    add_value_up(b, c, a, rows, local_q_heads(a, p));
    flow.value_up_after();
  }
  flow.finish();
}

void prefill_attention(ContextStep& s) {
  if (s.a.sparse()) return attention_to_chosen(s.b, s.c, s.a, s.p, Asked::prefill);
  add_group_prefill(s.b, s.c, s.a, s.p, s.p[kExchange], !replicates(s.p));
}

// Queries of the whole group and partial outputs, or the latents of all cached tokens and what they expand
// to.
Bytes prefill_buffers(const Case& c, const Attention& a, const Plan& p) {
  const LocalHeads h = prefill_heads(a, p);
  const double act = activation_size(c), rows = prefill_rows(c, p);
  if (a.sparse()) {  // queries on both sides of their gather, or partial outputs and corrected ones
    const LocalHeads absorbed = decode_heads(a, p);
    return token_buffers(c, a, p) + 2 * candidate_buffers(c, a, p, Asked::prefill) +
           Bytes(rows * h.q * p[kRanks] * (2 * absorbed.qk * act + p[kRanks] * kGroupLseBytes));
  }
  double cached = 0;
  for (const Segment& s : c.batch.prefill)
    cached += static_cast<double>((s.cached - first_seen(a.reach, s)) * s.count) * p.batch;
  const double heads = static_cast<double>(h.q) * p[kRanks];
  // Partial outputs and corrected ones, or queries on both sides of their gather; log-sum-exps of all ranks.
  const double shards = rows * heads * (2 * std::max(h.qk, h.v) * act + p[kRanks] * kGroupLseBytes);
  const double latents = (cached * h.held_width() + (cached + rows) * h.kv_width()) * act;
  return token_buffers(c, a, p) + Bytes(h.latent > 0 ? latents : cached == 0 ? 0 : shards);
}

// vLLM's checks (config/parallel.py, config/model.py), and one of ours: it asks dcp <= tpa / KV heads alone,
// so that with tpa 12, 2 KV heads and dcp 4 ranks 4 to 7 would share a cache of two heads' tokens. Here dcp
// divides.
std::optional<std::string> check_heads(const Attention& a, const Plan& p) {
  if (p.tpa % p[kRanks] != 0) return fmt::format("dcp {} does not divide tpa {}", p[kRanks], p.tpa);
  if (!has_latents(a)) {
    if (p.tpa <= a.kv_heads)
      return fmt::format("dcp needs tpa above the {} KV heads: it shares what would be copies", a.kv_heads);
    if (p.tpa % a.kv_heads != 0)
      return fmt::format("tpa {} is not a multiple of the {} KV heads", p.tpa, a.kv_heads);
    if (p.tpa / a.kv_heads % p[kRanks] != 0)
      return fmt::format("dcp {} does not divide the {} ranks of a KV head (tpa / KV heads)", p[kRanks],
                         p.tpa / a.kv_heads);
    if (a.q_heads / a.kv_heads % p[kRanks] != 0)
      return fmt::format("dcp {} does not divide the {} query heads of a KV head", p[kRanks],
                         a.q_heads / a.kv_heads);
  }
  if (a.q_heads % p.tpa != 0)
    return fmt::format("dcp needs equal heads on all ranks: tpa {} does not divide {}", p.tpa, a.q_heads);
  return std::nullopt;
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  if (p[kRanks] < 2) return "dcp needs dcp of at least 2; with 1 it is tensor, pipeline or dp_ep";
  for (const Attention& a : c.model.attentions) {
    if (a.none() || a.recurrent()) continue;
    if (const auto reason = check_heads(a, p)) return reason;
  }
  if (c.batch.prefills() && c.kernels.attention == AttentionKernel::eager)
    return "kernels.attention: eager is not for dcp, whose prefills have parts to merge";
  if (c.kv_block % p[kInterleave] != 0)  // vllm config/vllm.py
    return fmt::format("interleave {} does not divide the kv_block of {}", p[kInterleave], c.kv_block);
  if (p.dp > 1 && p.pp > 1) return "dcp composes with pp or with dp, not with both";
  if (p.dp > 1 && !has_experts(c.model))
    return "dcp with dp needs a model with experts: groups that share nothing are servers of their own";
  if (p.dp > 1 && p.tpf > 1) return "dcp with dp spreads whole experts over all ranks: tpf must be 1";
  if (const auto reason = no_gather(c, p)) return reason;
  return std::nullopt;
}

void with_expert_tokens(const Case& c, Plan p, const SearchSpace& space, std::vector<Plan>& out) {
  if (!groups_share_experts(c, p)) {
    out.push_back(p);
    return;
  }
  for (const ExpertTokens tokens : space.tried(kExpertTokens, expert_tokens_of(c, p))) {
    p.set(kExpertTokens, tokens);
    out.push_back(p);
  }
}

// By itself with one interleave, for others change the fullest rank's tokens by less than a block.
void with_options(const Case& c, Plan p, const SearchSpace& space, std::vector<Plan>& out) {
  // Engines replicate queries of MLA alone.
  std::vector<Queries> own{Queries::gathered};
  if (has_latents(c.model)) own.push_back(Queries::replicated);
  const std::vector<Queries> queries = space.tried(kQueries, own);
  for (const int dcp : divisors(p.tpa)) {
    if (dcp < 2 || dcp > c.longest()) continue;
    p.set(kRanks, dcp);
    for (const int interleave : space.tried(kInterleave, {1})) {
      p.set(kInterleave, interleave);
      if (check(c, p)) continue;
      for (const PartialExchange exchange :
           space.tried(kExchange, {PartialExchange::ag_rs, PartialExchange::a2a})) {
        for (const Queries q : queries) {
          p.set(kExchange, exchange);
          p.set(kQueries, q);
          with_expert_tokens(c, p, space, out);
        }
      }
    }
  }
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  if (!kDcp.takes(c)) return;
  std::vector<Plan> splits;
  for (Plan p : groupings(c, gpus, space)) {
    p.strategy = id_of(kDcp);
    p.tpa = gpus / p.pp / p.dp;
    if (p.tpa > least_q_heads(c.model)) continue;
    splits.clear();
    with_ffn_splits(c, p, splits);
    for (const Plan& split : splits) with_options(c, split, space, out);
  }
}

// As many ranks as share one copy of the cache, or, with a base of 2, two copies; then experts over two
// groups.
void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  const Case& c = trial.study;
  const int heads = least_kv_heads(c.model);
  for (const int dcp : {2, 4}) {
    for (const int interleave : {1, 4}) {
      for (const PartialExchange exchange : {PartialExchange::ag_rs, PartialExchange::a2a}) {
        for (const Queries queries : {Queries::gathered, Queries::replicated}) {
          Plan p = trial.base;
          p.tpa *= heads * dcp;
          p.set(kRanks, dcp);
          p.set(kInterleave, interleave);
          p.set(kExchange, exchange);
          p.set(kQueries, queries);
          out.push_back(p);
          if (interleave > 1 || heads > 1) continue;
          p.dp = 2;
          p.ep = p.ranks_per_stage();
          out.push_back(p);
        }
      }
    }
  }
}

// FlashInfer's MLA kernel, the first choice there, does not return the log-sum-exp (vllm
// platforms/cuda.py:93-142, v1/attention/backends/mla/cutlass_mla.py:113 at v0.24.0).
bool needs_cutlass_mla(const Case& c) {
  return has_latents(c.model) && architecture_of(c.system.device) == Architecture::blackwell;
}

void launch_vllm(const Case& c, const Plan& p, std::vector<Deployment>& out) {
  Deployment d = vllm_deployment(c, p);
  put(d.options, "--decode-context-parallel-size", p[kRanks]);
  if (p[kExchange] == PartialExchange::a2a) put(d.options, "--dcp-comm-backend", "a2a");
  if (p[kInterleave] > 1) put(d.options, "--cp-kv-cache-interleave-size", p[kInterleave]);
  if (needs_cutlass_mla(c)) {
    put(d.options, "--attention-backend", "CUTLASS_MLA");
    d.notes.emplace_back(
        "of vLLM's MLA kernels on Blackwell CUTLASS's alone returns the log-sum-exp that this needs; it was "
        "not measured, and is priced as FlashInfer's");
  } else {
    d.notes.emplace_back(
        "needs an attention backend whose decode kernel returns the log-sum-exp, as vLLM's own choice here "
        "does");
  }
  if (replicates(p)) {
    d.unsaid = "replicated queries (VLLM_DCP_Q_REPLICATE) came after vLLM 0.25.0";
    if (has_latents(c.model))
      put(d.environment, "VLLM_DCP_Q_REPLICATE", 1);
    else
      d.notes.emplace_back(
          "it replicates queries of DeepSeek's MLA only: expect the TTL of queries=gathered");
  }
  if (has_latents(c.model) && element_bits(c.precision.kv) < 16)
    d.unsaid = "DCP of vLLM 0.24.0 needs latents in 16 bits (mla_attention.py:682)";
  if (has_sparse(c.model))
    d.unsaid = "no release of vLLM has DCP for sparse attention (pull requests 46145, 46178)";
  out.push_back(std::move(d));
}

// No interleave; queries are replicated only beside an all-to-all, which is known of MLA alone (sglang').
void launch_sglang(const Case& c, const Plan& p, std::vector<Deployment>& out) {
  const bool a2a = p[kExchange] == PartialExchange::a2a;
  if (p[kInterleave] > 1 || (replicates(p) && !a2a) || (a2a && !has_latents(c.model))) return;
  if (has_sparse(c.model)) return;  // pull request 31821, open: every rank keeps all keys of the index
  Deployment d = sglang_deployment(c, p);
  d.unsaid = "SGLang 0.5.14 has no decode context parallelism: --dcp-size came with 0.5.15";
  put(d.options, "--dcp-size", p[kRanks]);
  if (a2a) put(d.options, "--dcp-comm-backend", "a2a");
  if (replicates(p)) put(d.options, "--dcp-replicate-q-proj");
  // srt/layers/dcp/comm.py, srt/layers/attention/triton_backend.py
  if (!a2a && has_latents(c.model))
    d.notes.emplace_back("it reduce-scatters in float32: twice the bytes of this plan's reduce-scatter");
  if (!has_latents(c.model))
    d.notes.emplace_back(
        "Triton backend only, which all-reduces float32: four times the bytes of this plan's reduce-scatter");
  if (replicates(p)) d.notes.emplace_back("for unquantised BF16 or FP16 weights; others gather queries");
  // Pull requests 25090 (Qwen3.5) and 32612 (Kimi Linear).
  if (has_recurrence(c.model)) d.notes.emplace_back("layers with a state stay under tensor parallelism");
  d.notes.emplace_back(a2a ? "from SGLang 0.5.17 on" : "from SGLang 0.5.15 on");
  out.push_back(std::move(d));
}

// Both refuse windows and sinks (vllm v1/kv_cache_interface.py, v1/core/single_type_kv_cache_manager.py; the
// extend kernel of sglang's srt/layers/attention/triton_backend.py).
void launch(const Case& c, const Plan& p, std::vector<Deployment>& out) {
  if (has_local_attention(c.model)) return;
  // "DCP not support hybrid attn now": vllm v1/core/kv_cache_coordinator.py, HybridKVCacheCoordinator.
  if (!has_recurrence(c.model)) launch_vllm(c, p, out);
  launch_sglang(c, p, out);
}

}  // namespace

const Strategy kDcp{
    .name = "dcp",
    .summary = "vLLM, SGLang from 0.5.15: TP whose ranks share a KV head's cache by sequence",
    .source = "vllm-project/vllm 833483f3578a, decode context parallelism",
    .decodes = true,
    .mixes = true,
    .degrees = {Degree::pp, Degree::dp, Degree::tpa, Degree::ep, Degree::tpf, Degree::dense_tp,
                Degree::in_flight},
    .options = kOptions,
    .local_attention = true,
    .chosen_keys = true,
    .compressed = true,
    .states = true,
    .launched_as = LaunchedAs::dcp,
    .enumerate = enumerate,
    .check = check,
    .decode_attention = attention,
    .prefill_attention = prefill_attention,
    .binds_prefill = true,
    .cache_share = share_of,
    .decode_buffers = buffers,
    .prefill_buffers = prefill_buffers,
    .extra_weights = extra_weights,
    .launch = launch,
    .verify = verify,
};

}  // namespace shardline
