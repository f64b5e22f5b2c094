// Attention data parallelism with expert parallelism, as DeepSeek serves its models: each group of TPA ranks
// holds its own requests and a whole copy of the attention weights; experts are spread over all ranks; tokens
// travel to their experts (dispatch) and back (combine). Dense layers either run within a group or, tokens
// gathered, over all ranks.
#include "planner/layers/context_step.hpp"
#include "planner/layers/memory.hpp"
#include "planner/layers/two_batches.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

constexpr const Option* kOptions[]{&kOverlap, &kExpertTokens, &kDrafts};

// Two halves of a batch where the engine has them, or they are asked for.
void with_overlap(const Case& c, const SearchSpace& space, std::vector<Plan> plans, std::vector<Plan>& out) {
  std::vector<Overlap> own{Overlap::none};
  if (c.engine && c.engine->two_batches != TwoBatches::none) own.push_back(Overlap::two_batch);
  for (Plan& p : plans) {
    for (const ExpertTokens tokens : space.tried(kExpertTokens, expert_tokens_of(c, p))) {
      p.set(kExpertTokens, tokens);
      for (const Overlap overlap : space.tried(kOverlap, own)) {
        p.set(kOverlap, overlap);
        p.batch = least_batch(c, p);
        if (!no_two_batches(c, p)) out.push_back(p);
      }
    }
  }
}

// A token in each half.
int least(const Case& c, const Plan& p) {
  const long long tokens = requests_in(c.batch.decode) + c.fresh_tokens();
  return overlaps_batches(p) && tokens == 1 ? 2 : 1;
}

void enumerate(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) {
  if (!kDpEp.takes(c)) return;
  if (!has_experts(c.model) || gpus > least_experts(c.model)) return;
  for (const int tpa : divisors(gpus)) {
    if (tpa == gpus || tpa > least_q_heads(c.model)) continue;
    Plan p;
    p.strategy = id_of(kDpEp);
    p.dp = gpus / tpa;
    p.tpa = tpa;
    p.ep = gpus;
    std::vector<Plan> splits;
    with_dense_splits(c, p, splits);
    with_overlap(c, space, std::move(splits), out);
  }
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  if (!has_experts(c.model)) return "dp_ep needs a model with experts";
  if (const auto reason = no_gather(c, p)) return reason;
  return no_two_batches(c, p);
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
    .options = kOptions,
    .local_attention = true,
    .chosen_keys = true,
    .compressed = true,
    .states = true,
    .launched_as = LaunchedAs::attention_dp,
    .enumerate = enumerate,
    .check = check,
    .prefill_attention = attend_own,
    .prefill_buffers = unsharded_buffers,
    .least_batch = least,
    .verify = verify,
};

}  // namespace shardline
