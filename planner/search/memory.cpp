#include "planner/search/memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/layers/memory.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/stages.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

Case make_case(Model model, System system, Precision precision, long long context, int kv_block,
               Routing routing) {
  Case c;
  c.model = std::move(model);
  c.system = std::move(system);
  c.precision = precision;
  c.batch = decode_batch(context);
  c.kv_block = kv_block;
  if (has_experts(c.model)) {
    c.routing = std::make_shared<const ExpertRouting>(c.model.experts, c.model.experts_per_token, routing);
  }
  return c;
}

long long Case::fresh_tokens() const {
  long long sum = 0;
  for (const Segment& r : batch.prefill) sum += r.fresh * r.count;
  return sum;
}

long long Case::longest() const {
  long long most = 0;
  for (const auto* segments : {&batch.decode, &batch.prefill}) {
    for (const Segment& r : *segments) most = std::max(most, r.length());
  }
  return most;
}

long long kv_tokens_on_shard(long long tokens, int shards, int block, int shard) {
  const long long round = static_cast<long long>(block) * shards;
  const long long rest = tokens % round - static_cast<long long>(block) * shard;
  return block * (tokens / round) + std::clamp<long long>(rest, 0, block);
}

MemoryUse memory_use(const Case& c, const Plan& plan) {
  thread_local std::vector<StageLayers> stages;
  stage_layers(c.model, plan.pp, stages);
  LayerWeights w = layer_weights(c, plan);
  if (const auto extra = strategy(plan.strategy).extra_weights) w.attention += extra(c, plan);
  const double vocab =
      std::ceil(static_cast<double>(c.model.vocab) * plan.cp / plan.ranks_per_stage()) * c.model.hidden;
  const double kv_per_layer = static_cast<double>(plan.in_flight) * cached_rows(c, plan) *
                              static_cast<double>(kv_elements_per_token(c, plan));
  const auto per = [&](Module m) { return Bytes(bytes_per_element(c.precision.of(m).weights)); };
  const Bytes attention = per(Module::attention) * w.attention, dense = per(Module::dense_ffn) * w.dense_ffn,
              experts = per(Module::experts) * w.expert_ffn + per(Module::router) * w.router;
  MemoryUse use;
  for (const StageLayers& s : stages) {
    const double layers = s.dense + s.experts;
    const bool head = s.last && !(s.first && c.model.tied_embeddings);
    const Bytes weight_bytes = attention * layers + dense * s.dense + experts * s.experts +
                               per(Module::head) * (vocab * ((s.first ? 1 : 0) + (head ? 1 : 0)));
    const Bytes kv(layers * kv_per_layer * bytes_per_element(c.precision.kv));
    if (weight_bytes + kv > use.weights + use.kv) {
      use.weights = weight_bytes;
      use.kv = kv;
    }
  }
  use.activations = activation_bytes(c, plan);
  use.buffers = buffer_bytes(c, plan);
  return use;
}

namespace {

Bytes limit_of(const Case& c) {
  const Bytes memory = c.system.device.memory;
  return c.memory_limit > Bytes(0) ? std::min(memory, c.memory_limit) : memory;
}

}  // namespace

bool fits(const Case& c, const MemoryUse& use) {
  const Device& d = c.system.device;
  return use.weights + use.kv <= d.memory * d.usable_memory && use.total() <= limit_of(c);
}

std::optional<std::string> does_not_fit(const Case& c, const MemoryUse& use) {
  if (fits(c, use)) return std::nullopt;
  const Device& d = c.system.device;
  if (use.weights + use.kv > d.memory * d.usable_memory) {
    return fmt::format("needs {} of {} usable per GPU: weights {}, KV {}", to_string(use.weights + use.kv),
                       to_string(d.memory * d.usable_memory), to_string(use.weights), to_string(use.kv));
  }
  return fmt::format("needs {} of {} per GPU: weights {}, KV {}, activations {}, communication buffers {}",
                     to_string(use.total()), to_string(limit_of(c)), to_string(use.weights),
                     to_string(use.kv), to_string(use.activations), to_string(use.buffers));
}

int largest_batch(const Case& c, Plan plan, int limit) {
  const auto ok = [&](int batch) {
    plan.batch = batch;
    return fits(c, memory_use(c, plan));
  };
  int low = 0, high = limit + 1;  // low fits (or is 0), high does not (or is past the limit)
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    (ok(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace shardline
