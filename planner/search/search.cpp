#include "planner/search/search.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "planner/search/block_times.hpp"
#include "planner/search/candidates.hpp"
#include "planner/search/memory_need.hpp"
#include "planner/search/nearest.hpp"
#include "planner/search/wave.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/studies/searched_partition.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

// What one thread keeps.
struct Worker {
  Evaluator evaluator;
  BlockTimes times;
  std::shared_ptr<KnownLayers> layers = known_layers();
  std::unique_ptr<ServedEvaluator> serving;  // of a search with a workload
  Worker(const Case& c, const SearchOptions& options, const std::shared_ptr<FabricCache>& shared,
         const std::shared_ptr<KnownBlocks>& blocks)
      : evaluator(c, options.all_reduce, shared), times(evaluator, blocks) {
    if (options.workload) serving = std::make_unique<ServedEvaluator>(c, options.all_reduce, shared);
  }
};

class CandidateSearch {
 public:
  CandidateSearch(const Case& c, const SearchOptions& o, const Candidate& candidate, const Frontier& known,
                  Worker& own, std::shared_ptr<FabricCache> cache, Seconds least, CandidateResult& out)
      : case_(c),
        options_(o),
        candidate_(candidate),
        known_(known),
        own_(own),
        cache_(std::move(cache)),
        least_(least),
        out_(out),
        plan_(candidate.plan) {}

  void run() {
    if (candidate_.first == candidate_.last) return;
    if (options_.prune && late(plan_)) {
      out_.counts.pruned += candidate_.last - candidate_.first;
      return;
    }
    if (candidate_.runs > 0) return full();
    own_.times.start(plan_);
    if (takes_partition(case_, plan_))
      for (std::size_t i = candidate_.first; i < candidate_.last; ++i) searched(i);
    else
      range(candidate_.first, candidate_.last);
  }

 private:
  Point point_at(std::size_t i, Seconds time) {
    check_cancelled();
    plan_.batch = options_.batches[i];
    Point p{plan_, time, memory_use(case_, plan_).total()};
    if (options_.workload) own_.serving->serve(*options_.workload, p);
    return p;
  }

  // Memory is full: the largest batch that it holds, which need not be listed.
  void full() {
    plan_.batch = candidate_.runs;
    if (options_.prune) {
      ++out_.counts.bounds;
      const Point low = corner(out_.bounds(1, [&] { return own_.evaluator.bound(plan_); }));
      const double x = score(options_.x, low), y = score(options_.y, low);
      if (over_budget(low.time) || known_.dominates(x, y) || out_.frontier.dominates(x, y)) {
        ++out_.counts.pruned;
        return;
      }
    }
    const Seconds time = out_.simulations(1, [&] { return own_.evaluator.simulate(plan_); });
    Point p{plan_, time, memory_use(case_, plan_).total()};
    p.waiting = options_.batches[candidate_.first] - plan_.batch;
    if (options_.workload) own_.serving->serve(*options_.workload, p);
    found(p, candidate_.first);
  }

  // [P19] No prompt has its first token before its path and its own steps by themselves, whatever the batch.
  bool late(const Plan& plan) {
    if (!(options_.most_ttft > Seconds(0))) return false;
    ++out_.counts.bounds;
    return own_.serving->least_ttft(plan, options_.workload->input) > options_.most_ttft;
  }

  // By parameters alone a bound does not fall when the batch rises, and memory never does. So a bound with
  // the entries of the largest batch is at least as good as any batch from its own on, and where that is
  // beaten, so are they all [P7]. Fitted costs may fall: there every batch has a bound of its own.
  void range(std::size_t first, std::size_t last) {
    if (!options_.prune) {
      const auto times = out_.simulations(last - first, [&] { return own_.times.simulate(first, last); });
      for (std::size_t i = first; i < last; ++i) simulated(i, Seconds(times[i - first]));
      return;
    }
    left_.clear();
    case_.system.calibration.empty() ? rising(first, last) : falling(first, last);
    // Large batches first: their points rule out most.
    for (auto l = left_.rbegin(); l != left_.rend(); ++l) {
      if (beaten(l->second, l->first))
        ++out_.counts.pruned;
      else
        simulate(l->first);
    }
  }

  void rising(std::size_t first, std::size_t last) {
    while (first < last) {
      plan_.batch = options_.batches[first];
      ++out_.counts.bounds;
      Point low = corner(out_.bounds(1, [&] { return own_.times.bound(first); }));
      if (over_budget(low.time)) {
        out_.counts.pruned += last - first;
        break;
      }
      const std::size_t next = beaten_until(low, first, last);
      if (next > first) {
        out_.counts.pruned += next - first;
        first = next;
      } else {
        left_.push_back({first++, low});
      }
    }
  }

  void falling(std::size_t first, std::size_t last) {
    out_.counts.bounds += last - first;
    const auto bounds = out_.bounds(last - first, [&] { return own_.times.bounds(first, last); });
    for (std::size_t i = first; i < last; ++i) {
      plan_.batch = options_.batches[i];
      Point low = corner(Seconds(bounds[i - first]));
      if (over_budget(low.time) || beaten(low, i))
        ++out_.counts.pruned;
      else
        left_.push_back({i, low});
    }
  }

  // At least as good as the plan is, if it takes no less time.
  Point corner(Seconds time) const {
    Point p{plan_, time, Bytes(0)};
    if (options_.workload) p.decoding = options_.workload->tokens_a_step();
    if (options_.x == Metric::memory || options_.y == Metric::memory)
      p.memory = memory_use(case_, plan_).total();
    return p;
  }

  bool over_budget(Seconds time) const {
    return options_.most_time > Seconds(0) && time > options_.most_time;
  }

  // Whether a known point beats this one with the entries of batch i.
  bool beaten(Point& corner, std::size_t i) const {
    corner.plan.batch = options_.batches[i];
    const double x = score(options_.x, corner), y = score(options_.y, corner);
    return known_.dominates(x, y) || out_.frontier.dominates(x, y);
  }

  // The first batch, or last, with whose entries it is not beaten.
  std::size_t beaten_until(Point& corner, std::size_t first, std::size_t last) const {
    std::size_t low = first, high = first + 1;  // all before low are beaten
    while (high <= last && beaten(corner, high - 1)) {
      low = high;
      high = low + (low - first);
    }
    high = std::min(high, last + 1);
    // Beaten with the entries of low - 1, not with those of high - 1.
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      (beaten(corner, middle - 1) ? low : high) = middle;
    }
    return low;
  }

  // Each batch has a partition of its own, which no bound of equal parts rules out: one of all partitions
  // does. Equal parts need the least memory.
  void searched(std::size_t i) {
    plan_.batch = options_.batches[i];
    if (options_.prune) {
      ++out_.counts.bounds;
      Point low = corner(
          i == candidate_.first ? least_ : least_time_of_partitions(own_.evaluator, plan_, own_.layers));
      if (over_budget(low.time) || beaten(low, i)) {
        ++out_.counts.pruned;
        return;
      }
    }
    const PartitionResult found = searched_partition(own_.evaluator, plan_, cache_, own_.layers);
    out_.counts.partitions += found.evaluations;
    list_parts(plan_, found.tokens);
    // A longer first part may not fit where equal ones do.
    if (!does_not_fit(case_, memory_use(case_, plan_))) {
      simulated(i, found.ttft);
    } else {
      ++out_.counts.infeasible;
    }
    set_parts(plan_, Parts::searched);
  }

  void simulate(std::size_t i) {
    plan_.batch = options_.batches[i];
    simulated(i, out_.simulations(1, [&] { return own_.times.simulate(i); }));
  }

  void simulated(std::size_t i, Seconds time) {
    if (!options_.workload && over_budget(time)) {
      ++out_.counts.simulated;
      ++out_.counts.over_budget;
      return;
    }
    found(point_at(i, time), i);
  }

  // A point, if it is served within the targets.
  void found(const Point& p, std::size_t i) {
    ++out_.counts.simulated;
    const bool over = over_budget(p.time) || (options_.most_ttft > Seconds(0) && p.ttft > options_.most_ttft);
    if (options_.workload && (p.decoding <= 0 || over)) {
      ++(p.decoding <= 0 ? out_.counts.infeasible : out_.counts.over_budget);
      return;
    }
    out_.frontier.add(p, candidate_.order + (i - candidate_.first));
    if (options_.keep_all) out_.all.push_back(p);
  }

  const Case& case_;
  const SearchOptions& options_;
  const Candidate& candidate_;
  const Frontier& known_;
  Worker& own_;
  std::shared_ptr<FabricCache> cache_;
  Seconds least_;  // of the first batch, where its partition is searched for and pruned
  CandidateResult& out_;
  Plan plan_;
  std::vector<std::pair<std::size_t, Point>> left_;
};

std::vector<std::unique_ptr<Worker>> make_workers(const Case& c, const SearchOptions& o, std::size_t threads,
                                                  const std::shared_ptr<FabricCache>& cache) {
  const auto blocks = std::make_shared<KnownBlocks>(o.batches);
  std::vector<std::unique_ptr<Worker>> out;
  for (std::size_t slot = 0; slot < threads; ++slot) {
    check_cancelled();  // one takes milliseconds
    out.push_back(std::make_unique<Worker>(c, o, cache, blocks));
  }
  return out;
}

// The order in which candidates have their turn, and where those begin whose partitions are searched for.
struct Turns {
  std::vector<std::size_t> of;
  std::size_t searched = 0;
  std::vector<Seconds> least;  // of the smallest batch of a searched candidate, whatever its partition
};

// A sample of all candidates goes first: what it finds rules out most of the rest. The stride shares no
// factor with the counts of chunks and degrees that enumeration runs through. A search of partitions takes
// longest: they come last, and those that may be fastest before the others.
Turns turns(const Case& c, const SearchOptions& o, const std::vector<Candidate>& candidates,
            const std::vector<std::unique_ptr<Worker>>& workers) {
  Turns out;
  const std::size_t count = candidates.size(), stride = o.prune ? 31 : 1;
  out.least.resize(count);
  std::vector<std::size_t> searched;
  const auto add = [&](std::size_t i) {
    const Candidate& u = candidates[i];
    const bool last = o.prune && u.first < u.last && takes_partition(c, u.plan);
    (last ? searched : out.of).push_back(i);
  };
  for (std::size_t i = 0; i < count; i += stride) add(i);
  for (std::size_t i = 0; i < count; ++i) {
    if (i % stride != 0) add(i);
  }
  parallel_for(0, searched.size(), workers.size(), [&](std::size_t i, std::size_t slot) {
    const Candidate& u = candidates[searched[i]];
    Plan plan = u.plan;
    plan.batch = o.batches[u.first];
    out.least[searched[i]] = least_time_of_partitions(workers[slot]->evaluator, plan, workers[slot]->layers);
  });
  std::sort(searched.begin(), searched.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(out.least[a], a) < std::pair(out.least[b], b);
  });
  out.searched = out.of.size();
  out.of.insert(out.of.end(), searched.begin(), searched.end());
  return out;
}

// Later waves are larger, but for those of searched partitions: what one finds may save all others.
std::size_t wave_end(const Turns& turn, std::size_t begin) {
  if (begin >= turn.searched) return std::min(turn.of.size(), begin + 16);
  return std::min(turn.searched, begin + std::clamp<std::size_t>(begin / 8, 16, 512));
}

// How many points are kept at most beside the frontiers.
std::uint64_t points_kept(const SearchOptions& o, const std::vector<Candidate>& candidates) {
  std::uint64_t points = 0;
  for (const Candidate& u : candidates) points += o.keep_all ? u.last - u.first : 0;
  return points;
}

MemoryNeed need_of(const Case& c, const SearchOptions& o, const std::vector<Candidate>& candidates,
                   std::size_t threads) {
  std::vector<Plan> plans;
  for (const Candidate& u : candidates) plans.push_back(u.plan);
  return need_of_search(c, plans, threads, points_kept(o, candidates));
}

}  // namespace

Frontier SearchResult::overall() const {
  Frontier f(x, y);
  for (const auto& [id, frontier] : frontiers) f.merge(frontier);
  return f;
}

Frontier SearchResult::of(const std::vector<StrategyId>& ids) const {
  Frontier f(x, y);
  for (const StrategyId id : ids) {
    const auto it = frontiers.find(id);
    if (it != frontiers.end()) f.merge(it->second);
  }
  return f;
}

SearchResult search(const Case& c, const SearchOptions& given,
                    const std::function<bool(std::uint64_t, std::uint64_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  SearchOptions o = given;
  if (o.keep_all) o.prune = false;
  SearchResult result;
  if (o.workload) leave_out_decoders(c, o, result);
  std::tie(result.x, result.y) = std::pair(o.x, o.y);
  const std::vector<Candidate> candidates = enumerate_candidates(c, o, result);
  for (const StrategyId id : o.strategies) result.frontiers.emplace(id, Frontier(o.x, o.y));
  result.even = Frontier(o.x, o.y);
  const auto frontier_of = [&](const Candidate& u) -> Frontier& {
    return u.baseline ? result.even : result.frontiers.at(u.plan.strategy);
  };

  const std::size_t threads = thread_count(o.threads);
  require_memory(need_of(c, o, candidates, threads));
  result.all.reserve(points_kept(o, candidates));  // to move a million takes longer than a signal waits for
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  const std::vector<std::unique_ptr<Worker>> workers = make_workers(c, o, threads, cache);

  // Waves: every candidate of a wave sees the frontier as it stood before the wave, so what is pruned does
  // not depend on which thread was first.
  const Turns turn = turns(c, o, candidates, workers);
  std::vector<CandidateResult> wave;
  Sample simulations, bounds;
  for (std::size_t begin = 0; begin < candidates.size();) {
    const std::size_t end = wave_end(turn, begin);
    begin_wave(wave, o.x, o.y, begin, end);
    const bool known_wave = restored(o.journal, begin, end, wave);
    parallel_for(begin, known_wave ? begin : end, threads, [&](std::size_t i, std::size_t slot) {
      const Frontier& known = frontier_of(candidates[turn.of[i]]);
      CandidateSearch(c, o, candidates[turn.of[i]], known, *workers[slot], cache, turn.least[turn.of[i]],
                      wave[i - begin])
          .run();
    });
    if (!known_wave) keep(o.journal, begin, end, wave);
    for (std::size_t i = begin; i < end; ++i) {
      check_cancelled();  // hundreds of candidates may have found tens of megabytes
      CandidateResult& r = wave[i - begin];
      frontier_of(candidates[turn.of[i]]).merge(r.frontier);
      add_counts(result.counts, r.counts);
      if (r.counts.infeasible > 0) result.rejected["weights and KV exceed memory"] += r.counts.infeasible;
      simulations += r.simulations;
      bounds += r.bounds;
      result.all.insert(result.all.end(), r.all.begin(), r.all.end());
    }
    begin = end;
    if (progress && !progress(begin, candidates.size())) break;
  }
  if (o.most_ttft > Seconds(0) && result.overall().size() == 0)
    result.nearest = nearest_points(c, o, candidates);
  result.counts.simulations_per_second = simulations.rate();
  result.counts.bounds_per_second = bounds.rate();
  result.counts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace shardline
