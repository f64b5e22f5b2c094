#include "planner/search/wave.hpp"

#include <optional>

namespace shardline {

namespace {

FoundOfCandidate to_keep(const CandidateResult& r) {
  FoundOfCandidate out{{}, r.counts, r.all};
  const std::vector<Point> points = r.frontier.points();
  for (std::size_t i = 0; i < points.size(); ++i) out.frontier.push_back({points[i], r.frontier.order_of(i)});
  return out;
}

}  // namespace

void add_counts(SearchCounts& to, const SearchCounts& from) {
  to.simulated += from.simulated;
  to.bounds += from.bounds;
  to.pruned += from.pruned;
  to.over_budget += from.over_budget;
  to.infeasible += from.infeasible;
  to.partitions += from.partitions;
}

bool restored(SearchJournal* journal, std::size_t begin, std::size_t end,
              std::vector<CandidateResult>& wave) {
  const auto kept = journal != nullptr ? journal->finished(begin, end) : std::nullopt;
  if (!kept) return false;
  for (std::size_t i = 0; i < kept->size(); ++i) {
    for (const auto& [point, order] : (*kept)[i].frontier) wave[i].frontier.add(point, order);
    wave[i].counts = (*kept)[i].counts;
    wave[i].all = (*kept)[i].all;
  }
  return true;
}

void keep(SearchJournal* journal, std::size_t begin, std::size_t end,
          const std::vector<CandidateResult>& wave) {
  if (journal == nullptr) return;
  std::vector<FoundOfCandidate> found;
  for (const CandidateResult& r : wave) found.push_back(to_keep(r));
  journal->keep(begin, end, found);
}

}  // namespace shardline
