// Striped attention (arXiv 2311.09431): a ring of keys and values [C5] over tokens that are dealt out one by
// one, token p of a sequence on rank p mod N. Between any two stripes the mask is causal by row, with the
// diagonal where the keys' rank is not ahead of the queries' and without it where it is; so the ranks of
// every iteration do the same work but for one diagonal, where contiguous blocks leave all but one waiting
// [C20].
//
// New tokens of a turn are striped too and join the cache where it lies. Of a sequence that was only striped
// rank r then holds the positions p with p mod N = r. That is the layout of a cache under decode context
// parallelism with an interleave of 1 (vLLM main 833483f, config/parallel.py: cp_kv_cache_interleave_size,
// whose default it is), so that a decode over N such ranks finds every row where it wants it.
//
// A kernel must take the mask without the diagonal as a flag, as lucidrains' ring-attention-pytorch 0.5.20
// does (ring_flash_attention_cuda.py: causal_mask_diagonal): its tiles are those of the causal mask.
// zhuzilin's ring-flash-attn 0.1.8 (stripe_flash_attn.py) calls an unchanged kernel on q[1:] and k[:-1], a
// row less. Ignored: the permutation of the input's and output's rows, once per prefill; stripes of blocks of
// tokens.
#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kStriped), out);
}

void deal(Placement& to, const Plan&, int request, long long fresh) { to.stripe(request, fresh); }

}  // namespace

const Strategy kStriped{
    .name = "striped",
    .summary = "context parallelism: KV round a ring, tokens dealt out one by one",
    .source = "arXiv 2311.09431",
    .prefills = true,
    .degrees = kContextDegrees,
    .weights = WeightSharing::attention_tp,
    .local_attention = true,
    .states = true,
    .deployed_as = "allgather_kv",
    .enumerate = enumerate,
    .prefill_attention = attend_pass_kv,
    .deal = deal,
    .prefill_buffers = ring_buffers,
};

}  // namespace shardline
