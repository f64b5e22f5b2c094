#include "cuda_probe/execute/verify/verify_cases.hpp"

#include <fmt/format.h>

#include "cuda_probe/execute/verify/verify_models.hpp"
#include "models/model/cache.hpp"
#include "planner/engines/profile.hpp"
#include "planner/layers/layer_flow.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

// Decoding requests under MLA attend to latents (absorbed), prefills to heads expanded from them: of one
// cache, with the same result.
Problem problem_of(const Attention& a, const std::vector<long long>& lengths) {
  Problem p;
  p.q_heads = a.q_heads;
  p.kv_heads = has_latents(a) ? a.q_heads : a.kv_heads;
  p.qk_dim = key_width(a);
  p.v_dim = value_width(a);
  p.kv_lora = a.kv_lora_rank;
  p.rope = a.rope_dim;
  p.reach = a.reach;
  p.sinks = a.sinks;
  if (a.index) {
    p.index_heads = a.index->heads;
    p.index_dim = a.index->dim;
    p.top_k = a.index->top_k;
    p.index_block = a.index->block;
    p.index_init = a.index->init_blocks;
    p.index_local = a.index->local_blocks;
  }
  if (a.compression) p.rows = {a.compression->ratio, rows_of_token(a), true};
  if (a.delta) {
    const DeltaRule& d = *a.delta;
    p.recurrence = {d.key_heads, d.value_heads, d.key_dim, d.value_dim, d.conv, d.channel_decay};
  }
  if (a.mamba) {
    const Mamba& m = *a.mamba;
    p.recurrence = {m.groups, m.heads, m.state, m.head_dim, m.conv, false, true};
  }
  p.lengths.assign(lengths.begin(), lengths.end());
  p.seed = 7;
  return p;
}

// Of every kind of layer, each with numbers of its own.
std::vector<Problem> problems_of(const Case& c, const std::vector<long long>& lengths,
                                 const Tokens& expected) {
  std::vector<Problem> all;
  std::uint64_t chooses = 0;  // seed of the last layer that makes a choice of its own
  for (const Attention& a : c.model.attentions) {
    Problem& p = all.emplace_back(problem_of(a, lengths));
    p.expected_queries = expected;
    p.seed += all.size() - 1;
    if (a.index && !a.index->shared) chooses = p.seed;
    if (a.index && a.index->shared) p.index_seed = chooses;
  }
  return all;
}

// What a prefill starts from: requests and, after several turns, where their caches lie.
struct Workload {
  const char* name;
  std::vector<Segment> requests;
  bool history = false;
};

// Turns of new and decoded tokens that leave `cached` tokens.
std::shared_ptr<const Placement> turns(const std::vector<Segment>& requests, int ranks) {
  auto placement = std::make_shared<Placement>(ranks, static_cast<int>(requests.size()));
  for (int b = 0; b < placement->requests(); ++b) {
    long long left = requests[static_cast<std::size_t>(b)].cached;
    for (long long turn = 1; left > 0; ++turn) {
      const long long fresh = std::min(left, 3 + 5 * turn + b),
                      decoded = std::min(left - fresh, 2 + turn % 3);
      placement->prefill(b, fresh);
      placement->decode(b, decoded);
      left -= fresh + decoded;
    }
  }
  return placement;
}

// What APB or Star are compared with: documents, their queries, and anchors as requests of their own.
void define_blocks(Problem& p, const Plan& plan) {
  SL_CHECK(strategy(plan.strategy).blocks != nullptr, "what is timed only is compared with nothing");
  const HostBlocks blocks = strategy(plan.strategy).blocks(plan);
  p.blocks = {plan.cp, blocks.anchor, blocks.passing, blocks.query, blocks.retaining};
  p.expected_queries.clear();
  std::vector<std::int64_t> anchors;
  for (std::int64_t& length : p.lengths) {
    const auto r = static_cast<std::int32_t>(anchors.size());
    p.expected_queries.push_back({r, 0, length});
    anchors.push_back(anchor_length(p.blocks, length));
    length += blocks.query;
  }
  for (const std::int64_t length : anchors) {
    p.expected_queries.push_back({static_cast<std::int32_t>(p.lengths.size()), 0, length});
    p.lengths.push_back(length);
  }
}

// A plan that spreads experts needs some; its attention is that of a dense model.
void give_experts(Case& c) {
  FeedForward experts;
  experts.experts = 16;
  experts.experts_per_token = 2;
  experts.inner = 8;
  c.model.ffns = {experts};
  c.model.drafts->ffn = experts;
  c.routing = routing_of(c.model, Routing{});
}

// Requests of all attention groups, group by group, as a step numbers them; what each is asked.
void list_requests(const std::vector<Segment>& segments, const Plan& p, std::vector<long long>& lengths,
                   Tokens& asked) {
  for (int copy = 0; copy < p.dp * p.batch; ++copy) {
    for (const Segment& s : segments) {
      for (int i = 0; i < s.count; ++i) {
        asked.push_back({static_cast<std::int32_t>(lengths.size()), s.cached, s.length()});
        lengths.push_back(s.length());
      }
    }
  }
}

// Ranks that share caches have as many keys where lengths divide, but not as many pairs of new tokens. Of
// whole caches all ranks have the same.
Charges charges_of(const Case& c, const Plan& p) {
  if (c.batch.kind() == StepKind::prefill || strategy(p.strategy).context_parallel())
    return Charges::every_rank;
  const CacheShare share = cache_share(c, first_attention(c.model), p);
  if (share.sharers.size == 1) return Charges::every_rank;
  const long long round = static_cast<long long>(share.block) * share.sharers.size;
  bool even = c.batch.kind() == StepKind::decode && p[kDrafts] == 0 && !has_local_attention(c.model);
  for (const Segment& d : c.batch.decode) even = even && d.length() % round == 0;
  return even ? Charges::every_rank : Charges::fullest_rank;
}

// What differs between runs of one prefill: its kernels, and how an engine's ranks share prompts.
struct Variant {
  const char* name = "";
  AttentionKernel kernel = AttentionKernel::flash;
  bool whole = false;  // caches are whole on every rank, and latents are attended to absorbed [C26]
};

// An engine of which nothing else is asked here.
std::shared_ptr<const EngineProfile> with_whole_caches() {
  EngineProfile engine;
  engine.name = "whole caches";
  engine.context = {true, true, false};
  return std::make_shared<const EngineProfile>(std::move(engine));
}

void add_prefill(const Layers& layers, const CaseSizes& z, const Workload& w, Plan p,
                 std::vector<VerifyCase>& out, const Variant& variant = {}) {
  check_cancelled();
  VerifyCase v;
  v.study = small_case(layers, z);
  if (variant.whole) v.study.engine = with_whole_caches();
  v.study.batch = prefill_batch(w.requests);
  v.study.kernels.attention = variant.kernel;
  if (w.history) v.study.placement = turns(w.requests, p.cp);
  if (p.ep > 1)
    give_experts(v.study);
  else
    p.tpf = p.tpa;
  p.in_flight = p[kPrefillChunk] > 0 ? 1 : p.pp;
  if (check_plan(v.study, p)) return;
  v = verify_case_of(std::move(v.study), p);
  v.what = fmt::format("{}, {}{}, {}", layers.name, w.name, variant.name, to_string(p));
  out.push_back(std::move(v));
}

// A step of these requests: some decode, others may be prefilled beside them.
void add_step(const Strategy& s, const Layers& layers, const CaseSizes& z, const char* what,
              const Batch& batch, Plan p, std::vector<VerifyCase>& out) {
  check_cancelled();
  VerifyCase v;
  v.study = small_case(layers, z);
  v.study.batch = batch;
  p.in_flight = p.pp;
  if (p.ep == 1) p.tpf = s.weights == WeightSharing::attention_tp ? p.tpa : p.ranks_per_stage();
  if (p.ep > 1) give_experts(v.study);
  if (check_plan(v.study, p)) return;
  v = verify_case_of(std::move(v.study), p);
  v.what = fmt::format("{}, {}, {}", layers.name, what, to_string(p));
  out.push_back(std::move(v));
}

void trial(const Strategy& s, const VerifyTrial& t, std::vector<Plan>& out) {
  if (s.verify)
    s.verify(t, out);
  else
    out.push_back(t.base);
}

// Prefills of every workload, under flash attention and, where the strategy is run so, eager.
void add_prefills(const Strategy& s, const Layers& layers, const CaseSizes& z, int tpa,
                  std::vector<VerifyCase>& out) {
  const Workload workloads[] = {
      {"48 tokens", {{0, 48}}},
      {"41 tokens", {{0, 41}}},
      {"3 tokens", {{0, 3}}},
      {"sequences of 31, 5 and 18", {{0, 31}, {0, 5}, {0, 18}}},
      {"12 new after 36 cached", {{36, 12}}},
      {"7 new after 29 and 10 after 4", {{29, 7}, {4, 10}}},
      {"9 and 4 new after several turns", {{33, 9}, {50, 4}}, true},
  };
  for (const Workload& w : workloads) {
    for (const int cp : s.context_parallel() ? std::vector{2, 3, 4} : std::vector{1}) {
      Plan base;
      base.strategy = id_of(s);
      base.cp = cp;
      base.tpa = tpa;
      base.batch = w.requests.size() == 1 && tpa == 2 && !w.history ? 2 : 1;
      Case study = small_case(layers, z);
      study.batch = prefill_batch(w.requests);
      std::vector<Plan> plans;
      trial(s, {study, base, z.retaining}, plans);
      for (const Plan& p : plans) {
        add_prefill(layers, z, w, p, out);
        if (s.eager && (cp == 3 || !listed_parts(p).empty()))
          add_prefill(layers, z, w, p, out, {", eager", AttentionKernel::eager});
        if (s.launched_as == LaunchedAs::prefill_cp)
          add_prefill(layers, z, w, p, out, {", whole caches", AttentionKernel::flash, true});
      }
    }
  }
}

void add_decodes(const Strategy& s, const Layers& layers, const CaseSizes& z, int tpa,
                 std::vector<VerifyCase>& out) {
  for (const long long context : {48LL, 45LL}) {
    for (const int batch : {1, 4, 5}) {
      for (const int cp : s.context_parallel() ? std::vector{2, 3, 4} : std::vector{1}) {
        Plan base;
        base.strategy = id_of(s);
        base.tpa = tpa;
        base.batch = batch;
        base.cp = cp;
        Case study = small_case(layers, z);
        study.batch = decode_batch(context);
        std::vector<Plan> plans;
        trial(s, {study, base, z.retaining}, plans);
        const std::string what = fmt::format("{} tokens", context);
        for (const Plan& p : plans) add_step(s, layers, z, what.c_str(), study.batch, p, out);
      }
    }
  }
}

// Two drafts are verified: three tokens of each request are new, and see those of them before.
void add_drafted(const Strategy& s, const Layers& layers, const CaseSizes& z, int tpa,
                 std::vector<VerifyCase>& out) {
  struct Drafted {
    const char* name;
    Batch batch;
  };
  const Drafted steps[] = {
      {"46 tokens and drafts", {{{45, 1}}, {}}},
      {"43, 21 and 2 tokens and drafts", {{{42, 1}, {20, 1}, {1, 1}}, {}}},
  };
  if (!s.reads(kDrafts)) return;
  for (const Drafted& d : steps) {
    for (const int batch : {1, 3}) {
      Plan base;
      base.strategy = id_of(s);
      base.tpa = tpa;
      base.batch = batch;
      Case study = small_case(layers, z);
      study.batch = d.batch;
      std::vector<Plan> plans;
      trial(s, {study, base, z.retaining}, plans);
      for (Plan& p : plans) {
        p.set(kDrafts, 2);
        add_step(s, layers, z, d.name, d.batch, p, out);
      }
    }
  }
}

// Requests of unequal length that decode beside whole prefills, first chunks and later ones.
void add_mixed_steps(const Strategy& s, const Layers& layers, const CaseSizes& z, int tpa,
                     std::vector<VerifyCase>& out) {
  struct Mixed {
    const char* name;
    Batch batch;
  };
  const Mixed steps[] = {
      {"2 of 48 tokens decode, 16 new after 32 and 16 new", {{{47, 1, 2}}, {{32, 16}, {0, 16}}}},
      {"45 and 31 tokens decode, 9 new after 23", {{{44, 1}, {30, 1}}, {{23, 9}}}},
      {"40, 17 and 17 tokens decode, 7 new after 29, 5 new and 3 new after 16",
       {{{39, 1}, {16, 1, 2}}, {{29, 7}, {0, 5}, {16, 3}}}},
  };
  for (const Mixed& m : steps) {
    for (const int batch : {1, 2}) {
      Plan base;
      base.strategy = id_of(s);
      base.tpa = tpa;
      base.batch = batch;
      Case study = small_case(layers, z);
      study.batch = m.batch;
      std::vector<Plan> plans;
      trial(s, {study, base, z.retaining}, plans);
      for (const Plan& p : plans) add_step(s, layers, z, m.name, m.batch, p, out);
    }
  }
}

}  // namespace

VerifyCase verify_case_of(Case study, const Plan& plan) {
  VerifyCase v;
  v.study = std::move(study);
  v.plan = plan;
  std::vector<long long> lengths;
  Tokens expected;
  std::vector<Segment> decoding = v.study.batch.decode;
  for (Segment& d : decoding) d = with_drafts(d, plan);
  list_requests(decoding, plan, lengths, expected);
  list_requests(v.study.batch.prefill, plan, lengths, expected);
  v.kinds = problems_of(v.study, lengths, expected);
  if (describes_layer(v.study, plan)) {
    v.kinds.front().hidden = v.study.model.hidden;
    v.kinds.front().ffn_inner = one_ffn(v.study.model)->inner;
  }
  for (Problem& p : v.kinds) {
    p.every_state = plan[kDrafts] > 0 && v.study.batch.kind() == StepKind::decode;
    if (!strategy(plan.strategy).exact) define_blocks(p, plan);
  }
  v.charges = charges_of(v.study, plan);
  return v;
}

std::vector<VerifyCase> verify_cases(const Strategy& s, const CaseSizes& z) {
  std::vector<VerifyCase> out;
  for (const Layers& layers : verify_layers()) {
    for (const int tpa : {1, 2}) {
      if (s.prefills) add_prefills(s, layers, z, tpa, out);
      if (s.decodes) add_decodes(s, layers, z, tpa, out);
      if (s.mixes) add_mixed_steps(s, layers, z, tpa, out);
      if (s.decodes) add_drafted(s, layers, z, tpa, out);
    }
  }
  return out;
}

Schedule verify_schedule(const VerifyCase& c) {
  Schedule s;
  s.flow = std::make_shared<Dataflow>();
  lower(s, c.study, c.plan);
  return s;
}

Check run_case(const VerifyCase& c) {
  CheckOptions options;
  options.charges = c.charges;
  return check(verify_schedule(c), c.kinds, options);
}

}  // namespace shardline::cli
