#include "calibrate/validate/apb_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "models/model/catalog.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

constexpr int kHosts = 8;
constexpr Precision kPrecision{Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, Dtype::bf16, {}, {}};

// The part of the paper's profile that an op of a layer belongs to, as the barriers of its code stand: the
// second norm and residual are inside of "ffn", merges inside of "attention", the choice of what is passed
// on between two parts.
ApbColumn part_of(const Op& op, std::string_view block) {
  const std::string_view name = op.name;
  if (is_communication(op.kind)) return ApbColumn::communication;
  if (block.ends_with("FFN")) return ApbColumn::ffn;
  if (name.starts_with("retaining")) return ApbColumn::retaining_head;
  if (is_attention(op.kind) || op.kind == OpKind::merge) return ApbColumn::attention;
  if (name == "qkv") return ApbColumn::qkv;
  if (name == "out projection") return ApbColumn::o_proj;
  return ApbColumn::others;
}

// What dist.barrier() is under NCCL: an all-reduce of one number.
Op barrier_of(int hosts) {
  Op op;
  op.kind = OpKind::all_reduce;
  op.drive = Drive::eager;
  op.group = {hosts, 1};
  op.shape = ExchangeShape{Bytes(4)};
  return op;
}

}  // namespace

int heads_of_all_layers(const Model& model) {
  int sum = 0;
  for (const LayerRun& run : model.runs)
    sum += run.count * model.attentions[static_cast<std::size_t>(run.attention)].q_heads;
  return sum;
}

Plan apb_plan(ApbMethod method, long long tokens, bool long_context) {
  static const std::array<StrategyId, kApbMethods> kIds{strategy_id("tensor"),  strategy_id("sparse"),
                                                        strategy_id("ulysses"), strategy_id("ring_pass_kv"),
                                                        strategy_id("star"),    strategy_id("apb")};
  Plan p;
  p.strategy = kIds[static_cast<std::size_t>(method)];
  if (method == ApbMethod::minference) {
    set_option(p, "vertical", 1000);
    set_option(p, "slash", 6096);
    set_option(p, "estimate", 64);
  }
  if (method == ApbMethod::flash || method == ApbMethod::minference) return p;
  p.cp = kHosts;
  if (method == ApbMethod::ring) set_option(p, "layout", "contiguous");
  if (method == ApbMethod::apb) {
    const auto block = static_cast<int>(tokens / kHosts);
    set_option(p, "anchor", std::min(block / 4, long_context ? 4096 : 8192));
    set_option(p, "passing", long_context ? std::min(block / 8, 2048) : block / 8);
    set_option(p, "retaining", 1024);
  }
  return p;
}

ApbModel::ApbModel(const std::string& system, const Catalogs& catalogs, Seconds head_call)
    : catalogs_(catalogs), system_(load_system(system, catalogs.systems)), head_call_(head_call) {}

Seconds ApbModel::head_calls(const std::string& model) const {
  return head_call_ * static_cast<double>(heads_of_all_layers(load_model(model, catalogs_.models)));
}

const ApbTimes& ApbModel::times(const std::string& model, ApbMethod method, long long tokens,
                                bool long_context, int batch) {
  const std::tuple key(model, method, tokens, long_context, batch);
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  Case c = make_case(load_model(model, catalogs_.models), system_, kPrecision, 0, 16, Routing{});
  c.batch = prefill_batch(std::vector<Segment>(static_cast<std::size_t>(batch), {0, tokens}));
  const Plan plan = apb_plan(method, tokens, long_context);
  if (const auto reason = check_plan(c, plan))
    throw UserError(fmt::format("plan {} is impossible for {}: {}", to_string(plan), model, *reason));
  ApbTimes t;
  Evaluator e(c);
  t.prefill = e.simulate(plan);
  if (method == ApbMethod::minference) t.prefill += head_calls(model);
  const Schedule& s = e.schedule();
  const Seconds barrier = plan.cp > 1 ? e.cost().time(barrier_of(plan.cp)) : Seconds(0);
  for (int k = 0; k < s.classes; ++k) {
    std::array<Seconds, kApbParts> parts{};
    for (const ApbColumn once :
         {ApbColumn::qkv, ApbColumn::retaining_head, ApbColumn::o_proj, ApbColumn::ffn}) {
      if (once != ApbColumn::retaining_head || method == ApbMethod::apb)
        parts[static_cast<std::size_t>(once)] = barrier;
    }
    for (BlockIndex b = 0; b < s.blocks.size(); ++b) {
      if (std::string_view(s.blocks[b].name) == "head") continue;
      for (OpIndex i = s.blocks[b].first; i < s.blocks[b].last; ++i) {
        const OpKind kind = s.ops[i].kind;
        Seconds& part = parts[static_cast<std::size_t>(part_of(s.ops[i], s.blocks[b].name))];
        part += e.cost().time(s.op_of_class(i, k));
        if (is_attention(kind) || is_communication(kind)) part += barrier;
      }
    }
    for (std::size_t p = 0; p < parts.size(); ++p) t.parts[p] = std::max(t.parts[p], parts[p]);
  }
  // Barriers stand around the messages too, so nothing hides them.
  for (const Seconds part : t.parts) t.block += part;
  return known_.emplace(key, t).first->second;
}

}  // namespace shardline
