#include "planner/studies/partition_proof.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/error.hpp"

namespace shardline {

GranularChain::GranularChain(const ChainCost& cost, const PartitionProblem& problem)
    : cost_(cost), problem_(problem), granules_(problem.context / std::max(1LL, problem.granularity)) {
  SL_CHECK(problem.granularity > 0 && problem.ranks > 0 && granules_ >= problem.ranks,
           "every rank has a granule");
}

ChainStep GranularChain::step(long long before, long long end) const {
  ++priced_;
  return cost_.step(tokens(end) - tokens(before), tokens(end));
}

std::vector<long long> GranularChain::partition(const GranuleEnds& ends) const {
  std::vector<long long> out;
  long long before = 0;
  for (const long long end : ends) {
    out.push_back(tokens(end) - before);
    before = tokens(end);
  }
  return out;
}

Seconds GranularChain::period(const GranuleEnds& ends) const {
  Seconds out;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const ChainStep s = step(i > 0 ? ends[i - 1] : 0, ends[i]);
    out = std::max(out, s.loop());
    if (i + 1 < ends.size()) out = std::max(out, s.send);
  }
  return out;
}

bool GranularChain::pack_early(Seconds limit, GranuleEnds& ends, Seconds& next) const {
  const int p = problem_.ranks;
  ends.assign(static_cast<std::size_t>(p), granules_);
  Seconds in_the_way;
  const auto within = [&](Seconds time) {
    if (time > limit) in_the_way = time;
    return time <= limit;
  };
  long long width = std::max(1LL, granules_ / p);
  for (int i = p - 1; i >= 0; --i) {
    const long long end = ends[static_cast<std::size_t>(i)];
    if (i + 1 < p && !within(step(end - 1, end).send)) {
      next = std::min(next, in_the_way);
      return false;
    }
    // The part begins behind `low`, where it is too long. Neighbours' parts are about equal: doubling steps
    // from the last width, then halving.
    const long long lowest = i > 0 ? i - 1 : -1, highest = i > 0 ? end : 1;
    long long low = lowest, high = highest;
    for (long long probe = std::max(end - width, low + 1), stride = std::max(1LL, width / 16); low + 1 < high;
         stride *= 2) {
      probe = std::clamp(probe, low + 1, high - 1);
      (within(step(probe, end).loop()) ? high : low) = probe;
      probe = low == lowest ? high - stride : high == highest ? low + stride : low + (high - low) / 2;
    }
    if (low > lowest) next = std::min(next, in_the_way);
    if (high == highest) return false;
    if (i == 0) return high == 0;
    ends[static_cast<std::size_t>(i - 1)] = high;
    width = end - high;
  }
  return true;
}

bool GranularChain::pack_late(Seconds limit, GranuleEnds& ends) const {
  const int p = problem_.ranks;
  ends.assign(static_cast<std::size_t>(p), granules_);
  const auto last_that = [](long long low, long long high, const auto& holds) {
    while (low < high) {
      const long long middle = high - (high - low) / 2;
      if (holds(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  };
  // A part must leave the ranks behind it prefixes that one granule each does not make too long.
  // The first rank, which joins nothing, is no such rank.
  const long long room = p == 2 ? granules_ - 1 : last_that(0, granules_ - 1, [&](long long end) {
    const ChainStep s = step(std::max(1LL, end) - 1, std::max(1LL, end));
    return s.send <= limit && (end < 2 || s.loop() <= limit);
  });
  long long before = 0;
  for (int i = 0; i + 1 < p; ++i) {
    const long long end = last_that(before, std::max(before, room - (p - 2 - i)), [&](long long e) {
      const ChainStep s = step(before, e);
      return s.loop() <= limit && s.send <= limit;
    });
    if (end == before) return false;
    ends[static_cast<std::size_t>(i)] = before = end;
  }
  return step(before, granules_).loop() <= limit;
}

namespace {

struct Label {
  Seconds time;    // of the chain from this rank on
  Seconds passed;  // joins, messages and the last rank's rest
  Seconds longest;
  long long end = 0;  // of this rank's part
  std::size_t next = 0;
};

class Search {
 public:
  Search(const GranularChain& chain, Seconds period, const GranuleEnds& known, Seconds time)
      : chain_(chain), period_(period), p_(known.size()), again_(chain.cost().layers - 1.0) {
    // Sums in another order differ by rounding.
    limit_ = (time - chain.cost().tail) * (1 - 1e-12);
  }

  /// Windows of the ends of partitions that may be faster; false if there are none.
  bool narrow() {
    low_.resize(p_);
    high_.assign(p_, chain_.granules());
    for (std::size_t i = 0; i < p_; ++i) {
      low_[i] = static_cast<long long>(i) + 1;
      high_[i] = chain_.granules() - static_cast<long long>(p_ - 1 - i);
    }
    low_.back() = chain_.granules();
    if (again_ == 0) return true;
    for (int round = 0; round < 4; ++round) {
      const Seconds most = (limit_ - fill()) / again_;
      Seconds unused;
      GranuleEnds latest, earliest;
      if (most < period_ || !chain_.pack_late(most, latest) || !chain_.pack_early(most, earliest, unused))
        return false;
      // Packing leaves room: ends within both.
      for (std::size_t i = 0; i < p_; ++i) {
        low_[i] = std::max(low_[i], earliest[i]);
        high_[i] = std::min(high_[i], latest[i]);
        if (low_[i] > high_[i]) return false;
      }
    }
    return true;
  }

  /// The least that starting, passing on and finishing takes within the windows; by rank before which.
  Seconds fill() {
    before_.assign(p_ + 1, Seconds(0));
    before_[0] = chain_.step(0, low_[0]).project;
    for (std::size_t i = 0; i < p_; ++i) {
      const ChainStep least = chain_.step(low_[i] - 1, low_[i]);
      before_[i + 1] = before_[i];
      // A first rank of one granule joins nothing.
      if (i > 0) before_[i + 1] += least.join;
      if (i + 1 < p_) before_[i + 1] += least.send;
    }
    const long long last = p_ > 1 ? high_[p_ - 2] : 0;
    return before_[p_] + chain_.step(last, chain_.granules()).rest;
  }

  std::uint64_t pairs() const {
    std::uint64_t n = 0;
    for (std::size_t i = 1; i < p_; ++i) n += width(i) * width(i - 1);
    return n;
  }

  /// False if it takes more than `budget` steps.
  bool run(std::uint64_t budget) {
    pools_.assign(p_ + 1, {});
    std::vector<std::vector<std::size_t>> at(1);
    std::uint64_t steps = 0;
    for (std::size_t i = p_; i-- > 0;) {
      const long long first = i > 0 ? low_[i - 1] : 0, last = i > 0 ? high_[i - 1] : 0;
      std::vector<std::vector<std::size_t>> here(static_cast<std::size_t>(last - first + 1));
      for (long long begin = first; begin <= last; ++begin) {
        auto& front = here[static_cast<std::size_t>(begin - first)];
        for (long long end = std::max(low_[i], begin + 1); end <= high_[i]; ++end) {
          const auto& later = at[static_cast<std::size_t>(end - low_[i])];
          if (i + 1 < p_ && later.empty()) continue;
          const ChainStep s = chain_.step(begin, end);
          const std::size_t count = i + 1 < p_ ? later.size() : 1;
          for (std::size_t k = 0; k < count; ++k) {
            if (++steps > budget) return false;
            add(i, front, extended(i, s, end, i + 1 < p_ ? later[k] : 0));
          }
        }
        steps += front.size();
      }
      at = std::move(here);
    }
    return true;
  }

  GranuleEnds best() const {
    const std::vector<Label>& firsts = pools_[0];
    GranuleEnds ends;
    if (firsts.empty()) return ends;
    const auto least = std::min_element(firsts.begin(), firsts.end(),
                                        [](const Label& a, const Label& b) { return a.time < b.time; });
    std::size_t k = static_cast<std::size_t>(least - firsts.begin());
    for (std::size_t i = 0; i < p_; ++i) {
      const Label& l = pools_[i][k];
      ends.push_back(l.end);
      k = l.next;
    }
    return ends;
  }

 private:
  std::uint64_t width(std::size_t i) const { return static_cast<std::uint64_t>(high_[i] - low_[i] + 1); }

  Label extended(std::size_t i, const ChainStep& s, long long end, std::size_t next) const {
    Label l;
    l.end = end;
    l.next = next;
    l.longest = s.loop();
    if (i + 1 < p_) {
      const Label& later = pools_[i + 1][next];
      l.passed = later.passed + s.send;
      l.longest = std::max({l.longest, later.longest, s.send});
      l.time = later.time;
    } else {
      l.passed = s.rest;
    }
    l.passed += s.join;
    l.time = std::max(l.time, s.project + l.passed + l.longest * again_);
    return l;
  }

  void add(std::size_t i, std::vector<std::size_t>& front, const Label& l) {
    if (l.time >= limit_) return;
    if (before_[i] + l.passed + std::max(l.longest, period_) * again_ >= limit_ && i > 0) return;
    std::vector<Label>& pool = pools_[i];
    const auto beats = [](const Label& a, const Label& b) {
      return a.time <= b.time && a.passed <= b.passed && a.longest <= b.longest;
    };
    for (const std::size_t k : front)
      if (beats(pool[k], l)) return;
    std::erase_if(front, [&](std::size_t k) { return beats(l, pool[k]); });
    front.push_back(pool.size());
    pool.push_back(l);
  }

  const GranularChain& chain_;
  Seconds period_, limit_;
  std::size_t p_;
  double again_;
  GranuleEnds low_, high_;
  std::vector<Seconds> before_;
  std::vector<std::vector<Label>> pools_;  // by rank
};

}  // namespace

Proof prove(const GranularChain& chain, Seconds period, const GranuleEnds& known, Seconds time,
            std::uint64_t budget) {
  Proof out;
  out.bound = time;
  Search search(chain, period, known, time);
  if (!search.narrow()) {
    out.complete = true;
    return out;
  }
  const Seconds bound = search.fill() + period * (chain.cost().layers - 1.0) + chain.cost().tail;
  out.bound = std::min(time, bound);
  if (budget == 0 || search.pairs() > budget || !search.run(budget)) return out;
  out.complete = true;
  out.better = search.best();
  return out;
}

}  // namespace shardline
