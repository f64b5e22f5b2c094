// The interactive page of a sweep.
#pragma once

#include "planner/cli/sweep_parts.hpp"
#include "reports/page.hpp"

namespace shardline::cli {

/// Every plan that was rated: those of each strategy's own frontier, and with --all the others too. Columns
/// have the names of tables.
Page sweep_page(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                const SweepOptions& o, const Provenance& made_by);

/// Pairs of pools, and the same in whole replicas, of a sweep that serves a workload; none of others.
std::vector<PageTable> pool_tables(const Study& study, const SweepAnswer& answer);

}  // namespace shardline::cli
