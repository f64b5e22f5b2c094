#include "planner/studies/study_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/search/memory_need.hpp"
#include "planner/studies/partition_study.hpp"
#include "planner/studies/thresholds.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

namespace {

// Measured as kProcessBytes. A thread with its evaluators: beside those of a search layouts, schedule, and
// memory that its allocator keeps.
constexpr double kThread = kSearcherBytes + 4e6;
// A request that is timed in both variants: the point, what it is asked as, its row; vectors that double.
constexpr double kTimedNode = 260, kTimedTest = 200;
// Tables have lines added where the choice jumps: probes of a table beside its nodes, at most.
constexpr double kProbes = 2;
// A length of a chain: parts, times, rows of three files and of the JSON document.
constexpr double kLength = 12e3;
// A part of a rank in one length: in each of four partitions and their texts.
constexpr double kPart = 400;
// A turn: its times, errors, row, and its part of the document and the picture.
constexpr double kTurn = 6e3;
// A request that was played: four latencies in the order of arrival and of size.
constexpr double kRequest = 400;
// A recorded prompt with its latencies under each rule; the id of a block of its text; a step of which there
// is no other: its times, its place among all, its part of a fit.
constexpr double kPrompt = 200, kTextBlock = 8, kPromptStep = 260;
// A user of a closed loop, with the request that is waited for; a request of an open load that waits; what
// both take more of pairs, and where replicas die: measured where a vector has just doubled. A block of a
// replica's pool, in its queue and its table of prefixes.
constexpr double kUser = 150, kWaiting = 150, kInPairs = 500, kSentAgain = 400, kBlock = 80;

double workers(int threads) { return static_cast<double>(thread_count(threads)); }

}  // namespace

MemoryNeed need_of_thresholds(const ThresholdGrid& g, int threads) {
  double nodes = 0;
  for (const int ranks : g.cp) {
    nodes += static_cast<double>(LookupGrid::covering(ranks, g.fresh_from, g.fresh_to, g.lowest_miss_rate,
                                                      g.fresh_per_octave, g.miss_per_octave)
                                     .nodes());
  }
  const double tests = static_cast<double>(g.test_points) * static_cast<double>(g.cp.size());
  MemoryNeed need{Bytes(kProcessBytes + workers(threads) * kThread + nodes * (1 + kProbes) * kTimedNode +
                        tests * kTimedTest),
                  "", ""};
  if (nodes * (1 + kProbes) * kTimedNode >= tests * kTimedTest) {
    need.most = fmt::format("{:.0f} nodes of tables", nodes);
    need.smaller = "less new_tokens_per_octave or miss_rate_per_octave, fewer cp";
  } else {
    need.most = fmt::format("{:.0f} test points", tests);
    need.smaller = "fewer test_points, fewer cp";
  }
  return need;
}

MemoryNeed need_of_partitions(const PartitionGrid& g, int threads) {
  // With max_loss rows are added down to the granularity: as many as a table may have.
  const long long span = g.contexts.back() - g.contexts.front();
  const long long rows = g.max_loss ? kMostPartitionRows : std::min(kMostPartitionRows, span / g.spacing + 1);
  // A table is judged at the quarters between rows.
  const double lengths = static_cast<double>(g.contexts.size()) + 4 * static_cast<double>(rows);
  double bytes = 0;
  for (const int ranks : g.processes) bytes += lengths * (kLength + kPart * ranks);
  return {Bytes(kProcessBytes + workers(threads) * kThread + bytes),
          fmt::format("{:.0f} lengths of {} chains", lengths, g.processes.size()),
          "fewer contexts or processes, a larger spacing"};
}

MemoryNeed need_of_conversation(const Conversation& talk) {
  return {Bytes(kProcessBytes + kThread + kTurn * static_cast<double>(talk.turns.size())),
          fmt::format("{} turns", talk.turns.size()), "fewer turns"};
}

MemoryNeed need_of_requests(const PlayedRequests& p) {
  const bool open = p.users == 0;
  const double all = static_cast<double>(p.all), users = static_cast<double>(p.users);
  const double each = (open ? kWaiting : 0) + (p.in_pairs ? kInPairs : 0) + (p.sent_again ? kSentAgain : 0);
  const double answered = kRequest * all, texts = kTextBlock * p.texts,
               there = kUser * users + each * (open ? all : std::min(users, all)),
               pools = kBlock * p.blocks * p.replicas;
  MemoryNeed need{Bytes(kProcessBytes + kThread + answered + there + texts + pools), "", ""};
  if (answered >= std::max(there + texts, pools)) {
    need.most = fmt::format("the latencies of {} requests", p.all);
    need.smaller = "fewer " + argument_name("requests");
  } else if (there + texts >= pools) {
    need.most = open ? fmt::format("{} requests, all of which may wait at once", p.all)
                     : fmt::format("{} users of a closed loop", p.users);
    if (texts > there) need.most += open ? ", and their prompts" : " and their prompts";
    need.smaller = "fewer " + argument_name(open ? "requests" : "users");
  } else {
    need.most = fmt::format("{} replicas with {:.0f} blocks of KV cache each", p.replicas, p.blocks);
    need.smaller = "fewer " + argument_name("replicas");
  }
  return need;
}

MemoryNeed need_of_prompts(std::uint64_t prompts, std::uint64_t blocks, std::uint64_t steps, int threads) {
  const double of_prompts = static_cast<double>(prompts) * kPrompt + static_cast<double>(blocks) * kTextBlock,
               of_steps = static_cast<double>(steps) * kPromptStep;
  MemoryNeed need{Bytes(kProcessBytes + workers(threads) * kThread + of_prompts + of_steps), "", ""};
  if (of_prompts >= of_steps) {
    need.most = fmt::format("{} prompts", prompts);
    need.smaller = "fewer " + argument_name("requests");
  } else {
    need.most = fmt::format("{} steps", steps);
    need.smaller = "a larger " + argument_name("chunk") + ", fewer " + argument_name("requests");
  }
  return need;
}

}  // namespace shardline
