#include "planner/search/memory_need.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "hardware/timing/lowering.hpp"
#include "planner/layers/prefill_layout.hpp"
#include "planner/plan/options.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/searched_partition.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

// Measured as kProcessBytes. A task of a graph of all layers: its row, demands, dependencies, span, state in
// the engine, critical path.
constexpr double kTask = 420;
// A chunk on a stage in trace.json: the event, its text, and the text of the file beside it.
constexpr double kTracedChunk = 2400;
// A configuration that is kept: the point, what its time rests on, its row of all.csv and its dot in
// pictures.
constexpr double kKeptPoint = 2500;
// A plan that a search looks at: itself, blocks that are known of it, points of its own frontier.
constexpr double kLookedAt = 1500;
// Vectors grow by doubling: at worst the old half is there beside twice of what is needed, of which only what
// is used is touched. Of each op of a schedule pricing, times and breakdown keep as much again.
constexpr double kLayouts = 1.6, kSchedule = 3.6;

template <class T>
double bytes_of(const std::vector<T>& v) {
  return static_cast<double>(v.size() * sizeof(T));
}

double bytes_of(const std::vector<Tokens>& ranks) {
  double sum = 0;
  for (const Tokens& t : ranks) sum += static_cast<double>(sizeof(Tokens)) + bytes_of(t);
  return sum;
}

double bytes_of(const ContextLayout& l) {
  return bytes_of(l.fresh) + bytes_of(l.queries) + bytes_of(l.keys) + bytes_of(l.results) +
         bytes_of(l.fresh_count) + bytes_of(l.cached_count) + bytes_of(l.query_rows) + bytes_of(l.key_rows) +
         bytes_of(l.first_key) + bytes_of(l.kept);
}

double bytes_of(const Schedule& s) {
  double sum = bytes_of(s.ops) + bytes_of(s.dependencies) + bytes_of(s.blocks) + bytes_of(s.order) +
               bytes_of(s.program) + bytes_of(s.stages) + bytes_of(s.variants);
  if (s.classes > 1 || s.detached) {
    double tasks = 0;
    for (const Stage& stage : s.stages) {
      for (const Repeat& repeat : s.program_of(stage)) {
        for (const BlockIndex b : s.blocks_of(repeat))
          tasks += static_cast<double>(s.blocks[b].last - s.blocks[b].first) * repeat.times * stage.copies;
      }
    }
    sum += tasks * s.classes * kTask;
  }
  return sum;
}

// Of the layouts of chunks the largest, beside where the tokens before it lie.
double counted(const Case& c, Plan plan) {
  if (takes_partition(c, plan)) set_parts(plan, Parts::even);  // as many ops, whatever the parts are
  double largest = 0;
  if (plan[kPrefillChunk] > 0) {
    ChunkLayouts chunks(c, plan);
    while (const std::optional<PrefillLayout> round = chunks.next())
      largest =
          std::max(largest, bytes_of(round->dealt) + bytes_of(round->requests) + bytes_of(round->names));
  }
  Schedule s;
  lower(s, c, plan);
  return kLayouts * largest + kSchedule * bytes_of(s);
}

// Of each strategy the plans with the most rounds that deal their tokens and layers out most widely: what is
// kept of a round grows with the ranks that share it. To count all plans would take as long as a search.
std::vector<const Plan*> widest_plans(const Case& c, std::span<const Plan> plans) {
  constexpr std::array<int Plan::*, 3> kDegrees{&Plan::cp, &Plan::pp, &Plan::tpa};
  struct Widest {
    const Plan* plan = nullptr;
    std::tuple<long long, int, int> width;  // rounds, the degree, GPUs
  };
  std::map<StrategyId, std::array<Widest, kDegrees.size()>> found;
  for (const Plan& p : plans) {
    const long long rounds = rounds_of(c, p);
    if (rounds == 1) continue;
    for (std::size_t i = 0; i < kDegrees.size(); ++i) {
      Widest& w = found[p.strategy][i];
      const std::tuple width(rounds, p.*kDegrees[i], p.gpus());
      if (w.plan == nullptr || width > w.width) w = {&p, width};
    }
  }
  std::vector<const Plan*> out;
  for (const auto& [strategy, widest] : found) {
    for (const Widest& w : widest) out.push_back(w.plan);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string chunks(long long n) { return fmt::format("{} chunks of a prompt", n); }
constexpr const char* kLarger = "larger chunks (prefill_chunk), or fewer new tokens";

}  // namespace

long long rounds_of(const Case& c, const Plan& plan) {
  const long long chunk = plan[kPrefillChunk];
  long long longest = 0;
  for (const Segment& r : c.batch.prefill) longest = std::max(longest, r.fresh);
  return chunk > 0 ? (longest + chunk - 1) / chunk : 1;
}

Bytes step_memory(const Case& c, const Plan& plan) {
  constexpr long long kFew = 128;  // rounds that are made as they are
  const long long rounds = rounds_of(c, plan);
  if (rounds <= kFew) return Bytes(counted(c, plan));
  // What is kept of a round grows with those before it where ranks share its tokens: a parabola through
  // three points.
  std::array<double, 3> at{}, bytes{};
  Plan few = plan;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const long long chunk = plan[kPrefillChunk] * rounds / (kFew >> (2 - i));
    few.set(kPrefillChunk, static_cast<int>(std::min<long long>(chunk, 1LL << 30)));
    at[i] = static_cast<double>(rounds_of(c, few));
    bytes[i] = counted(c, few);
  }
  const double first = (bytes[1] - bytes[0]) / (at[1] - at[0]),
               second = (bytes[2] - bytes[1]) / (at[2] - at[1]);
  const double square = std::max(0.0, (second - first) / (at[2] - at[0]));
  const double more = static_cast<double>(rounds) - at[2];
  return Bytes(bytes[2] + more * (second + square * (more + at[2] - at[1])));
}

MemoryNeed need_of_step(const Case& c, const Plan& plan) {
  return {Bytes(kProcessBytes) + step_memory(c, plan), chunks(rounds_of(c, plan)), kLarger};
}

MemoryNeed need_of_trace(const Case& c, const Plan& plan) {
  MemoryNeed need = need_of_step(c, plan);
  const long long rounds = rounds_of(c, plan);
  if (rounds == 1) return need;
  need.bytes += Bytes(kTracedChunk * static_cast<double>(rounds) * plan.pp);
  need.most = fmt::format("the trace of {} on {} stages", chunks(rounds), plan.pp);
  need.smaller = std::string(kLarger) + ", or no -o";
  return need;
}

MemoryNeed need_of_search(const Case& c, std::span<const Plan> plans, std::size_t threads,
                          std::uint64_t points) {
  long long rounds = 1;
  double step = 0;
  for (const Plan* const p : widest_plans(c, plans)) {
    check_cancelled();
    const double bytes = step_memory(c, *p).value;
    if (bytes <= step) continue;
    step = bytes;
    rounds = rounds_of(c, *p);
  }
  const double steps = step * static_cast<double>(std::min(threads, plans.size()));
  const double kept = kKeptPoint * static_cast<double>(points),
               looked = kLookedAt * static_cast<double>(plans.size());
  MemoryNeed need{
      Bytes(kProcessBytes + kSearcherBytes * static_cast<double>(threads) + steps + kept + looked), "", ""};
  if (steps >= kept && steps >= looked) {
    need.most = fmt::format("{} on each of {} threads", chunks(rounds), threads);
    need.smaller = std::string(kLarger) + ", or fewer " + argument_name("threads");
  } else if (kept >= looked) {
    need.most = fmt::format("{} configurations that are kept", points);
    need.smaller = "no " + argument_name("all") + ", fewer batches, gpus or strategies";
  } else {
    need.most = fmt::format("{} plans to look at", plans.size());
    need.smaller = "fewer gpus, strategies or values of options";
  }
  return need;
}

}  // namespace shardline
