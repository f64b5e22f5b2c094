#include "planner/layers/two_batches.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "planner/layers/cache_attention.hpp"
#include "planner/layers/share.hpp"

namespace shardline {

namespace {

// SMs that DeepEP's kernels of many tokens take (deepseek-ai/DeepEP, Buffer.num_sms; vLLM VLLM_DBO_COMM_SMS,
// vllm/envs.py:246@v0.24.0). Those of few tokens, in steps that decode, take none while they are awaited
// (vllm/distributed/device_communicators/all2all.py:324@v0.24.0).
constexpr int kMessageSms = 20;

using Ops = std::vector<const Op*>;

// A layer of one half, in the order in which it runs.
struct Halved {
  Ops prepare;  // up to attention
  Ops attend;   // attention, output projection, router
  const Op* dispatch = nullptr;
  Ops experts;
  Ops shared;  // of no message
  const Op* combine = nullptr;
  Ops behind;  // residual addition
};

Halved halved(const Schedule& layer) {
  Halved h;
  bool attends = false;
  for (const Op& op : layer.ops) {
    attends = attends || is_attention(op.kind) || op.kind == OpKind::attend_sparse;
    if (op.kind == OpKind::dispatch)
      h.dispatch = &op;
    else if (op.kind == OpKind::combine)
      h.combine = &op;
    else if (h.combine != nullptr)
      h.behind.push_back(&op);
    else if (h.dispatch != nullptr)
      (std::strncmp(op.name, "shared experts", 14) == 0 ? h.shared : h.experts).push_back(&op);
    else
      (attends ? h.attend : h.prepare).push_back(&op);
  }
  SL_CHECK(h.dispatch != nullptr && h.combine != nullptr, "tokens travel to experts and back");
  return h;
}

// Lays out pairs of computation and of a message beside it: both begin when the pair before has ended, as
// engines wait for a message before they send the next.
class Woven {
 public:
  Woven(ScheduleBuilder& b, double part) : b_(b), part_(part) {}

  void beside(const Op* message, std::initializer_list<const Ops*> computed) {
    std::vector<OpIndex> ends;
    bool first = true;
    for (const Ops* ops : computed) {
      for (const Op* op : *ops) {
        if (first) b_.after(joined_);
        const OpIndex at = copy(*op, Lane::compute, message != nullptr);
        ends.assign(1, at);
        first = false;
      }
    }
    if (message != nullptr) {
      b_.after(joined_);
      ends.push_back(copy(*message, Lane::communication, false));
    }
    if (!ends.empty()) joined_ = std::move(ends);
  }

 private:
  // What engines run on the stream of their kernels stays there: an all-reduce does not queue behind
  // messages.
  OpIndex copy(const Op& op, Lane lane, bool shares) {
    Op own = op;
    own.lane = lane;
    own.launches =
        is_gemm(op.kind) ? std::max(1.0, op.launches) : op.launches;  // no longer in one with others
    if (shares && (is_gemm(op.kind) || is_attention(op.kind))) own.sms = part_;
    return b_.copy(own);
  }

  ScheduleBuilder& b_;
  const double part_;  // of the SMs, beside a message
  std::vector<OpIndex> joined_;
};

// What lies in [from, to) of the new tokens of these requests, one after the other.
std::vector<Segment> cut(const std::vector<Segment>& all, long long from, long long to) {
  std::vector<Segment> out;
  long long at = 0;
  for (const Segment& s : all) {
    for (int i = 0; i < s.count; ++i, at += s.fresh) {
      const long long first = std::max(from, at), last = std::min(to, at + s.fresh);
      if (first >= last) continue;
      const Segment part{s.cached + first - at, last - first, 1};
      const bool same = !out.empty() && out.back().cached == part.cached && out.back().fresh == part.fresh;
      if (same)
        ++out.back().count;
      else
        out.push_back(part);
    }
  }
  return out;
}

bool lags(const Case& c) {
  return c.engine && c.engine->two_batches == TwoBatches::lagging && !c.batch.prefills();
}

}  // namespace

std::optional<std::string> no_two_batches(const Case& c, const Plan& p) {
  if (!overlaps_batches(p)) return std::nullopt;
  if (p.dp == 1) return "overlap=two_batch hides what groups of attention send to experts: dp of 2 or more";
  if (p[kExpertTokens] == ExpertTokens::gather)
    return "overlap=two_batch hides what dispatch and combine send: not with moe_a2a=gather";
  const auto experts = [](const FeedForward& f) { return f.routed(); };
  if (has_partial_layers(c.model) || c.model.attentions.size() > 1 ||
      std::count_if(c.model.ffns.begin(), c.model.ffns.end(), experts) != 1)
    return "overlap=two_batch is for models with one kind of attention and one of experts";
  const Count tokens = decode_requests(c, p) + prefill_tokens(c, p);
  if (tokens < 2) return "overlap=two_batch needs two tokens in each group of attention";
  return std::nullopt;
}

Plan with_both_halves(const Case& c, Plan p) {
  if (no_two_batches(c, p)) p.set(kOverlap, Overlap::none);
  return p;
}

// Prices, topology and what else no lowering reads are left out: a copy of them takes longer than the rest.
Case half_of(const Case& c, const Plan& p, int which) {
  Case h;
  h.model = c.model;
  h.system.device = c.system.device;
  h.system.fabric = c.system.fabric;
  h.system.runtime = c.system.runtime;
  h.system.host = c.system.host;
  h.precision = c.precision;
  h.kv_block = c.kv_block;
  h.routing = c.routing;
  h.persistent_kv = c.persistent_kv;
  h.kernels = c.kernels;
  h.engine = c.engine;
  h.graph_parts = 2;
  // In the order of an engine's tokens: those that decode, then prompts.
  const long long decoding = decode_requests(c, p), half = (decoding + prefill_tokens(c, p)) / 2;
  const auto repeated = [&](std::vector<Segment> all) {
    for (Segment& s : all) s.count *= p.batch;
    return all;
  };
  const long long first = which == 0 ? 0 : half, end = which == 0 ? half : decoding + prefill_tokens(c, p);
  h.batch.decode = cut(repeated(c.batch.decode), first, end);
  h.batch.prefill = cut(repeated(c.batch.prefill), first - decoding, end - decoding);
  return h;
}

void weave_halves(ScheduleBuilder& b, const Case& c, const std::array<Schedule, 2>& layer, WovenPart part) {
  const Halved zero = halved(layer[0]), one = halved(layer[1]);
  const Device& d = c.system.device;
  const int sms = d.multiprocessors > 0 ? d.multiprocessors : d.sms;
  const bool takes = c.batch.prefills() && sms > kMessageSms;
  const bool opens = part == WovenPart::opening, closes = part == WovenPart::closing;
  b.begin_block(opens ? "two batches, first" : closes ? "two batches, last" : "two batches");
  Woven w(b, takes ? 1 - static_cast<double>(kMessageSms) / sms : 1);
  const Ops none;
  const auto next = [&](const Ops& ops) { return closes ? &none : &ops; };  // of the layer behind
  if (lags(c)) {
    // SGLang's decoding: half 1 is two stages behind (batch_overlap/operations_strategy.py:140-165@v0.5.14).
    if (opens) {
      w.beside(nullptr, {&zero.prepare, &zero.attend});
      w.beside(zero.dispatch, {&zero.shared, &one.prepare});
    } else {
      w.beside(nullptr, {&zero.experts});
      w.beside(zero.combine, {&one.attend});
      w.beside(one.dispatch, {&one.shared, &zero.behind, next(zero.prepare)});
      w.beside(nullptr, {&one.experts});
      w.beside(one.combine, {next(zero.attend)});
      w.beside(closes ? nullptr : zero.dispatch, {next(zero.shared), &one.behind, next(one.prepare)});
    }
  } else if (opens) {
    // vLLM's, and SGLang's of prompts (vllm docs/design/dbo.md@v0.24.0; operations_strategy.py:108-137).
    w.beside(nullptr, {&one.prepare, &one.attend});
    w.beside(one.dispatch, {&zero.prepare, &zero.attend});
  } else {
    w.beside(zero.dispatch, {&one.experts});
    w.beside(one.combine, {&one.shared, &zero.experts});
    w.beside(zero.combine, {&zero.shared, &one.behind, next(one.prepare), next(one.attend)});
    w.beside(closes ? nullptr : one.dispatch, {&zero.behind, next(zero.prepare), next(zero.attend)});
  }
  b.end_block();
}

}  // namespace shardline
