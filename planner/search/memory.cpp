#include "planner/search/memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/engines/deploy.hpp"
#include "planner/engines/dispatch_room.hpp"
#include "planner/engines/transfer_buffers.hpp"
#include "planner/layers/compressed.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/stages.hpp"
#include "planner/layers/streams.hpp"
#include "planner/plan/timed.hpp"
#include "planner/search/cache_sizes.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

Case make_case(Model model, System system, Precision precision, long long context, int kv_block,
               Routing routing) {
  require_timed(model);
  Case c;
  c.model = std::move(model);
  c.system = std::move(system);
  c.precision = precision;
  c.batch = decode_batch(context);
  c.kv_block = kv_block;
  c.routing = routing_of(c.model, routing);
  return c;
}

std::vector<std::shared_ptr<const ExpertRouting>> routing_of(const Model& model, Routing routing) {
  std::vector<std::shared_ptr<const ExpertRouting>> tables;
  for (std::size_t i = 0; i < model.ffns.size(); ++i) {
    const FeedForward& f = model.ffns[i];
    tables.emplace_back();
    for (std::size_t before = 0; before < i && f.routed(); ++before) {
      const FeedForward& other = model.ffns[before];
      if (other.experts == f.experts && other.experts_per_token == f.experts_per_token)
        tables.back() = tables[before];
    }
    if (f.routed() && !tables.back())
      tables.back() = std::make_shared<const ExpertRouting>(f.experts, f.experts_per_token, routing);
  }
  return tables;
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

namespace {

// Bytes of one layer's attention weights on one rank, and of one layer's feed-forward network.
Bytes stored(const Precision& types, Module m, double elements) {
  return Bytes(elements * bytes_per_element(types.of(m).weights));
}

Bytes attention_bytes(const Case& c, const Precision& types, const Attention& a, const Plan& p) {
  const AttentionWeights w = attention_weights(c, a, p);
  return stored(types, Module::attention, w.projections) + stored(types, Module::out_proj, w.out_proj) +
         stored(types, Module::index, w.index) + Bytes(w.compressors * activation_size(c)) +
         (a.none() ? Bytes(0) : residual_weights(c));
}

Bytes ffn_bytes(const Case& c, const Precision& types, const FeedForward& f, const Plan& p) {
  const FfnWeights w = ffn_weights(c, f, p);
  return (f.none() ? Bytes(0) : residual_weights(c)) + stored(types, Module::dense_ffn, w.dense) +
         stored(types, Module::experts, w.experts) + stored(types, Module::shared_experts, w.shared) +
         stored(types, Module::router, w.router);
}

// Of one module that drafts, whose matrices may have other types than those of the model's layers.
Bytes draft_module(const Case& c, const Plan& p) {
  const Precision own = c.precision.of_drafts();
  return attention_bytes(c, own, c.model.drafts->attention, p) + ffn_bytes(c, own, c.model.drafts->ffn, p) +
         Bytes(draft_input_weights(c.model) * bytes_per_element(draft_input_type(c).weights));
}

// Pools tell layers apart by their attention alone, whatever network stands behind it.
void add_layers(std::vector<KindLayers>& to, int attention, int count) {
  const auto known =
      std::find_if(to.begin(), to.end(), [&](const KindLayers& l) { return l.attention == attention; });
  if (known == to.end())
    to.push_back({attention, count});
  else
    known->count += count;
}

}  // namespace

MemoryUse memory_use(const Case& c, const Plan& plan) {
  thread_local std::vector<StageLayers> stages;
  thread_local std::vector<Bytes> attention, ffn;
  thread_local std::vector<KindLayers> caches;
  stage_layers(c, plan.pp, stages);
  attention.clear();
  ffn.clear();
  for (const Attention& a : c.model.attentions) attention.push_back(attention_bytes(c, c.precision, a, plan));
  for (const FeedForward& f : c.model.ffns) ffn.push_back(ffn_bytes(c, c.precision, f, plan));
  const double vocab =
      std::ceil(static_cast<double>(c.model.vocab) * plan.cp / plan.ranks_per_stage()) * c.model.hidden;
  // One matrix with the head's type where both are the same.
  const Bytes embedding =
      stored(c.precision, c.model.tied_embeddings ? Module::head : Module::embedding, vocab);
  MemoryUse use;
  for (const StageLayers& s : stages) {
    const bool head = s.last && !(s.first && c.model.tied_embeddings);
    Bytes weights = s.first ? embedding : Bytes(0);
    if (head) weights += stored(c.precision, Module::head, vocab);
    caches.clear();
    for (const LayerRun& run : s.kinds) {
      const Bytes a = attention[static_cast<std::size_t>(run.attention)];
      weights += (a + ffn[static_cast<std::size_t>(run.ffn)]) * run.count;
      add_layers(caches, run.attention, run.count);
    }
    if (s.last && plan[kDrafts] > 0) {  // modules, with caches of their own, and the embedding that they read
      const DraftLayer layer = *draft_layer(c.model);
      const double modules = c.model.drafts->count;
      weights += draft_module(c, plan) * modules;
      if (!s.first && !c.model.tied_embeddings) weights += embedding;
      add_layers(caches, layer.attention, c.model.drafts->count);
    }
    const Bytes kv = cache_pools(c, plan, caches);
    if (weights + kv > use.weights + use.kv) {
      use.weights = weights;
      use.kv = kv;
    }
  }
  use.activations = activation_bytes(c, plan);
  use.buffers = buffer_bytes(c, plan) + dispatch_buffers(c, plan) + transfer_buffers(c, plan);
  if (c.engine) use.server = kept_of(c, *c.engine, plan);
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
  if (c.engine)
    return use.kv <= c.engine->room_for_kv(d, use.weights, use.activations + use.buffers, use.server) &&
           use.total() <= limit_of(c);
  return use.weights + use.kv <= d.memory * d.usable_memory && use.total() <= limit_of(c);
}

std::optional<std::string> does_not_fit(const Case& c, const MemoryUse& use) {
  if (fits(c, use)) return std::nullopt;
  const Device& d = c.system.device;
  if (c.engine && use.total() <= limit_of(c)) {
    const Bytes room = c.engine->room_for_kv(d, use.weights, use.activations + use.buffers, use.server);
    return fmt::format("needs {} for KV, {} leaves {} of {} per GPU beside weights of {}", to_string(use.kv),
                       c.engine->title, to_string(std::max(Bytes(0), room)), to_string(d.memory),
                       to_string(use.weights));
  }
  if (use.weights + use.kv > d.memory * d.usable_memory) {
    return fmt::format("needs {} of {} usable per GPU: weights {}, KV {}", to_string(use.weights + use.kv),
                       to_string(d.memory * d.usable_memory), to_string(use.weights), to_string(use.kv));
  }
  return fmt::format("needs {} of {} per GPU: weights {}, KV {}, activations {}, communication buffers {}",
                     to_string(use.total()), to_string(limit_of(c)), to_string(use.weights),
                     to_string(use.kv), to_string(use.activations), to_string(use.buffers));
}

Case with_room(const Case& c) {
  Case out = c;
  if (c.engine && c.engine->admission == Admission::whole && c.served.total() > 0 && !c.batch.prefills())
    out.batch = decode_batch(c.served.total());
  return out;
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
