// All-gather pass-KV, as in Llama 3's training (arXiv 2407.21783, section 3.3.2): every rank gathers all keys
// and values, then attends once. Where an index chooses keys, those of the index are gathered before, and
// each rank chooses among all of them. Of compressed attention every rank has the caches whole, and gathers
// what new tokens add to them. Nothing overlaps; every rank needs room for the whole KV of a layer.
#include "planner/layers/gathered.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  enumerate_context(c, gpus, space, id_of(kAllgatherKv), out);
}

void attention(ContextStep& step) {
  if (step.a.compression) return attend_gathered_rows(step);
  step.a.sparse() ? attend_gathered_choice(step) : step.attend_gathered();
}

// Rows are made of tokens of several ranks: all keep the caches of compressed attention whole.
double cache_shards(const Attention& a, const Plan& p) { return a.compression ? 1 : p.cp; }

Bytes buffers(const Case& c, const Attention& a, const Plan& p) {
  if (a.compression) return gathered_rows_buffers(c, a, p);
  return a.sparse() ? gathered_choice_buffers(c, a, p) : gathered_buffers(c, a, p);
}

void verify(const VerifyTrial& trial, std::vector<Plan>& out) { verify_in_chunks(trial, trial.base, out); }

constexpr const Option* kOptions[]{&kPrefillChunk};

}  // namespace

const Strategy kAllgatherKv{
    .name = "allgather_kv",
    .summary = "context parallelism: KV gathered, then one attention",
    .source = "arXiv 2407.21783",
    .prefills = true,
    .degrees = kContextDegrees,
    .options = kOptions,
    .weights = WeightSharing::attention_tp,
    .local_attention = true,
    .chosen_keys = true,
    .compressed = true,
    .states = true,
    .launched_as = LaunchedAs::prefill_cp,
    .enumerate = enumerate,
    .prefill_attention = attention,
    .cache_shards = cache_shards,
    .prefill_buffers = buffers,
    .verify = verify,
};

}  // namespace shardline
