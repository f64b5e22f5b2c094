// Small cases on which every strategy is run on real tensors and compared with plain attention, or with the
// definition of an approximate one.
#pragma once

#include <string>
#include <vector>

#include "cuda_probe/execute/cpu/check.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline::cli {

/// Widths of the small models. The defaults are the least that show every mistake; kernels of GPUs need more.
struct CaseSizes {
  int hidden = 12, inner = 16, head_dim = 4;
  int retaining = 16;                              // width of retaining heads
  int kv_lora = 6, rope = 2, nope = 3, mla_v = 4;  // MLA
  int key_dim = 4, value_dim = 3;                  // linear attention
};

struct VerifyCase {
  std::string what;  // "GQA 8/2 heads, 3 sequences, ..."
  Case study;
  Plan plan;
  std::vector<Problem> kinds;             // of each kind of attention that the model has
  Charges charges = Charges::every_rank;  // where a context does not divide, costs charge the fullest rank
};

/// Attention kinds x ranks x batches x even, uneven and variable lengths x cached tokens and histories of
/// turns, as far as the strategy takes them. Fixed order.
std::vector<VerifyCase> verify_cases(const Strategy& strategy, const CaseSizes& sizes = {});

/// One step of a plan that check_plan() takes, with a problem for each kind of attention of its model. Heads
/// divide by the ranks that share them. `what` is empty.
VerifyCase verify_case_of(Case study, const Plan& plan);

/// The schedule of a case with its data flow.
Schedule verify_schedule(const VerifyCase& c);
Check run_case(const VerifyCase& c);

}  // namespace shardline::cli
