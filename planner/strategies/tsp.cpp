// TSP, the baseline of KV-Runahead (arXiv 2405.05329, section 3): tensor and sequence parallelism over equal
// intervals of the tokens; keys and values of all of them are gathered in every layer. The last interval sees
// most keys, and has most work where attention is exact.
#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kTsp), out);
}

void attention(ContextStep& step) { step.attend_gathered(); }

void deal(Placement& to, const Plan& p, int request, long long fresh) {
  to.append(request, interval_counts(fresh, p.cp, {}));
}

}  // namespace

const Strategy kTsp{
    .name = "tsp",
    .summary = "context parallelism: equal intervals, KV gathered, then one attention",
    .source = "arXiv 2405.05329",
    .prefills = true,
    .degrees = kContextDegrees,
    .weights = WeightSharing::attention_tp,
    .local_attention = true,
    .states = true,
    .eager = true,
    .deployed_as = "allgather_kv",
    .enumerate = enumerate,
    .prefill_attention = attention,
    .deal = deal,
    .prefill_buffers = gathered_buffers,
};

}  // namespace shardline
