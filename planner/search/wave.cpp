#include "planner/search/wave.hpp"

#include <optional>

#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

FoundOfCandidate to_keep(const CandidateResult& r) {
  FoundOfCandidate out{{}, r.counts, r.all};
  const std::vector<Point> points = r.frontier.points();
  for (std::size_t i = 0; i < points.size(); ++i) out.frontier.push_back({points[i], r.frontier.order_of(i)});
  return out;
}

}  // namespace

void begin_wave(std::vector<CandidateResult>& wave, Metric x, Metric y, std::size_t begin, std::size_t end) {
  wave.assign(end - begin, CandidateResult{Frontier(x, y), {}, {}, {}, {}});
  for (std::size_t i = begin; i < end; ++i) {
    wave[i - begin].simulations.calls = i;
    wave[i - begin].bounds.calls = i;
  }
}

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
  found.reserve(wave.size());
  for (const CandidateResult& r : wave) {
    check_cancelled();  // all of them have a hundred thousand points
    found.push_back(to_keep(r));
  }
  journal->keep(begin, end, found);
}

}  // namespace shardline
