// All-gather pass-KV, as in Llama 3's training (arXiv 2407.21783, section 3.3.2): every rank gathers all keys
// and values, then attends once. Nothing overlaps; every rank needs room for the whole KV of a layer.
#include "planner/layers/context_step.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, StrategyId::allgather_kv, out);
}

std::optional<std::string> check(const Case&, const Plan&) { return std::nullopt; }

void lower(Schedule& s, const Case& c, const Plan& p) {
  build_prefill(s, c, p, false, [](ContextStep& step) { step.attend_gathered(); });
}

}  // namespace

const Strategy kAllgatherKv{StrategyId::allgather_kv,
                            "allgather_kv",
                            "context parallelism: KV gathered, then one attention",
                            "arXiv 2407.21783",
                            false,
                            true,
                            true,
                            enumerate,
                            check,
                            lower};

}  // namespace shardline
