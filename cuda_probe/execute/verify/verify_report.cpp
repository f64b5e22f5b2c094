#include "cuda_probe/execute/verify/verify_report.hpp"

#include <algorithm>

#include "cuda_probe/execute/cpu/mutations.hpp"

namespace shardline::cli {

namespace {

// Over a part of the cases: each runs attention twice.
std::optional<VerifiedStrategy::Distance> distance(const Strategy& s, const std::vector<VerifyCase>& cases) {
  if (s.exact || cases.empty()) return std::nullopt;
  VerifiedStrategy::Distance all;
  for (std::size_t i = 0; i < cases.size(); i += 1 + cases.size() / 20) {
    const double d = distance_to_exact(cases[i].problem);
    all.least = std::min(all.least, d);
    all.most = std::max(all.most, d);
  }
  return all;
}

VerifiedStrategy verify(const Strategy& s, const VerifyWatch& watch, std::vector<std::string>& faults) {
  VerifiedStrategy out;
  out.strategy = &s;
  const std::vector<VerifyCase> cases = verify_cases(s);
  out.cases = cases.size();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    watch(s, i, cases.size());
    const Check c = run_case(cases[i]);
    out.error_double = std::max(out.error_double, c.max_error_double);
    out.error_float = std::max(out.error_float, c.max_error_float);
    out.pairs += static_cast<double>(c.counts.pairs);
    out.messages += static_cast<double>(c.counts.messages);
    if (c.passed(kDoubleLimit, kFloatLimit)) continue;
    ++out.failed;
    faults.push_back(cases[i].what + (c.worst.empty() ? "" : ": " + c.worst));
    for (const std::string& fault : c.faults) faults.push_back("  " + fault);
  }
  out.distance = distance(s, cases);
  return out;
}

}  // namespace

VerifyReport verify_strategies(std::span<const Strategy* const> chosen, const VerifyWatch& watch) {
  VerifyReport out;
  for (const Strategy* s : chosen) out.strategies.push_back(verify(*s, watch, out.faults));
  return out;
}

std::vector<TriedMutation> try_mutations(std::span<const Strategy* const> chosen, const VerifyWatch& watch) {
  std::vector<TriedMutation> out;
  for (const Mutation& m : mutations()) {
    TriedMutation all{m.name, m.what};
    for (const Strategy* s : chosen) {
      int here = 0;
      const std::vector<VerifyCase> cases = verify_cases(*s);
      for (std::size_t i = 0; i < cases.size() && here < 2; i += 1 + cases.size() / 40) {
        watch(*s, i, cases.size());
        if (cases[i].charges != Charges::every_rank) continue;
        Schedule broken = deep_copy(verify_schedule(cases[i]));
        std::mt19937_64 random(i);
        if (!m.apply(broken, random)) continue;
        ++here;
        ++all.tried;
        all.found += check(broken, cases[i].problem).passed(kDoubleLimit, kFloatLimit) ? 0 : 1;
      }
    }
    out.push_back(all);
  }
  return out;
}

}  // namespace shardline::cli
