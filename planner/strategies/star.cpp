// StarAttention, phase 1 (arXiv 2411.17116): every host but the first puts the first block of the document in
// front of its own and attends to both, exchanging nothing. APPROXIMATE: a host sees no block between the
// two. Ignored: phase 2 (the query over all caches).
#include "planner/layers/host_blocks.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

constexpr const Option* kOptions[]{&kQuery};

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kStar), out, [&](Plan p, std::vector<Plan>& with) {
    for (const int query : space.tried(kQuery, {0})) {
      p.set(kQuery, query);
      with.push_back(p);
    }
  });
}

void attention(ContextStep& step) {
  step.expand_own();
  attend_blocks(step);
}

long long extra_rows(const Segment& r, const Plan& p) { return p[kQuery] + host_block(r, 0, p.cp, 0).size(); }

void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  for (const int query : {0, 3}) {
    Plan p = trial.base;
    p.set(kQuery, query);
    out.push_back(p);
  }
}

}  // namespace

const Strategy kStar{
    .name = "star",
    .summary = "own block behind a copy of the first, nothing exchanged",
    .source = "arXiv 2411.17116",
    .prefills = true,
    .exact = false,
    .degrees = kContextDegrees,
    .options = kOptions,
    .weights = WeightSharing::attention_tp,
    .enumerate = enumerate,
    .check = check_blocks,
    .prefill_attention = attention,
    .layout = block_layout,
    .prefill_buffers = unsharded_buffers,
    .extra_rows = extra_rows,
    .computed = blocks_computed,
    .blocks =
        [](const Plan& p) {
          return HostBlocks{0, 0, p[kQuery], 0};
        },
    .verify = verify,
};

}  // namespace shardline
