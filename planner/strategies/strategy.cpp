#include "planner/strategies/strategy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "planner/layers/drafts.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

std::string_view to_string(LaunchedAs feature) {
  switch (feature) {
    case LaunchedAs::none:
      break;
    case LaunchedAs::tensor:
      return "tensor parallelism";
    case LaunchedAs::pipeline:
      return "pipeline parallelism";
    case LaunchedAs::attention_dp:
      return "attention data parallelism";
    case LaunchedAs::dcp:
      return "decode context parallelism inside a TP group";
    case LaunchedAs::helix:
      return "Helix parallelism";
    case LaunchedAs::prefill_cp:
      return "prefill context parallelism";
  }
  return "none";
}

double attention_computed(const Case& c, const Plan& plan) {
  const Strategy& s = strategy(plan.strategy);
  return s.computed ? s.computed(c, plan) : 1;
}

std::vector<int> divisors(int n) {
  std::vector<int> d;
  for (int i = 1; i <= n; ++i) {
    if (n % i == 0) d.push_back(i);
  }
  return d;
}

void with_expert_splits(const Case& c, Plan plan, int ranks, std::vector<Plan>& out) {
  for (const int ep : has_experts(c.model) ? divisors(ranks) : std::vector<int>{1}) {
    plan.ep = ep;
    plan.tpf = ranks / ep;
    if (has_experts(c.model) && (ep > least_experts(c.model) || plan.tpf > least_expert_inner(c.model)))
      continue;
    out.push_back(plan);
  }
}

void with_dense_splits(const Case& c, Plan plan, std::vector<Plan>& out) {
  out.push_back(plan);
  if (!has_dense(c.model)) return;
  for (const int ranks : {1, plan.ranks_per_stage()}) {
    if (ranks == plan.group() || ranks > least_dense_inner(c.model)) continue;
    plan.dense_tp = ranks;
    out.push_back(plan);
  }
}

void verify_in_chunks(const VerifyTrial& trial, Plan plan, std::vector<Plan>& out) {
  out.push_back(plan);
  if (trial.study.batch.kind() != StepKind::prefill) return;
  for (const int chunk : {7, 16}) {
    plan.set(kPrefillChunk, chunk);
    out.push_back(plan);
  }
}

std::vector<Plan> groupings(const Case& c, int gpus, const SearchSpace& space) {
  std::vector<Plan> out;
  for (const int pp : space.stages.empty() ? divisors(gpus) : space.stages) {
    if (gpus % pp != 0 || pp > c.model.layers()) continue;
    const int ranks = gpus / pp;
    for (const int dp : divisors(ranks)) {
      if (dp > 1 && (pp > 1 || !has_experts(c.model) || ranks > least_experts(c.model))) continue;
      Plan& p = out.emplace_back();
      p.pp = p.in_flight = pp;
      p.dp = dp;
    }
  }
  return out;
}

void with_ffn_splits(const Case& c, Plan plan, std::vector<Plan>& out) {
  const int ranks = plan.ranks_per_stage();
  if (plan.dp == 1) return with_expert_splits(c, plan, ranks, out);
  plan.ep = ranks;
  with_dense_splits(c, plan, out);
}

namespace {

// What the plan sets and its strategy does not read would silently mean nothing.
std::optional<std::string> unread(const Case& c, const Strategy& s, const Plan& p) {
  const StepKind kind = c.batch.kind();
  for (std::size_t d = 0; d < kDegrees.size(); ++d) {
    const auto degree = static_cast<Degree>(d);
    // A pipeline without a degree of its own for it has a microbatch in flight per stage.
    if (s.degrees.has(degree) || p.*kDegrees[d].member == absent_value(p, degree)) continue;
    std::vector<const char*> used;
    for (std::size_t u = 0; u < kDegrees.size(); ++u) {
      if (s.degrees.has(static_cast<Degree>(u))) used.push_back(kDegrees[u].key);
    }
    return fmt::format("{} does not use {}: its degrees are {}", s.name, kDegrees[d].key,
                       fmt::join(used, ", "));
  }
  for (const OptionValues::Value& v : p.options.all()) {
    if (!s.reads(*v.option)) return not_its_option(s, *v.option);
    const bool told = v.option->means(kind) || means(*v.option, c);
    if (!told)
      return fmt::format("{} is for {}", v.option->key,
                         v.option->decodes         ? "decoding"
                         : kind == StepKind::mixed ? "steps that prefill alone"
                                                   : "prefill");
    if (!means(*v.option, c)) return fmt::format("{} is for models with MLA", v.option->key);
  }
  return std::nullopt;
}

long long longest_fresh(const Case& c) {
  long long longest = 0;
  for (const Segment& r : c.batch.prefill) longest = std::max(longest, r.fresh);
  return longest;
}

// ": allgather_kv does": of the rows that run the case's layers in its steps one that shards tokens as `s`
// does if there is one, and of these one that engines have; the first such row of the table.
std::string runs_instead(const Strategy& s, const Case& c) {
  const auto likeness = [&](const Strategy& row) {
    return (row.context_parallel() == s.context_parallel() ? 2 : 0) +
           (row.launched_as != LaunchedAs::none ? 1 : 0);
  };
  const Strategy* other = nullptr;
  for (const Strategy* row : strategies()) {
    if (!row->takes(c) || !row->exact) continue;
    if (other == nullptr || likeness(*row) > likeness(*other)) other = row;
  }
  return other == nullptr ? "" : fmt::format(": {} does", other->name);
}

// Why a strategy does not run some of the model's layers, if it does not.
std::optional<std::string> unrun_layers(const Strategy& s, const Case& c) {
  const Model& m = c.model;
  if (has_local_attention(m) && !s.local_attention)
    return fmt::format("{} does not run layers with windows, chunks or sinks, which {} has{}", s.name, m.name,
                       runs_instead(s, c));
  if (has_compression(m) && !s.compressed)
    return fmt::format(
        "{} does not run compressed attention, whose rows are of several tokens, which {} has{}", s.name,
        m.name, runs_instead(s, c));
  if (has_sparse(m) && !s.chosen_keys)
    return fmt::format("{} does not run sparse attention, whose keys an index chooses, which {} has{}",
                       s.name, m.name, runs_instead(s, c));
  if (has_recurrence(m) && !s.states)
    return fmt::format("{} does not run layers that keep a state, which {} has{}", s.name, m.name,
                       runs_instead(s, c));
  if (has_partial_layers(m) && !s.local_attention)
    return fmt::format(
        "{} does not run models with layers that lack attention or a feed-forward network, which {} "
        "has{}",
        s.name, m.name, runs_instead(s, c));
  return std::nullopt;
}

// Why a plan's chunks of new tokens cannot run, if they cannot.
std::optional<std::string> check_chunk(const Case& c, const Plan& p) {
  const int chunk = p[kPrefillChunk];
  if (chunk == 0) return std::nullopt;
  if (p.in_flight > 1)
    return std::string("prefill_chunk needs in_flight=1: chunks of one microbatch fill the stages");
  if (chunk >= longest_fresh(c))
    return fmt::format("prefill_chunk {} exceeds all new tokens but one, {}", chunk, longest_fresh(c) - 1);
  if (c.system.runtime.host_layer > Seconds(0))
    return std::string(
        "prefill_chunk is not for systems with runtime.host_layer, where hosts launch whole layers");
  return std::nullopt;
}

}  // namespace

void enumerate_context(const Case& c, int gpus, const SearchSpace& space, StrategyId id,
                       std::vector<Plan>& out,
                       const std::function<void(Plan, std::vector<Plan>&)>& with_options) {
  if (!strategy(id).takes(c)) return;
  const auto check = strategy(id).check;
  for (const int pp : space.stages.empty() ? divisors(gpus) : space.stages) {
    if (gpus % pp != 0 || pp > c.model.layers()) continue;
    const int ranks = gpus / pp;
    for (const int tpa : divisors(ranks)) {
      if (tpa > least_q_heads(c.model) || ranks / tpa < 2 || ranks / tpa > c.longest()) continue;
      if (tpa > least_kv_heads(c.model) && !space.duplicate_kv) continue;
      Plan p;
      p.strategy = id;
      p.pp = p.in_flight = pp;
      p.tpa = tpa;
      p.cp = ranks / tpa;
      std::vector<Plan> choices, splits;
      if (with_options)
        with_options(p, choices);
      else
        choices.push_back(p);
      for (const Plan& choice : choices) {
        with_expert_splits(c, choice, tpa, splits);
        if (has_experts(c.model)) with_expert_splits(c, choice, ranks, splits);
      }
      for (const Plan& split : splits) {
        if (split.tpf > tpa || (check && check(c, split))) continue;
        out.push_back(split);
        if (strategy(id).reads(kPrefillChunk)) with_prefill_chunks(c, split, space, out);
      }
    }
  }
}

void with_prefill_chunks(const Case& c, Plan plan, const SearchSpace& space, std::vector<Plan>& out) {
  if (c.batch.kind() != StepKind::prefill || c.system.runtime.host_layer > Seconds(0)) return;
  plan.in_flight = 1;
  for (const int chunk : space.tried(kPrefillChunk, {})) {
    if (chunk >= longest_fresh(c)) continue;
    plan.set(kPrefillChunk, chunk);
    out.push_back(plan);
  }
}

std::optional<std::string> check_plan(const Case& c, const Plan& p) {
  const Model& m = c.model;
  const auto too_many = [](const char* what, long long have, const char* of, long long limit) {
    return fmt::format("{} {} exceeds {} {}", what, have, of, limit);
  };
  const Strategy& s = strategy(p.strategy);
  for (const Segment& r : c.batch.decode) {
    if (r.fresh != 1) return fmt::format("a decoding request has one new token, not {}", r.fresh);
  }
  if (c.batch.kind() == StepKind::mixed && !s.mixes)
    return fmt::format("{} has no steps that decode and prefill", s.name);
  if (!s.runs(c.batch.kind()))
    return fmt::format("{} is a strategy for {}", s.name, s.decodes ? "decoding" : "prefill");
  if (const auto reason = unrun_layers(s, c)) return reason;
  if (s.context_parallel() && p.cp < 2)
    return fmt::format("{} needs cp of at least 2; with cp 1 it is tensor or pipeline", s.name);
  if (const auto reason = unread(c, s, p)) return reason;
  const long long gpus = static_cast<long long>(p.pp) * p.dp * p.kvp * p.cp * p.tpa;
  if (gpus > c.system.gpus()) return too_many("GPU count", gpus, "the system's", c.system.gpus());
  if (p.pp > m.layers()) return too_many("pp", p.pp, "the number of layers", m.layers());
  if (p.tpa > least_q_heads(m)) return too_many("tpa", p.tpa, "the number of query heads", least_q_heads(m));
  if (const auto reason = too_many_for_states(m, p)) return reason;
  if (p.kvp > c.longest()) return too_many("kvp", p.kvp, "the context", c.longest());
  if (p.cp > c.longest()) return too_many("cp", p.cp, "the context", c.longest());
  if (has_experts(m)) {
    if (p.ep > least_experts(m)) return too_many("ep", p.ep, "the number of experts", least_experts(m));
    if (p.tpf > least_expert_inner(m))
      return too_many("tpf", p.tpf, "the expert width", least_expert_inner(m));
  } else if (p.ep > 1) {
    return std::string("ep needs a model with experts");
  }
  const bool replicated = s.weights == WeightSharing::attention_tp;
  const int ffn_ranks = replicated ? p.tpa : p.ranks_per_stage();
  // Context-parallel ranks hold whole copies of the FFN, or share its experts.
  const bool shared_experts = s.context_parallel() && p.ep * p.tpf == p.cp * p.tpa && p.tpf <= p.tpa;
  if (p.ep * p.tpf != ffn_ranks && !shared_experts) {
    const bool by_experts = has_experts(m) && ffn_ranks <= least_experts(m);
    return fmt::format("ep*tpf is {} but {} ranks share the FFN, for instance as tpf={}{}", p.ep * p.tpf,
                       ffn_ranks, ffn_ranks, by_experts ? fmt::format(" or ep={}", ffn_ranks) : "");
  }
  if (p.dense_tp > 0 && p.dense_tp != p.group() && p.dense_tp != p.ranks_per_stage() &&
      (p.dense_tp != 1 || p.dp == 1)) {
    std::vector<std::string> allowed;
    if (p.dp > 1 && p.group() > 1) allowed.emplace_back("1");
    if (p.dp > 1) allowed.push_back(fmt::format("{} (an attention group)", p.group()));
    allowed.push_back(fmt::format("{} (all of the stage)", p.ranks_per_stage()));
    return fmt::format("dense_tp is {}; it must be {}", p.dense_tp, fmt::join(allowed, " or "));
  }
  if (has_dense(m) && dense_ffn_ranks(p) > least_dense_inner(m)) {
    return too_many("the FFN's ranks", dense_ffn_ranks(p), "its width", least_dense_inner(m));
  }
  if (const auto reason = check_chunk(c, p)) return reason;
  if (const auto reason = no_drafts(c, p)) return reason;
  if (!s.exact && c.batch.prefills() && c.kernels.attention == AttentionKernel::eager)
    return fmt::format("kernels.attention: eager is not for {}, whose kernel never multiplies masked pairs",
                       s.name);
  return s.check ? s.check(c, p) : std::nullopt;
}

std::vector<std::string> check_row(const Strategy& s) {
  std::vector<std::string> faults;
  const auto wrong = [&](bool fault, const char* what) {
    if (fault) faults.push_back(fmt::format("{}: {}", s.name, what));
  };
  wrong(!s.enumerate, "enumerate is of every strategy");
  wrong(!s.decodes && !s.prefills, "it is for no step");
  const bool prefills = s.prefills || s.mixes;
  wrong(prefills != (s.prefill_attention != nullptr),
        "prefill_attention is of strategies that prefill, and of those alone");
  wrong(prefills != (s.prefill_buffers != nullptr), "prefills have buffers");
  wrong(!prefills && (s.deal || s.layout || s.binds_prefill || s.pads_queries),
        "it has no prefills to lay out");
  wrong(s.deal && s.layout, "it deals tokens out or lays them out, one of both");
  wrong(s.mixes && !s.decodes, "a strategy that mixes decodes");
  wrong((s.decode_attention || s.cache_share) && !s.decodes,
        "decode_attention and cache_share are of strategies that decode");
  wrong(s.decode_buffers && !s.decode_attention, "decode_buffers are those of a decode_attention");
  wrong(s.degrees.has(Degree::kvp) != (s.partials != PartialOutputs::none) && !s.decode_attention,
        "kvp ranks exchange partial outputs");
  wrong(!s.decode_attention && s.partials == PartialOutputs::all_to_all &&
            s.weights == WeightSharing::attention_tp,
        "an all-to-all leaves slices of heads, and TP ranks project all of theirs");
  wrong(s.context_parallel() && s.weights != WeightSharing::attention_tp,
        "context-parallel ranks hold copies of the weights");
  wrong(s.exact == (s.computed != nullptr), "an approximate strategy says what it computes");
  wrong(!s.exact && s.launched_as != LaunchedAs::none, "engines run exact strategies");
  wrong(s.options.size() > kMostOptions, "it has more options than a plan has room for");
  std::vector<std::string_view> keys{"batch"};
  for (const DegreeField& field : kDegrees) keys.emplace_back(field.key);
  for (const Option* option : s.options) {
    wrong(std::find(keys.begin(), keys.end(), option->key) != keys.end(), "two keys have one name");
    wrong(option->words.empty() && option->least > option->most, "no value is in the range of an option");
    keys.emplace_back(option->key);
  }
  return faults;
}

void lower(Schedule& schedule, const Case& c, const Plan& plan) { build_step(schedule, c, plan); }

}  // namespace shardline
