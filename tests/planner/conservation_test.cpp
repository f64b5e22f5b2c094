// What the ranks of a schedule read and compute, added up, is the cache and the causal mask. Both are counted
// here from the model's definition, batch and lengths alone: nothing of the lowering or of an executor is
// used but the shapes of the ops. A new strategy states here how often it reads the KV.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "planner/search/evaluate.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/planner/support.hpp"

namespace shardline {
namespace {

constexpr double kElementBytes = 2;

Case conservation_case(const std::string& model, const std::string& system) {
  Case c = decode_case(model, system, 0);
  c.precision = {Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};
  cut_layers(c, 4, has_dense(c.model) ? 1 : 0);
  return c;
}

struct Attention {
  std::vector<double> bytes;  // of KV, by rank
  double pairs = 0;           // of all ranks and heads
};

void add(const Schedule& s, OpIndex op, Attention& sum) {
  sum.bytes.resize(static_cast<std::size_t>(s.ranks_per_stage));
  for (int r = 0; r < s.ranks_per_stage; ++r) {
    const Op one = s.op_of_class(op, s.class_of(r));
    sum.bytes[static_cast<std::size_t>(r)] += kv_bytes(one).value;
    sum.pairs += exponentials(one).value;  // one per pair and query head [G3]
  }
}

Attention all_attention(const Schedule& s) {
  Attention sum;
  for (OpIndex i = 0; i < s.ops.size(); ++i) {
    if (is_attention(s.ops[i].kind)) add(s, i, sum);
  }
  return sum;
}

double total(const Attention& a) {
  double bytes = 0;
  for (const double b : a.bytes) bytes += b;
  return bytes;
}

// Heads (of `all`) on each of `parts` ranks; where there are fewer heads than ranks, several hold a copy.
double heads_of_part(int all, int parts) { return std::ceil(static_cast<double>(all) / parts); }

// Ranks of a TP group that share one cache by sequence instead of holding it each.
double sharers(const Plan& p) {
  for (const OptionValues::Value& v : p.options.all()) {
    if (v.option->key == std::string_view("dcp")) return v.value;
  }
  return 1;
}

const std::vector<std::string> kModels{"deepseek-r1", "llama-3.1-405b", "qwen3-235b-a22b", "falcon-7b"};

template <class F>
void for_every_plan(const Case& c, const std::vector<int>& gpus, F f) {
  SearchSpace space;
  with_hopb_chunks(space, {1, 3});
  space.duplicate_kv = true;
  for (const Strategy* s : strategies()) {
    for (const int n : gpus) {
      std::vector<Plan> plans;
      s->enumerate(c, n, space, plans);
      for (const Plan& p : plans) {
        SCOPED_TRACE(to_string(p));
        f(*s, p);
      }
    }
  }
}

// A decode step reads the KV of its batch once, wherever it lies: each rank the rows that it holds.
TEST(Conservation, ADecodeStepReadsEachRanksKvOnce) {
  for (const std::string& model : kModels) {
    SCOPED_TRACE(model);
    Case c = conservation_case(model, "gb200-nvl72");
    c.batch = decode_batch(16 * 1680);  // whole blocks on any number of shards below
    const auto& a = c.model.attentions.front();
    const bool mla = a.kind == AttentionKind::mla;
    Schedule s;
    std::map<std::string, int> seen;
    for_every_plan(c, {1, 4, 8, 16}, [&](const Strategy& strategy, Plan p) {
      ++seen[strategy.name];
      for (const int batch : {least_batch(c, p), 5, 8, 24}) {
        if (batch < least_batch(c, p)) continue;
        p.batch = batch;
        lower(s, c, p);
        const Attention read = all_attention(s);
        const double per_token = kElementBytes * (mla ? a.kv_lora_rank + a.rope_dim
                                                      : 2.0 * heads_of_part(a.kv_heads, p.tpa) * a.head_dim);
        const double copies = p.tpa / sharers(p), shards = p.kvp * p.cp * sharers(p);
        const auto context = static_cast<double>(c.longest());
        // Queries that are dealt out are padded to as many on every rank.
        const double requests = std::ceil(static_cast<double>(batch) / p.cp) * p.cp;
        EXPECT_DOUBLE_EQ(total(read), per_token * copies * p.dp * requests * context) << "batch " << batch;
        for (const double bytes : read.bytes) {
          EXPECT_GE(bytes, per_token * requests * std::floor(context / shards));
          EXPECT_LE(bytes, per_token * requests * std::ceil(context / shards));
        }
        if (a.q_heads % p.tpa != 0) continue;  // heads are rounded up
        EXPECT_DOUBLE_EQ(read.pairs, a.q_heads * p.dp * requests * context);
      }
    });
    for (const Strategy* strategy : strategies()) {
      // No even number of ranks divides the 71 query heads of a model.
      const bool impossible = (id_of(*strategy) == strategy_id("dp_ep") && !has_experts(c.model)) ||
                              (id_of(*strategy) == strategy_id("dcp") && a.q_heads % 2 != 0);
      const bool possible = strategy->decodes && !impossible;
      EXPECT_EQ(seen[strategy->name] > 0, possible) << strategy->name;
    }
  }
}

// How often the KV of all tokens is read in a layer by the context-parallel ranks of one TP rank.
double reads(const Strategy& s, const Case& c, const Plan& p) {
  const std::string name = s.name;
  if (name == "tensor" || name == "pipeline" || name == "dp_ep") return 1;
  // Every iteration of a ring reads what each rank holds; after a gather each rank reads all.
  if (name == "ring_pass_kv" || name == "ring_pass_q" || name == "allgather_kv" || name == "tsp") return p.cp;
  if (name == "striped") return p.cp;
  if (name == "ulysses") {
    const auto& a = c.model.attentions.front();
    const double heads = heads_of_part(a.kind == AttentionKind::mla ? a.q_heads : a.kv_heads, p.tpa);
    return std::max(1.0, p.cp / heads);
  }
  // A ring of the groups, each of whose ranks reads its heads.
  if (name == "usp") return static_cast<double>(p.cp) / p.options.all()[0].value;
  if (name == "kv_runahead") {
    double rows = 0, all = 0;
    for (const Segment& r : c.batch.prefill) {
      long long prefix = 0;
      for (int k = 0; k < p.cp; ++k) {
        prefix += r.fresh / p.cp + (k < r.fresh % p.cp ? 1 : 0);
        rows += static_cast<double>(prefix);
      }
      all += static_cast<double>(r.fresh);
    }
    return rows / all;
  }
  ADD_FAILURE() << "how often does " << name << " read the KV?";
  return 0;
}

TEST(Conservation, APrefillReadsWhatItsRanksHoldAndComputesTheMask) {
  // Even, uneven with several sequences, and partial.
  const std::vector<std::vector<Segment>> workloads{
      {{0, 96'000}}, {{0, 70'001}, {0, 777}}, {{100'003, 2'000}, {5'000, 900}}};
  for (const std::string& model : kModels) {
    for (const auto& requests : workloads) {
      Case c = conservation_case(model, "h100-gtt");
      c.batch = prefill_batch(requests);
      const auto& a = c.model.attentions.front();
      double tokens = 0, mask = 0;
      for (const Segment& r : requests) {
        const auto t = static_cast<double>(r.fresh);
        tokens += static_cast<double>(r.cached) + t;
        mask += t * static_cast<double>(r.cached) + t * (t + 1) / 2;
      }
      Schedule s;
      for_every_plan(c, {1, 4, 8, 24}, [&](const Strategy& strategy, const Plan& p) {
        if (!strategy.exact) return;
        lower(s, c, p);
        const Attention read = all_attention(s);
        const double per_token =
            kElementBytes * (a.kind == AttentionKind::mla
                                 ? heads_of_part(a.q_heads, p.tpa) * (a.nope_dim + a.rope_dim + a.v_dim)
                                 : heads_of_part(a.kv_heads, p.tpa) * 2.0 * a.head_dim);
        EXPECT_DOUBLE_EQ(total(read), per_token * p.tpa * p.dp * tokens * reads(strategy, c, p));
        if (a.q_heads % p.tpa == 0) {
          EXPECT_DOUBLE_EQ(read.pairs, p.dp * mask * a.q_heads);
        }
      });
    }
  }
}

// In each iteration of a ring a rank reads what one rank holds, and all of them together everything.
TEST(Conservation, EachIterationOfARingReadsEveryRanksKvOnce) {
  Case c = conservation_case("llama-3.1-405b", "h100-gtt");
  c.batch = prefill_batch({{100'003, 2'001}, {5'001, 900}});
  const double per_token = kElementBytes * 2 * 128;
  for (const char* text : {"ring_pass_kv:cp=4,tpa=8,tpf=8,batch=1", "ring_pass_q:cp=4,tpa=8,tpf=8,batch=1",
                           "striped:cp=4,tpa=8,tpf=8,batch=1"}) {
    SCOPED_TRACE(text);
    const Plan p = parse_plan(text);
    Schedule s;
    lower(s, c, p);
    int iterations = 0;
    for (OpIndex i = 0; i < s.ops.size(); ++i) {
      if (!is_attention(s.ops[i].kind)) continue;
      ++iterations;
      Attention one;
      add(s, i, one);
      EXPECT_DOUBLE_EQ(total(one), 8 * per_token * (100'003 + 2'001 + 5'001 + 900));
      for (const double bytes : one.bytes) {
        EXPECT_GE(bytes, per_token * (102'004 / 4 + 5'901 / 4));
        EXPECT_LE(bytes, per_token * (102'004 / 4 + 5'901 / 4 + 2));
      }
    }
    EXPECT_EQ(iterations, 4);
  }
}

}  // namespace
}  // namespace shardline
