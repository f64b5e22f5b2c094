// The interactive page of a sweep.
#pragma once

#include "planner/cli/sweep_parts.hpp"
#include "reports/page.hpp"

namespace shardline::cli {

/// Every plan that was rated: those of each strategy's own frontier, and with --all the others too. Columns
/// have the names of tables.
Page sweep_page(const Study& study, const SweepAnswer& answer, const SweepQuestion& asked,
                const SweepOptions& o, const Provenance& made_by);

}  // namespace shardline::cli
