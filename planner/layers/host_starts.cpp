// Which steps an engine's host starts kernel by kernel. planner/README.md [P18].
#include "planner/layers/cache_attention.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/step.hpp"
#include "planner/layers/two_batches.hpp"

namespace shardline {

HostStarts host_starts(const Case& c, const Plan& p) {
  // A system that says what its host takes to launch a layer [C12] has said so of its engine. Rounds of a
  // prefill in chunks have no hosts, as there.
  if (!c.engine || c.system.host.launch <= Seconds(0) || c.system.runtime.host_layer > Seconds(0) ||
      p[kPrefillChunk] > 0)
    return HostStarts::graph;
  const EngineProfile& e = *c.engine;
  if (!has_prompts(c))
    return e.has_graph(decode_requests(c, p), new_tokens(p)) ? HostStarts::graph : HostStarts::kernels;
  // Groups run from a graph that holds the one with most tokens, or all without.
  const Count tokens = c.groups ? c.groups->most : decode_tokens(c, p) + prefill_tokens(c, p);
  const PromptGraphs& g = e.prompt_graphs;
  // Two halves of a batch run from a graph of the whole step or from none: UBatchWrapper.__call__ of vLLM
  // v0.24.0, v1/worker/gpu_ubatch_wrapper.py.
  const bool excluded = p.cp > 1 || overlaps_batches(p) || (p.dp > 1 && !g.attention_dp) ||
                        (p.pp > 1 && !g.stages) || (c.disaggregated && !g.disaggregated);
  const long long most = has_latents(c.model) ? g.latent_tokens : g.tokens;
  return !excluded && tokens <= most ? HostStarts::pieces : HostStarts::kernels;
}

void set_groups(Case& c, const Plan& p, const GroupRows& all) {
  c.groups = all;
  if (host_starts(c, p) == HostStarts::pieces) c.groups->rows = all.most * p.dp;
}

}  // namespace shardline
