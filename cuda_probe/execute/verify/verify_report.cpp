#include "cuda_probe/execute/verify/verify_report.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "cuda_probe/execute/cpu/mutations.hpp"
#include "sim/base/parallel.hpp"

namespace shardline::cli {

namespace {

// Runs body(i) of every job, and tells `watch` of each.
void run_all(std::size_t jobs, int threads, const VerifyWatch& watch,
             const std::function<void(std::size_t)>& body) {
  std::mutex mutex;
  std::size_t begun = 0;
  parallel_for(0, jobs, thread_count(threads), [&](std::size_t i, std::size_t) {
    {
      const std::lock_guard lock(mutex);
      watch(begun++, jobs);
    }
    body(i);
  });
}

// A case of a strategy, and what came of it.
struct Tried {
  const VerifyCase* of = nullptr;
  std::size_t strategy = 0;
  bool measured = false;  // its distance to exact attention too
  Check check;
  double distance = 0;
};

// Of an approximate strategy a part of the cases is measured: each runs attention twice.
std::vector<Tried> trials(std::span<const Strategy* const> chosen,
                          const std::vector<std::vector<VerifyCase>>& cases) {
  std::vector<Tried> out;
  for (std::size_t s = 0; s < cases.size(); ++s) {
    for (std::size_t i = 0; i < cases[s].size(); ++i)
      out.push_back({&cases[s][i], s, !chosen[s]->exact && i % (1 + cases[s].size() / 20) == 0, Check{}, 0});
  }
  return out;
}

void add(VerifiedStrategy& out, const Tried& t, std::vector<std::string>& faults) {
  const Check& c = t.check;
  out.error_double = std::max(out.error_double, c.max_error_double);
  out.error_float = std::max(out.error_float, c.max_error_float);
  out.pairs += static_cast<double>(c.counts.pairs);
  out.messages += static_cast<double>(c.counts.messages);
  if (t.measured) {
    if (!out.distance) out.distance.emplace();
    out.distance->least = std::min(out.distance->least, t.distance);
    out.distance->most = std::max(out.distance->most, t.distance);
  }
  if (c.passed(kDoubleLimit, kFloatLimit)) return;
  ++out.failed;
  faults.push_back(t.of->what + (c.worst.empty() ? "" : ": " + c.worst));
  for (const std::string& fault : c.faults) faults.push_back("  " + fault);
}

std::vector<std::vector<VerifyCase>> cases_of(std::span<const Strategy* const> chosen) {
  std::vector<std::vector<VerifyCase>> out;
  for (const Strategy* s : chosen) out.push_back(verify_cases(*s));
  return out;
}

// Whether a fault may change nothing: where ranks score blocks of each other's keys, a message that is a row
// off, or lands so, may leave the highest score of every block as it was, and so what is chosen. Keys that
// are chosen one by one show it, and so do blocks of a rank's own keys.
bool may_hide(const VerifyCase& c) {
  const auto& kinds = c.study.model.attentions;
  return c.plan.cp > 1 && std::any_of(kinds.begin(), kinds.end(),
                                      [](const Attention& a) { return a.index && a.index->block > 1; });
}

// How often a mutation had a place, and was found, in one strategy's cases.
std::pair<int, int> try_mutation(const Mutation& m, const std::vector<VerifyCase>& cases) {
  int tried = 0, found = 0;
  for (std::size_t i = 0; i < cases.size() && tried < 2; i += 1 + cases.size() / 40) {
    if (cases[i].charges != Charges::every_rank || may_hide(cases[i])) continue;
    Schedule broken = deep_copy(verify_schedule(cases[i]));
    std::mt19937_64 random(i);
    if (!m.apply(broken, random)) continue;
    ++tried;
    found += check(broken, cases[i].kinds).passed(kDoubleLimit, kFloatLimit) ? 0 : 1;
  }
  return {tried, found};
}

}  // namespace

VerifyReport verify_strategies(std::span<const Strategy* const> chosen, const VerifyWatch& watch,
                               int threads) {
  const std::vector<std::vector<VerifyCase>> cases = cases_of(chosen);
  std::vector<Tried> all = trials(chosen, cases);
  run_all(all.size(), threads, watch, [&](std::size_t i) {
    all[i].check = run_case(*all[i].of);
    if (all[i].measured) all[i].distance = distance_to_exact(all[i].of->kinds.front());
  });
  // In the order of the cases, so that sums and faults are the same for any number of threads.
  VerifyReport out;
  out.strategies.resize(chosen.size());
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    out.strategies[s].strategy = chosen[s];
    out.strategies[s].cases = cases[s].size();
  }
  for (const Tried& t : all) add(out.strategies[t.strategy], t, out.faults);
  return out;
}

std::vector<TriedMutation> try_mutations(std::span<const Strategy* const> chosen, const VerifyWatch& watch,
                                         int threads) {
  const std::vector<std::vector<VerifyCase>> cases = cases_of(chosen);
  const auto broken = mutations();
  std::vector<std::pair<int, int>> found(broken.size() * chosen.size());
  run_all(found.size(), threads, watch, [&](std::size_t i) {
    found[i] = try_mutation(broken[i / chosen.size()], cases[i % chosen.size()]);
  });
  std::vector<TriedMutation> out;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const Mutation& m = broken[i / chosen.size()];
    if (i % chosen.size() == 0) out.push_back({m.name, m.what});
    out.back().tried += found[i].first;
    out.back().found += found[i].second;
  }
  return out;
}

}  // namespace shardline::cli
