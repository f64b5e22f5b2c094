#include "planner/studies/partition_errors.hpp"

#include "planner/studies/searched_partition.hpp"

namespace shardline {

ErrorsByContext errors_of_partitions(const Study& study, const PartitionStudy& s) {
  ErrorsByContext out;
  if (study.study.system.calibration.empty()) return out;
  const PartitionGrid& grid = study.partition();
  for (const PartitionCell& c : s.cells) {
    if (!c.asked) continue;
    const std::vector<long long> even = even_partition({c.context, s.table.ranks(), grid.granularity});
    FoundErrors& e = out[c.context];
    e.best = errors_of_chain(study.study, grid.tpa, c.searched.best.tokens);
    if (even == c.searched.best.tokens) continue;
    const ErrorBand band = ratio_band(e.best, errors_of_chain(study.study, grid.tpa, even));
    e.ahead_of_even = told_apart(c.searched.best.ttft / c.even, band);
  }
  return out;
}

void require_partitions(const Model& model) {
  if (has_experts(model))
    throw UserError(model.name +
                    " has experts, and partition gives every rank all of them: sweep kv_runahead, whose "
                    "plans say who holds which (ep), and searches their parts too");
  if (!one_attention(model) || has_local_attention(model))
    throw UserError(model.name +
                    " has layers with other attention than one full kind, which partition does not price");
}

}  // namespace shardline
