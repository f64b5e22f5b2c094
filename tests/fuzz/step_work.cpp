#include "tests/fuzz/step_work.hpp"

#include <algorithm>
#include <cmath>

#include "planner/layers/share.hpp"
#include "planner/search/memory.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace shardline::fuzz {

namespace {

constexpr double kRounding = 1e-9;

bool equal(double a, double b) { return std::abs(a - b) <= kRounding * std::max(std::abs(a), std::abs(b)); }
bool below(double a, double b) { return a <= b * (1 + kRounding); }

// One device without any sharding that has one attention group's requests.
Plan alone(const Plan& p) {
  Plan one;
  one.strategy = strategy_id("tensor");
  one.batch = p.batch;
  if (strategy(one.strategy).reads(kDrafts)) one.set(kDrafts, p[kDrafts]);
  return one;
}

// Of all requests of the step, one head of one layer, token by token.
double mask(const Case& c, const Plan& p, const Reach& reach) {
  double pairs = 0;
  const auto add = [&](const Segment& s) {
    double own = 0;
    for (long long t = s.cached; t < s.length(); ++t) own += static_cast<double>(t - reach.first(t) + 1);
    pairs += own * s.count;
  };
  for (const Segment& s : c.batch.decode) add(with_drafts(s, p));
  for (const Segment& s : c.batch.prefill) add(s);
  return pairs * static_cast<double>(p.dp) * p.batch;
}

// A part of a step's work: of all ranks of its stages, one microbatch.
struct Work {
  double pairs = 0;    // of attention, times its query heads
  double dense = 0;    // operations of a dense network's products
  double experts = 0;  // of routed experts' products
  double qkv = 0;      // of the projections into attention
};

Work work_of(const Schedule& s) {
  Work w;
  const std::vector<double> runs = executions(s);
  for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
    for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
      for (int r = 0; r < s.ranks_per_stage; ++r) {
        if (!takes_part(s.ops[i], r)) continue;
        const Op op = s.op_of_class(i, s.class_of(r));
        if (is_attention(op.kind)) w.pairs += runs[b] * exponentials(op).value;
        if (!is_gemm(op.kind)) continue;
        double& to = op.kind == OpKind::grouped_gemm ? w.experts : op.part == Part::ffn ? w.dense : w.qkv;
        if (op.kind == OpKind::grouped_gemm || op.part == Part::ffn || op.part == Part::qkv)
          to += runs[b] * flops(op).value;
      }
    }
  }
  return w;
}

bool divides(const Case& c, const Plan& p) {
  for (const Attention& a : c.model.attentions) {
    if (a.kind != AttentionKind::gqa || a.q_heads % p.tpa != 0 || a.kv_heads % p.tpa != 0 || a.index ||
        a.gate != OutputGate::none)
      return false;
  }
  for (const FeedForward& f : c.model.ffns) {
    if (f.routed() ? f.inner % p.tpf != 0 || f.experts % p.ep != 0 : f.inner % dense_ffn_ranks(p) != 0)
      return false;
  }
  return true;
}

// Attention to all that a mask leaves, each pair on one rank: the pairs of the mask.
void check_pairs(const StepCase& step, const Work& w) {
  const Case& c = *step.study;
  const Plan& p = step.plan;
  double whole = 0, least = 0;
  bool exact = strategy(p.strategy).exact && c.kernels.attention == AttentionKernel::flash;
  bool even = true;
  for (std::size_t i = 0; i < c.model.attentions.size(); ++i) {
    const Attention& a = c.model.attentions[i];
    if (a.recurrent() || a.none()) continue;
    if (a.index || a.compression) exact = false;  // what is chosen, and rows, are counted by the executors
    const double own = mask(c, p, a.reach) * a.q_heads * layers_of_attention(c.model, static_cast<int>(i));
    whole += own;
    least += own;
    even = even && a.q_heads % p.tpa == 0 && cache_share(c, a, p).sharers.size == 1;
  }
  if (!exact || p[kDrafts] > 0) return;  // modules that draft attend, too
  require(below(least, w.pairs), "all ranks together compute every pair of the mask");
  // Decoding requests that are dealt out fill their ranks' share up; ranks that share a cache pay for the
  // fullest.
  const bool dealt = c.batch.decodes() && p.cp > 1;
  if (even && !dealt) require(equal(whole, w.pairs), "and none twice");
}

void check_products(const StepCase& step, const Schedule& schedule, const Work& w) {
  const Case& c = *step.study;
  const Plan& p = step.plan;
  static Schedule of_one;
  const Plan one = alone(p);
  Case of_device = c;
  of_device.placement = nullptr;  // of the plan's ranks; a device has all cached tokens
  if (check_plan(of_device, one)) return;
  lower(of_one, of_device, one);
  const Work single = work_of(of_one);
  const double groups = p.dp;
  if (!strategy(p.strategy).exact) return;
  require(below(single.dense * groups, w.dense), "ranks together do a dense network's products");
  require(below(single.qkv * groups, w.qkv), "ranks together project into attention");
  require(below(single.experts * groups, w.experts), "ranks together do the experts' products");
  const bool padded = (c.batch.decodes() && p.cp > 1) || schedule.rounds > 1 || p[kOverlap] != Overlap::none;
  if (!divides(c, p) || padded || p.kvp > 1 || p.cp > 1 || c.engine) return;
  // Every rank has the whole router.
  const bool routers = p.group() > 1 && std::any_of(c.model.ffns.begin(), c.model.ffns.end(),
                                                    [](const FeedForward& f) { return f.routed(); });
  if (!deals_tokens(p) && !routers) require(equal(single.dense * groups, w.dense), "and none of these twice");
  bool uniform = true;
  for (const auto& r : c.routing) uniform = uniform && (!r || r->routing() == Routing{});
  if (uniform) require(equal(single.experts * groups, w.experts), "and no expert's twice");
  if (p.tpa <= least_kv_heads(c.model) && std::string_view(strategy(p.strategy).name) != "dcp")
    require(equal(single.qkv * groups, w.qkv), "and no projection twice");
}

// Rows that the fullest of the sharers holds of a request, token by token.
long long fullest(const CacheShare& share, long long first, long long end) {
  std::vector<long long> held(static_cast<std::size_t>(share.sharers.size), 0);
  for (long long t = first; t < end; ++t)
    ++held[static_cast<std::size_t>(t / share.block % share.sharers.size)];
  return *std::max_element(held.begin(), held.end());
}

// Every rank of a stage holds the rows of its share, of the heads that it has.
void check_cache(const StepCase& step) {
  const Case& c = *step.study;
  const Plan& p = step.plan;
  if (p.pp > 1 || p.cp > 1 || c.engine || p[kDrafts] > 0 || has_recurrence(c.model)) return;
  double rank = 0, whole = 0;
  for (std::size_t i = 0; i < c.model.attentions.size(); ++i) {
    const Attention& a = c.model.attentions[i];
    if (a.none() || a.index) return;
    if (a.reach.local()) return;  // what is kept of a window moves on: tests/planner/layer_kinds_test.cpp
    const CacheShare share = cache_share(c, a, p);
    const double layers = layers_of_attention(c.model, static_cast<int>(i));
    const double row = a.kind == AttentionKind::mla
                           ? a.kv_lora_rank + a.rope_dim
                           : static_cast<double>(a.kv_heads) * (a.head_dim + value_width(a));
    const double heads =
        a.kind == AttentionKind::mla ? 1 : std::ceil(static_cast<double>(a.kv_heads) / p.tpa) / a.kv_heads;
    for (const auto* list : {&c.batch.decode, &c.batch.prefill}) {
      for (const Segment& s : *list) {
        const double requests = static_cast<double>(s.count) * p.batch * p.in_flight * layers;
        rank += requests * static_cast<double>(fullest(share, 0, s.length())) * row * heads;
        whole += requests * static_cast<double>(s.length()) * row;
      }
    }
  }
  if (c.precision.kv != Dtype::bf16) return;  // layouts of narrow types have scales of their own [M14]
  const double held = memory_use(c, p).kv.value / bytes_per_element(c.precision.kv);
  require(equal(held, rank), "a rank holds its share of the cache");
  require(below(whole, held * p.group()), "and all ranks of a group the whole");
}

void check_weights(const StepCase& step) {
  const Case& c = *step.study;
  // What is known of stages is the memory of the fullest, whose weights need not be the most.
  if (step.plan.pp > 1 && c.model.runs.size() > 1) return;
  const Plan one = alone(step.plan);
  if (check_plan(c, one)) return;
  const double whole = memory_use(c, one).weights.value;
  require(below(whole, memory_use(c, step.plan).weights.value * step.plan.gpus()),
          "all ranks together hold every weight");
}

}  // namespace

void check_work(const StepCase& step, const Schedule& schedule) {
  const Work w = work_of(schedule);
  check_pairs(step, w);
  check_products(step, schedule, w);
  check_cache(step);
  check_weights(step);
}

}  // namespace shardline::fuzz
