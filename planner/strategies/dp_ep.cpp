// Attention data parallelism with expert parallelism, as DeepSeek serves its models: each group of TPA ranks
// holds its own requests and a whole copy of the attention weights; experts are spread over all ranks; tokens
// travel to their experts (dispatch) and back (combine). Dense layers either run within a group or, tokens
// gathered, over all ranks.
#include "planner/layers/decode_layer.hpp"
#include "planner/strategies/table.hpp"

namespace shardline {

namespace {

void enumerate(const Case& c, int gpus, const SearchSpace&, std::vector<Plan>& out) {
  if (c.phase != Phase::decode) return;
  if (!has_experts(c.model) || gpus > c.model.experts) return;
  for (const int tpa : divisors(gpus)) {
    if (tpa == gpus || tpa > c.model.attention.q_heads) continue;
    Plan p;
    p.strategy = StrategyId::dp_ep;
    p.dp = gpus / tpa;
    p.tpa = tpa;
    p.ep = gpus;
    out.push_back(p);
    if (c.model.dense_layers > 0) {
      p.dense_tp = tpa;
      out.push_back(p);
    }
  }
}

std::optional<std::string> check(const Case& c, const Plan& p) {
  if (!has_experts(c.model)) return "dp_ep needs a model with experts";
  if (p.pp > 1 || p.kvp > 1 || p.tpf > 1 || p.in_flight > 1) return "dp_ep uses dp, tpa and ep only";
  return std::nullopt;
}

void lower(Schedule& s, const Case& c, const Plan& p) { build_decode(s, c, p); }

}  // namespace

const Strategy kDpEp{StrategyId::dp_ep,
                     "dp_ep",
                     "data-parallel attention, experts over all GPUs",
                     "arXiv 2412.19437, section 3.4",
                     true,
                     false,
                     false,
                     enumerate,
                     check,
                     lower};

}  // namespace shardline
