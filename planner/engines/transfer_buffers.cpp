#include "planner/engines/transfer_buffers.hpp"

#include <algorithm>
#include <vector>

#include "models/model/cache.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/engines/profile.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/stages.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

namespace {

constexpr int kBuffers = 2;  // to send, to receive

// Helix runs in servers for answers alone, which get their prompts' caches from others.
bool under_helix(const Case& c, const Plan& p) {
  return strategy(p.strategy).launched_as == LaunchedAs::helix && !c.batch.prefills();
}

// Of a step without a workload no prompt is longer than what is cached.
long long prompt(const Case& c) { return c.served.total() > 0 ? c.served.input : c.longest(); }

long long in_blocks(long long tokens, long long block) { return (tokens + block - 1) / block * block; }

}  // namespace

long long transfer_tokens(const Case& c, const Plan& p) {
  const long long block = tensorrt_llm_block(c), shards = under_helix(c, p) ? p.kvp : 1;
  return in_blocks(in_blocks(prompt(c), block) / block, shards) / shards * block;
}

Bytes transfer_buffers(const Case& c, const Plan& p) {
  if (c.engine == nullptr || c.engine->name != "trtllm" || (!c.disaggregated && !under_helix(c, p)))
    return Bytes(0);
  const long long block = tensorrt_llm_block(c), tokens = transfer_tokens(c, p);
  std::vector<double> of_layer;
  for (const Attention& a : c.model.attentions) {
    const Reach reach = c.engine->pools.keeps_windows_whole(c.model.architecture) ? Reach{} : a.reach;
    const long long kept = in_blocks(kept_tokens(reach, prompt(c)), block);
    of_layer.push_back(static_cast<double>(std::min(tokens, kept) + block) * kv_bytes_per_token(c, a, p));
  }
  thread_local std::vector<StageLayers> stages;
  stage_layers(c, p.pp, stages);
  double most = 0;
  for (const StageLayers& s : stages) {
    double sum = 0;
    for (const LayerRun& run : s.kinds) sum += of_layer[static_cast<std::size_t>(run.attention)] * run.count;
    if (s.last && p[kDrafts] > 0)  // modules' caches move with the model's
      sum += of_layer[static_cast<std::size_t>(draft_layer(c.model)->attention)] * c.model.drafts->count;
    most = std::max(most, sum);
  }
  return Bytes(kBuffers * most);
}

}  // namespace shardline
