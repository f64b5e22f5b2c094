// Helix: KV split by sequence over KVP ranks and by heads over TPA; the QKV projection is repeated on every
// KVP rank; partial outputs and their log-sum-exps are exchanged all-to-all over query heads; then all KVP x
// TPA ranks regroup as TP for the output projection and as TPF x EP for the FFN. HOP-B overlaps a chunk's
// exchange with the next chunk's attention. Composes with PP (stages of Helix) and DP (several attention
// groups, experts over all).
#include <fmt/format.h>

#include "planner/engines/deploy.hpp"
#include "planner/layers/cache_attention.hpp"
#include "planner/layers/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

constexpr OptionOf<int> kChunks({
    .key = "chunks",
    .help = "HOP-B: chunks of requests whose exchange overlaps the attention of the next; 1 is off",
    .absent = 1,
    .of_batch = true,
    .prefills = false,
});
constexpr const char* kValueUpWords[]{"before", "after"};
enum class ValueUpOption : signed char { none = -1, before, after };
constexpr OptionOf<ValueUpOption> kValueUp({
    .key = "value_up",
    .help = "MLA: values made of latents before the exchange of partial outputs, or after it",
    .absent = static_cast<int>(ValueUpOption::none),
    .words = kValueUpWords,
    .of_mla = true,
    .prefills = false,
});
constexpr const Option* kOptions[]{&kChunks, &kValueUp, &kDrafts};

// One request per chunk.
int least(const Case& c, const Plan& p) {
  const long long each = std::max(1LL, requests_in(c.batch.decode));
  return static_cast<int>((p[kChunks] + each - 1) / each);
}

void with_options(const Case& c, Plan p, const SearchSpace& space, std::vector<Plan>& out) {
  std::vector<ValueUpOption> orders{ValueUpOption::none};
  if (has_latents(c.model)) orders = space.tried(kValueUp, {ValueUpOption::before, ValueUpOption::after});
  for (const ValueUpOption v : orders) {
    p.set(kValueUp, v);
    for (const int chunks : space.tried(kChunks, {1})) {
      p.set(kChunks, chunks);
      p.batch = least(c, p);
      out.push_back(p);
    }
  }
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  if (!kHelix.takes(c)) return;
  std::vector<Plan> splits;
  for (Plan p : groupings(c, gpus, space)) {
    p.strategy = id_of(kHelix);
    const int group = gpus / p.pp / p.dp;
    for (const int tpa : divisors(group)) {
      if (tpa > least_q_heads(c.model)) continue;
      if (tpa > least_kv_heads(c.model) && !space.duplicate_kv) continue;
      p.tpa = tpa;
      p.kvp = group / tpa;
      if (p.kvp < 2 || p.kvp > c.longest()) continue;
      splits.clear();
      with_ffn_splits(c, p, splits);
      for (const Plan& s : splits) with_options(c, s, space, out);
    }
  }
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  if (p.kvp < 2) return "helix needs kvp of at least 2; with kvp 1 it is tensor, pipeline or dp_ep";
  if (p.dp > 1 && p.pp > 1) return "helix composes with pp or with dp, not with both";
  if (p.dp > 1 && p.tpf > 1) return "helix with dp spreads whole experts over all ranks: tpf must be 1";
  if (p[kChunks] > decode_requests(c, p))
    return fmt::format("chunks {} exceeds the batch {}", p[kChunks], decode_requests(c, p));
  if (c.batch.prefills() && c.kernels.attention == AttentionKernel::eager)
    return "kernels.attention: eager is not for helix, whose prefills have shards to merge";
  if (has_latents(c.model) && p[kValueUp] == ValueUpOption::none)
    return "helix needs value_up under MLA: value_up=before or value_up=after";
  return std::nullopt;
}

CacheShare share_of(const Case& c, const Attention& a, const Plan& p) {
  CacheShare s = kvp_share(c, a, p);
  s.value_up = p[kValueUp] == ValueUpOption::after ? ValueUp::after : ValueUp::before;
  return s;
}

void attention(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& p) {
  add_kvp_attention(b, c, a, p, OpKind::all_to_all, p[kChunks]);
}

void prefill_attention(ContextStep& s) { add_kvp_prefill(s.b, s.c, s.a, s.p, OpKind::all_to_all); }

// Slices of the heads must be even for the charge to be that of every rank.
void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  for (const int shards : {2, 3, 4}) {
    if (least_q_heads(trial.study.model) / trial.base.tpa % shards != 0) continue;
    for (const int chunks : {1, 2, 3}) {
      for (const ValueUpOption up : {ValueUpOption::none, ValueUpOption::before, ValueUpOption::after}) {
        Plan p = trial.base;
        p.kvp = shards;
        p.set(kChunks, chunks);
        p.set(kValueUp, up);
        out.push_back(p);
      }
    }
  }
}

// NVIDIA/TensorRT-LLM docs/source/features/helix.md.
void launch(const Case& c, const Plan& p, std::vector<Deployment>& out) {
  if (c.batch.prefills()) return;  // it has no step of this kind: contexts are computed elsewhere
  Deployment d = tensorrt_llm_deployment(c, p);
  put(d.options, "context_parallel_size", p.kvp);
  put(d.options, "cp_config.cp_type", "HELIX");
  put(d.options, "cp_config.tokens_per_block", tensorrt_llm_block(c));
  put(d.options, "kv_cache_config.tokens_per_block", tensorrt_llm_block(c));  // must be equal
  d.generation_only = true;
  d.notes.emplace_back(
      "Helix is of servers for answers: another one computes the prompts, and a front has both");
  if (!has_latents(c.model))
    d.notes.emplace_back(
        "Helix is documented for MLA on Blackwell, and was added for Qwen3 without experts: other GQA models "
        "need an extension of TensorRT-LLM");
  if (p.dp > 1) d.notes.emplace_back("its feature matrix has known issues with attention DP under Helix");
  if (has_sparse(c.model)) d.notes.emplace_back("its Helix is documented for no sparse attention");
  if (has_recurrence(c.model)) d.notes.emplace_back("its Helix is documented for no layers with a state");
  if (has_local_attention(c.model))  // its feature combination matrix: Helix with sliding windows is untested
    d.notes.emplace_back("its Helix is untested with windows and sinks");
  if (const int block = tensorrt_llm_block(c); c.kv_block != block) {
    d.notes.push_back(
        fmt::format("TensorRT-LLM has {} tokens per block, this plan was timed with {}", block, c.kv_block));
  } else if (block != 32) {
    d.notes.push_back(
        fmt::format("TensorRT-LLM's tests of Helix have 32 tokens per block, this plan has {}", block));
  }
  // [P21], helix_values.
  if (has_latents(c.model) && p[kValueUp] == ValueUpOption::before)
    d.notes.emplace_back("it makes values after the exchange: expect the TTL of value_up=after");
  if (p[kChunks] > 1) d.notes.emplace_back("it has no HOP-B: expect the TTL of chunks=1");
  out.push_back(std::move(d));
}

}  // namespace

const Strategy kHelix{
    .name = "helix",
    .summary = "KV-sharded attention, GPUs regrouped for projection and FFN",
    .source = "arXiv 2507.07120",
    .decodes = true,
    .mixes = true,
    .degrees = {Degree::pp, Degree::dp, Degree::kvp, Degree::tpa, Degree::ep, Degree::tpf, Degree::dense_tp,
                Degree::in_flight},
    .options = kOptions,
    .partials = PartialOutputs::all_to_all,
    .local_attention = true,
    .chosen_keys = true,
    .compressed = true,
    .states = true,
    .launched_as = LaunchedAs::helix,
    .enumerate = enumerate,
    .check = check,
    .decode_attention = attention,
    .prefill_attention = prefill_attention,
    .binds_prefill = true,
    .cache_share = share_of,
    .prefill_buffers = kvp_prefill_buffers,
    .least_batch = least,
    .launch = launch,
    .verify = verify,
};

}  // namespace shardline
