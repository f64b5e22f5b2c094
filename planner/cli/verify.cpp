#include "cuda_probe/execute/verify/verify_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/api/checks.hpp"
#include "planner/cli/commands.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/memory_limit.hpp"
#include "sim/base/parallel.hpp"

namespace shardline::cli {

namespace {

struct VerifyOptions {
  std::string strategy = "all";
  bool mutations = false;  // also break schedules and see that each is found
  int threads = 0;
};

std::string result(const VerifiedStrategy& v) {
  if (v.failed > 0) return fmt::format("{} failed", v.failed);
  return v.cases == 0 ? "timed only" : v.strategy->exact ? "exact" : "APPROXIMATE: equals its definition";
}

std::string count(double n) { return n < 1e5 ? fmt::format("{:.0f}", n) : fmt::format("{:.3g}", n); }

void print_strategies(const VerifyReport& report) {
  const bool approximate = std::any_of(report.strategies.begin(), report.strategies.end(),
                                       [](const VerifiedStrategy& v) { return !v.strategy->exact; });
  std::vector<std::string> header{"strategy",     "cases",    "error (double)", "error (float)",
                                  "(q, k) pairs", "messages", "result"};
  if (approximate) header.emplace_back("distance to exact");
  Table t(header);
  for (const VerifiedStrategy& v : report.strategies) {
    std::vector<std::string> row{v.strategy->name,
                                 std::to_string(v.cases),
                                 fmt::format("{:.1e}", v.error_double),
                                 fmt::format("{:.1e}", v.error_float),
                                 count(v.pairs),
                                 count(v.messages),
                                 result(v)};
    if (approximate)
      row.push_back(v.distance ? fmt::format("{:.2f} to {:.2f}", v.distance->least, v.distance->most) : "");
    t.add(row);
  }
  print_notes("{}", fitted(t));
  print_notes(
      "  limits: {:.0e} in double, {:.0e} in float; FLOPs, KV reads and bytes equal those charged\n\n",
      kDoubleLimit, kFloatLimit);
  if (approximate) {
    print_notes(
        "  distance to exact: |output - exact attention| / |exact attention|, root mean squares over random "
        "tokens\n\n");
  }
  const std::vector<std::string>& faults = report.faults;
  constexpr std::size_t kShown = 40;
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) print_notes("  {}\n", faults[i]);
  if (faults.size() > kShown) print_notes("  ... and {} more lines\n", faults.size() - kShown);
}

void print_mutations(const std::vector<TriedMutation>& mutations, bool all_found) {
  Table t({"mutation", "what is broken", "tried", "found"});
  for (const TriedMutation& m : mutations)
    t.add({m.name, m.what, std::to_string(m.tried), std::to_string(m.found)});
  print_notes("{}\n", fitted(t));
  if (!all_found) print_notes("  a broken schedule was taken for a right one\n");
}

bool found_all(const std::vector<TriedMutation>& mutations) {
  return std::all_of(mutations.begin(), mutations.end(),
                     [](const TriedMutation& m) { return m.found == m.tried; });
}

api::VerifiedStrategy verified(const VerifiedStrategy& v) {
  api::VerifiedStrategy out{v.strategy->name, v.strategy->exact, v.cases,    v.failed, v.error_double,
                            v.error_float,    v.pairs,           v.messages, {},       {}};
  if (v.distance) {
    out.least_distance = v.distance->least;
    out.most_distance = v.distance->most;
  }
  return out;
}

// `mutations`: null where they were not asked for.
void set_document(const VerifyReport& report, const std::vector<TriedMutation>* mutations,
                  const Provenance& made_by) {
  if (made_by.document == nullptr) return;
  api::VerifyResult out;
  out.version = made_by.version;
  out.command = made_by.command;
  out.passed = report.passed() && (mutations == nullptr || found_all(*mutations));
  out.limit_double = kDoubleLimit;
  out.limit_float = kFloatLimit;
  for (const VerifiedStrategy& v : report.strategies) out.strategies.push_back(verified(v));
  out.faults = report.faults;
  if (mutations != nullptr) {
    out.mutations.emplace();
    for (const TriedMutation& m : *mutations) out.mutations->push_back({m.name, m.what, m.tried, m.found});
  }
  made_by.document->set(api::to_json(out));
}

void declare(Arguments& a, VerifyOptions& o) {
  a.add("strategy", o.strategy, "A strategy, or all (default)").offers(offered_strategies);
  a.flag("--mutations", o.mutations, "Also break their schedules, and see that each fault is found");
  add_threads(a, o.threads);
}

// Measured as peak resident memory (tests/golden/memory.py asks again), rounded up: of all strategies, whose
// tensors are the same few thousand numbers whatever else is asked, and of what a thread keeps of them.
MemoryNeed need_of_verification(int threads) {
  constexpr double kProcess = 110e6, kThread = 15e6;
  const std::size_t workers = thread_count(threads);
  return {Bytes(kProcess + kThread * static_cast<double>(workers)),
          fmt::format("tensors of all ranks on each of {} threads", workers), "fewer --threads"};
}

int run(const VerifyOptions& o, const Provenance& made_by) {
  require_memory(need_of_verification(o.threads));
  std::vector<const Strategy*> chosen;
  if (o.strategy == "all") {
    chosen.assign(strategies().begin(), strategies().end());
  } else {
    chosen.push_back(&strategy(o.strategy));
  }
  print_notes("Strategies run on real tensors, over in-process ranks, against attention on one device\n");
  VerifyReport report;
  {
    Progress progress("verify", Progress::terminal(), "cases");
    report = verify_strategies(
        chosen,
        [&](std::size_t done, std::size_t total) {
          if (interrupted()) throw Cancelled{};
          progress.show(done, total);
        },
        o.threads);
  }
  print_strategies(report);
  if (!o.mutations) {
    set_document(report, nullptr, made_by);
    return report.passed() ? 0 : 1;
  }
  std::vector<TriedMutation> mutations;
  {
    Progress progress("mutations", Progress::terminal(), "cases");
    mutations = try_mutations(
        chosen,
        [&](std::size_t done, std::size_t total) {
          if (interrupted()) throw Cancelled{};
          progress.show(done, total);
        },
        o.threads);
  }
  const bool all_found = found_all(mutations);
  set_document(report, &mutations, made_by);
  print_mutations(mutations, all_found);
  return report.passed() && all_found ? 0 : 1;
}

}  // namespace

const Command kVerifyCommand{"verify", "Run strategies on real tensors and compare with plain attention",
                             "shardline verify ring_pass_kv --mutations",
                             prepare<VerifyOptions, declare, run>};

}  // namespace shardline::cli
