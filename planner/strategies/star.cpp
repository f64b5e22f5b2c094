// StarAttention, phase 1 (arXiv 2411.17116): every host but the first puts the first block of the document in
// front of its own and attends to both, exchanging nothing. APPROXIMATE: a host sees no block between the
// two. Ignored: phase 2 (the query over all caches).
#include "planner/layers/host_blocks.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, StrategyId::star, out,
                    [](const Case& study, Plan& p) { p.query = study.approximate.query; });
}

void lower(Schedule& s, const Case& c, const Plan& p) {
  build_blocks(s, c, p, [](ContextStep& step) { attend_blocks(step); });
}

}  // namespace

const Strategy kStar{.id = StrategyId::star,
                     .name = "star",
                     .summary = "own block behind a copy of the first, nothing exchanged",
                     .source = "arXiv 2411.17116",
                     .decodes = false,
                     .prefills = true,
                     .context_parallel = true,
                     .enumerate = enumerate,
                     .check = check_blocks,
                     .lower = lower,
                     .exact = false,
                     .computed = blocks_computed};

}  // namespace shardline
