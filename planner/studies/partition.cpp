#include "planner/studies/partition.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/base/error.hpp"

namespace shardline {

ChainStep ChainCost::step(long long tokens, long long prefix) const {
  return {project(tokens), join && prefix > tokens ? join(tokens, prefix) : Seconds(0),
          rest(tokens, prefix) + turn, send(prefix), host};
}

Seconds chain_time(std::span<const ChainStep> steps, int layers) {
  SL_CHECK(!steps.empty() && layers > 0, "a chain has ranks and layers");
  // A path starts on some rank and moves on to the last; of the loops that it passes, the longest takes all
  // layers.
  Seconds passed, longest, latest;
  for (std::size_t i = steps.size(); i-- > 0;) {
    const ChainStep& s = steps[i];
    passed += s.join;
    longest = std::max(longest, s.loop());
    if (i + 1 < steps.size()) {
      passed += s.send;
      longest = std::max(longest, s.send);
    }
    latest = std::max(latest, s.project + passed + longest * (layers - 1));
  }
  return latest + steps.back().rest;
}

Seconds chain_time(const ChainCost& cost, std::span<const long long> partition) {
  std::vector<ChainStep> steps;
  steps.reserve(partition.size());
  long long prefix = 0;
  for (const long long tokens : partition) {
    SL_CHECK(tokens > 0, "every rank has tokens");
    prefix += tokens;
    steps.push_back(cost.step(tokens, prefix));
  }
  return chain_time(steps, cost.layers) + cost.tail;
}

std::vector<long long> partition_of(const PartitionProblem& p, std::span<const double> ratios) {
  SL_CHECK(ratios.size() == static_cast<std::size_t>(p.ranks), "one ratio per rank");
  SL_CHECK(p.granularity > 0 && p.context / p.granularity >= p.ranks, "every rank has a granule");
  const double total = std::accumulate(ratios.begin(), ratios.end(), 0.0);
  const long long granules = p.context / p.granularity;
  std::vector<long long> out;
  double sum = 0;
  long long before = 0;
  for (int i = 0; i + 1 < p.ranks; ++i) {
    sum += ratios[static_cast<std::size_t>(i)];
    const long long wanted =
        std::llround(static_cast<double>(p.context) * sum / total / static_cast<double>(p.granularity));
    const long long here = std::clamp(wanted, before + 1, granules - (p.ranks - 1 - i));
    out.push_back((here - before) * p.granularity);
    before = here;
  }
  out.push_back(p.context - before * p.granularity);
  return out;
}

std::vector<long long> even_partition(const PartitionProblem& p) {
  return partition_of(p, std::vector<double>(static_cast<std::size_t>(p.ranks), 1.0));
}

std::vector<double> ratios_of(std::span<const long long> partition) {
  const auto context = static_cast<double>(std::accumulate(partition.begin(), partition.end(), 0LL));
  std::vector<double> out;
  for (const long long tokens : partition) out.push_back(static_cast<double>(tokens) / context);
  return out;
}

double published_search_cost(const PartitionProblem& p) {
  return std::pow(p.ranks - 1, 5) * std::log2(static_cast<double>(p.context)) / 2;
}

void PartitionTable::add(long long context, std::span<const long long> partition) {
  SL_CHECK(partition.size() == static_cast<std::size_t>(ranks_), "one part per rank");
  SL_CHECK(rows_.empty() || context > rows_.back().context, "contexts ascend");
  rows_.push_back({context, ratios_of(partition)});
}

std::vector<double> PartitionTable::ratios(long long context) const {
  SL_CHECK(!rows_.empty(), "a table has rows");
  const auto above =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.context >= context; });
  if (above == rows_.end()) return rows_.back().ratios;
  if (above == rows_.begin() || above->context == context) return above->ratios;
  const Row& low = *(above - 1);
  const double part =
      static_cast<double>(context - low.context) / static_cast<double>(above->context - low.context);
  std::vector<double> out;
  for (std::size_t i = 0; i < low.ratios.size(); ++i)
    out.push_back(low.ratios[i] * (1 - part) + above->ratios[i] * part);
  return out;
}

std::vector<long long> PartitionTable::partition(long long context, long long granularity) const {
  const auto above =
      std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.context >= context; });
  if (above != rows_.end() && above->context - context < granularity) {
    std::vector<long long> out = partition_of({above->context, ranks_, granularity}, above->ratios);
    out.back() -= above->context - context;
    return out;
  }
  return partition_of({context, ranks_, granularity}, ratios(context));
}

}  // namespace shardline
