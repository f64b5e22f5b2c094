#include <fmt/format.h>

#include <algorithm>

#include "cuda_probe/execute/cpu/mutations.hpp"
#include "cuda_probe/execute/verify/verify_cases.hpp"
#include "planner/cli/commands.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

struct VerifyOptions {
  std::string strategy = "all";
  bool mutations = false;  // also break schedules and see that each is found
};

constexpr double kDoubleLimit = 1e-12, kFloatLimit = 1e-5;

// Largest and smallest distance of the definition to exact attention over the cases of a strategy.
std::string distance(const Strategy& s, const std::vector<VerifyCase>& cases) {
  if (s.exact || cases.empty()) return "";
  double least = 1e300, most = 0;
  for (std::size_t i = 0; i < cases.size(); i += 1 + cases.size() / 20) {
    const double d = distance_to_exact(cases[i].problem);
    least = std::min(least, d);
    most = std::max(most, d);
  }
  return fmt::format("{:.2f} to {:.2f}", least, most);
}

const char* result(const Strategy& s, bool none) {
  return none ? "timed only" : s.exact ? "exact" : "APPROXIMATE: equals its definition";
}

std::string count(double n) { return n < 1e5 ? fmt::format("{:.0f}", n) : fmt::format("{:.3g}", n); }

// How many of the ways to break the strategy's schedules are found. Each is tried on the first cases that
// offer a place for it.
bool print_mutations(const std::vector<const Strategy*>& chosen) {
  Table t({"mutation", "what is broken", "tried", "found"});
  bool all = true;
  for (const Mutation& m : mutations()) {
    int tried = 0, found = 0;
    for (const Strategy* s : chosen) {
      int here = 0;
      const std::vector<VerifyCase> cases = verify_cases(*s);
      for (std::size_t i = 0; i < cases.size() && here < 2; i += 1 + cases.size() / 40) {
        if (interrupted()) throw UserError("interrupted");
        if (cases[i].charges != Charges::every_rank) continue;
        Schedule broken = deep_copy(verify_schedule(cases[i]));
        std::mt19937_64 random(i);
        if (!m.apply(broken, random)) continue;
        ++here;
        ++tried;
        found += check(broken, cases[i].problem).passed(kDoubleLimit, kFloatLimit) ? 0 : 1;
      }
    }
    all = all && found == tried;
    t.add({m.name, m.what, std::to_string(tried), std::to_string(found)});
  }
  fmt::print("{}\n", t.text());
  return all;
}

void declare(Arguments& a, VerifyOptions& o) {
  a.add("strategy", o.strategy, "A strategy, or all (default)");
  a.flag("--mutations", o.mutations, "Also break their schedules, and see that each fault is found");
}

int run(const VerifyOptions& o, const Provenance&) {
  std::vector<const Strategy*> chosen;
  if (o.strategy == "all") {
    chosen.assign(strategies().begin(), strategies().end());
  } else {
    chosen.push_back(&strategy(o.strategy));
  }
  fmt::print("Strategies run on real tensors, over in-process ranks, against attention on one device\n");
  const bool approximate =
      std::any_of(chosen.begin(), chosen.end(), [](const Strategy* s) { return !s->exact; });
  std::vector<std::string> header{"strategy",     "cases",    "error (double)", "error (float)",
                                  "(q, k) pairs", "messages", "result"};
  if (approximate) header.emplace_back("distance to exact");
  Table t(header);
  std::vector<std::string> faults;
  for (const Strategy* s : chosen) {
    const std::vector<VerifyCase> cases = verify_cases(*s);
    double in_double = 0, in_float = 0, pairs = 0, messages = 0;
    std::size_t failed = 0;
    Progress progress(s->name, Progress::terminal());
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (interrupted()) throw UserError("interrupted");
      progress.show(i, cases.size());
      const Check c = run_case(cases[i]);
      in_double = std::max(in_double, c.max_error_double);
      in_float = std::max(in_float, c.max_error_float);
      pairs += static_cast<double>(c.counts.pairs);
      messages += static_cast<double>(c.counts.messages);
      if (c.passed(kDoubleLimit, kFloatLimit)) continue;
      ++failed;
      faults.push_back(cases[i].what + (c.worst.empty() ? "" : ": " + c.worst));
      for (const std::string& fault : c.faults) faults.push_back("  " + fault);
    }
    std::vector<std::string> row{s->name,
                                 std::to_string(cases.size()),
                                 fmt::format("{:.1e}", in_double),
                                 fmt::format("{:.1e}", in_float),
                                 count(pairs),
                                 count(messages),
                                 failed == 0 ? result(*s, cases.empty()) : fmt::format("{} failed", failed)};
    if (approximate) row.push_back(distance(*s, cases));
    t.add(row);
  }
  fmt::print("{}", t.text());
  fmt::print("  limits: {:.0e} in double, {:.0e} in float; FLOPs, KV reads and bytes equal those charged\n\n",
             kDoubleLimit, kFloatLimit);
  if (approximate) {
    fmt::print(
        "  distance to exact: |output - exact attention| / |exact attention|, root mean squares over random "
        "tokens\n\n");
  }
  constexpr std::size_t kShown = 40;
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) fmt::print("  {}\n", faults[i]);
  if (faults.size() > kShown) fmt::print("  ... and {} more lines\n", faults.size() - kShown);
  bool found = true;
  if (o.mutations) found = print_mutations(chosen);
  if (!found) fmt::print("  a broken schedule was taken for a right one\n");
  return faults.empty() && found ? 0 : 1;
}

}  // namespace

const Command kVerify{"verify", "Run strategies on real tensors and compare with plain attention",
                      "shardline verify ring_pass_kv --mutations", prepare<VerifyOptions, declare, run>};

}  // namespace shardline::cli
