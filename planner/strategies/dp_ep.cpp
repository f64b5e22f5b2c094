// Attention data parallelism with expert parallelism, as DeepSeek serves its models: each group of TPA ranks
// holds its own requests and a whole copy of the attention weights; experts are spread over all ranks; tokens
// travel to their experts (dispatch) and back (combine). Dense layers either run within a group or, tokens
// gathered, over all ranks.
#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace&, std::vector<Plan>& out) {
  if (!kDpEp.takes(c)) return;
  if (!has_experts(c.model) || gpus > least_experts(c.model)) return;
  for (const int tpa : divisors(gpus)) {
    if (tpa == gpus || tpa > least_q_heads(c.model)) continue;
    Plan p;
    p.strategy = id_of(kDpEp);
    p.dp = gpus / tpa;
    p.tpa = tpa;
    p.ep = gpus;
    with_dense_splits(c, p, out);
  }
}

std::optional<std::string> check(const Case& c, const Plan&) {
  if (!has_experts(c.model)) return "dp_ep needs a model with experts";
  return std::nullopt;
}

// Whole experts over two groups of attention; their attention is that of a dense model.
void verify(const VerifyTrial& trial, std::vector<Plan>& out) {
  Plan p = trial.base;
  p.dp = 2;
  p.ep = p.ranks_per_stage();
  p.tpf = 1;
  out.push_back(p);
}

}  // namespace

const Strategy kDpEp{
    .name = "dp_ep",
    .summary = "data-parallel attention, experts over all GPUs",
    .source = "arXiv 2412.19437, section 3.4",
    .decodes = true,
    .prefills = true,
    .mixes = true,
    .degrees = {Degree::dp, Degree::tpa, Degree::ep, Degree::dense_tp},
    .local_attention = true,
    .launched_as = LaunchedAs::attention_dp,
    .enumerate = enumerate,
    .check = check,
    .prefill_attention = attend_own,
    .prefill_buffers = unsharded_buffers,
    .verify = verify,
};

}  // namespace shardline
