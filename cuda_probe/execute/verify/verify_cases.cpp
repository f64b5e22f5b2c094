#include "cuda_probe/execute/verify/verify_cases.hpp"

#include <fmt/format.h>

namespace shardline::cli {

namespace {

struct Heads {
  const char* name;
  AttentionKind kind;
  int q, kv;
};
constexpr Heads kHeads[] = {{"MHA 8/8 heads", AttentionKind::gqa, 8, 8},
                            {"GQA 8/2 heads", AttentionKind::gqa, 8, 2},
                            {"MQA 8/1 heads", AttentionKind::gqa, 8, 1},
                            {"MLA 8 heads", AttentionKind::mla, 8, 1}};

Model small_model(const Heads& h, const CaseSizes& z) {
  Model m;
  m.name = "small";
  m.layers = m.dense_layers = 2;
  m.hidden = z.hidden;
  m.ffn_inner = z.inner;
  m.vocab = 32;
  m.attention.kind = h.kind;
  m.attention.q_heads = h.q;
  m.attention.kv_heads = h.kv;
  if (h.kind == AttentionKind::mla) {
    m.attention.kv_lora_rank = z.kv_lora;
    m.attention.rope_dim = z.rope;
    m.attention.nope_dim = z.nope;
    m.attention.v_dim = z.mla_v;
  } else {
    m.attention.head_dim = z.head_dim;
  }
  return m;
}

Case small_case(const Heads& h, const CaseSizes& z) {
  Case c;
  c.model = small_model(h, z);
  c.system.fabric.nodes = 64;
  c.system.fabric.gpus_per_node = 8;
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  c.kv_block = 4;
  return c;
}

Problem problem_of(const Case& c, const std::vector<long long>& lengths) {
  const Attention& a = c.model.attention;
  const bool mla = a.kind == AttentionKind::mla, absorbed = mla && c.phase == Phase::decode;
  Problem p;
  p.q_heads = a.q_heads;
  p.kv_heads = absorbed ? 0 : mla ? a.q_heads : a.kv_heads;
  p.qk_dim = absorbed ? a.kv_lora_rank + a.rope_dim : mla ? a.nope_dim + a.rope_dim : a.head_dim;
  p.v_dim = absorbed ? a.kv_lora_rank : mla ? a.v_dim : a.head_dim;
  p.value_up = absorbed ? a.v_dim : 0;
  p.lengths.assign(lengths.begin(), lengths.end());
  p.seed = 7;
  return p;
}

// What a prefill starts from: requests and, after several turns, where their caches lie.
struct Workload {
  const char* name;
  std::vector<Request> requests;
  bool history = false;
};

// Turns of new and decoded tokens that leave `cached` tokens.
std::shared_ptr<const Placement> turns(const std::vector<Request>& requests, int ranks) {
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
void define_blocks(VerifyCase& v) {
  const Plan& plan = v.plan;
  Problem& p = v.problem;
  p.blocks = {plan.cp, plan.anchor, plan.passing, plan.query, plan.passing > 0 ? plan.retaining : 0};
  p.expected_queries.clear();
  std::vector<std::int64_t> anchors;
  for (std::int64_t& length : p.lengths) {
    const auto r = static_cast<std::int32_t>(anchors.size());
    p.expected_queries.push_back({r, 0, length});
    anchors.push_back(anchor_length(p.blocks, length));
    length += plan.query;
  }
  for (const std::int64_t length : anchors) {
    p.expected_queries.push_back({static_cast<std::int32_t>(p.lengths.size()), 0, length});
    p.lengths.push_back(length);
  }
}

void add_prefill(const Strategy& s, const Heads& h, const CaseSizes& z, const Workload& w, Plan p,
                 std::vector<VerifyCase>& out, AttentionKernel kernel = AttentionKernel::flash) {
  VerifyCase v;
  v.study = small_case(h, z);
  v.study.phase = Phase::prefill;
  v.study.requests = w.requests;
  v.study.kernels.attention = kernel;
  if (w.history) v.study.placement = turns(w.requests, p.cp);
  p.strategy = s.id;
  p.tpf = p.tpa;
  p.in_flight = p.prefill_chunk > 0 ? 1 : p.pp;
  v.plan = p;
  if (check_plan(v.study, p)) return;
  std::vector<long long> lengths;
  bool cached = false;
  Tokens expected;
  for (int copy = 0; copy < p.batch; ++copy) {
    for (const Request& r : w.requests) {
      expected.push_back({static_cast<std::int32_t>(lengths.size()), r.cached, r.cached + r.fresh});
      lengths.push_back(r.cached + r.fresh);
      cached = cached || r.cached > 0;
    }
  }
  v.problem = problem_of(v.study, lengths);
  v.problem.expected_queries = expected;
  // Without a cache, and with an attention that starts from the hidden state, a whole layer is run. All
  // chunks but the first have a cache.
  if (!cached && p.prefill_chunk == 0 && h.kind == AttentionKind::gqa) {
    v.problem.hidden = z.hidden;
    v.problem.ffn_inner = z.inner;
  }
  if (!s.exact) define_blocks(v);
  const char* eager = kernel == AttentionKernel::eager ? ", eager" : "";
  v.what = fmt::format("{}, {}{}, {}", h.name, w.name, eager, to_string(p));
  out.push_back(std::move(v));
}

void add_blocks(const Strategy& s, const Heads& h, const CaseSizes& z, const Workload& w, Plan p,
                std::vector<VerifyCase>& out) {
  if (s.id == StrategyId::star) {
    for (const int query : {0, 3}) {
      p.query = query;
      add_prefill(s, h, z, w, p, out);
    }
    return;
  }
  struct Sizes {
    int anchor, passing, query;
  };
  for (const Sizes& n : {Sizes{1, 1, 0}, Sizes{4, 2, 3}, Sizes{2, 5, 1}}) {
    p.anchor = n.anchor;
    p.passing = n.passing;
    p.query = n.query;
    p.retaining = z.retaining;
    add_prefill(s, h, z, w, p, out);
  }
}

// Parts in the ratio of ranks : ranks - 1 : ... : 1; the first takes the rest.
std::vector<long long> falling_partition(long long tokens, int ranks) {
  std::vector<long long> parts;
  for (int k = 0; k < ranks; ++k) parts.push_back(tokens * 2 * (ranks - k) / (ranks * (ranks + 1)));
  for (int k = 1; k < ranks; ++k) tokens -= parts[static_cast<std::size_t>(k)];
  parts.front() = tokens;
  return parts;
}

void add_decode(const Strategy& s, const Heads& h, const CaseSizes& z, long long context, Plan p,
                std::vector<VerifyCase>& out) {
  VerifyCase v;
  v.study = small_case(h, z);
  v.study.context = context;
  p.strategy = s.id;
  p.in_flight = p.pp;
  p.tpf = s.id == StrategyId::kv_shard || s.context_parallel ? p.tpa : p.ranks_per_stage();
  // Attention data parallelism spreads whole experts; its attention is that of a dense model.
  if (s.id == StrategyId::dp_ep) {
    v.study.model.dense_layers = 0;
    v.study.model.ffn_inner = 0;
    v.study.model.experts = 16;
    v.study.model.experts_per_token = 2;
    v.study.model.expert_inner = 8;
    v.study.routing = std::make_shared<const ExpertRouting>(16, 2, Routing{});
    p.ep = p.ranks_per_stage();
    p.tpf = 1;
  }
  v.plan = p;
  if (check_plan(v.study, p)) return;
  const int requests = p.dp * p.batch;
  v.problem = problem_of(v.study, std::vector<long long>(static_cast<std::size_t>(requests), context));
  for (int r = 0; r < requests; ++r) v.problem.expected_queries.push_back({r, context - 1, context});
  const bool even = s.context_parallel || context % (static_cast<long long>(v.study.kv_block) * p.kvp) == 0;
  if (!even) v.charges = Charges::fullest_rank;
  v.what = fmt::format("{}, {} tokens, {}", h.name, context, to_string(p));
  out.push_back(std::move(v));
}

}  // namespace

std::vector<VerifyCase> verify_cases(const Strategy& s, const CaseSizes& z) {
  if (s.id == StrategyId::sparse) return {};  // timed only
  const Workload workloads[] = {
      {"48 tokens", {{0, 48}}},
      {"41 tokens", {{0, 41}}},
      {"3 tokens", {{0, 3}}},
      {"sequences of 31, 5 and 18", {{0, 31}, {0, 5}, {0, 18}}},
      {"12 new after 36 cached", {{36, 12}}},
      {"7 new after 29 and 10 after 4", {{29, 7}, {4, 10}}},
      {"9 and 4 new after several turns", {{33, 9}, {50, 4}}, true},
  };
  std::vector<VerifyCase> out;
  for (const Heads& h : kHeads) {
    for (const int tpa : {1, 2}) {
      if (s.prefills) {
        for (const Workload& w : workloads) {
          for (const int cp : s.context_parallel ? std::vector{2, 3, 4} : std::vector{1}) {
            Plan p;
            p.cp = cp;
            p.tpa = tpa;
            p.pp = s.id == StrategyId::pipeline ? 2 : 1;
            p.batch = w.requests.size() == 1 && tpa == 2 ? 2 : 1;
            if (w.history) p.batch = 1;
            if (!s.exact) {
              add_blocks(s, h, z, w, p, out);
              continue;
            }
            add_prefill(s, h, z, w, p, out);
            if (s.id == StrategyId::ring_pass_kv) {
              p.layout = ShardOrder::contiguous;
              add_prefill(s, h, z, w, p, out);
            }
            for (const int chunk : {7, 16}) {
              p.prefill_chunk = chunk;
              if (!s.context_parallel) add_prefill(s, h, z, w, p, out);
            }
            p.prefill_chunk = 0;
            if (s.id != StrategyId::kv_runahead && s.id != StrategyId::tsp) continue;
            if (cp == 3) add_prefill(s, h, z, w, p, out, AttentionKernel::eager);
            if (s.id != StrategyId::kv_runahead || w.requests.size() > 1) continue;
            p.partition = falling_partition(w.requests.front().fresh, cp);
            for (const AttentionKernel kernel : {AttentionKernel::flash, AttentionKernel::eager})
              add_prefill(s, h, z, w, p, out, kernel);
          }
        }
      }
      if (!s.decodes) continue;
      for (const long long context : {48LL, 45LL}) {
        for (const int batch : {1, 4, 5}) {
          Plan p;
          p.tpa = tpa;
          p.batch = batch;
          p.pp = s.id == StrategyId::pipeline ? 2 : 1;
          p.dp = s.id == StrategyId::dp_ep ? 2 : 1;
          const bool sharded = s.id == StrategyId::kv_shard || s.id == StrategyId::helix;
          for (const int shards : sharded || s.context_parallel ? std::vector{2, 3, 4} : std::vector{1}) {
            (sharded ? p.kvp : p.cp) = shards;
            // Slices of the heads must be even for the charge to be that of every rank.
            if (s.id == StrategyId::helix && 8 / tpa % shards != 0) continue;
            if (s.id != StrategyId::helix) {
              add_decode(s, h, z, context, p, out);
              continue;
            }
            for (const int chunks : {1, 2, 3}) {
              p.chunks = chunks;
              for (const ValueUp up : {ValueUp::none, ValueUp::before, ValueUp::after}) {
                p.value_up = up;
                add_decode(s, h, z, context, p, out);
              }
            }
          }
        }
      }
    }
  }
  return out;
}

Schedule verify_schedule(const VerifyCase& c) {
  Schedule s;
  s.flow = std::make_shared<Dataflow>();
  strategy(c.plan.strategy).lower(s, c.study, c.plan);
  return s;
}

Check run_case(const VerifyCase& c) {
  CheckOptions options;
  options.charges = c.charges;
  return check(verify_schedule(c), c.problem, options);
}

}  // namespace shardline::cli
