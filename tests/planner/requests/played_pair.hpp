// Cases of pairs of pools, of whichever engine, as the player has them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/requests/pair.hpp"
#include "sim/base/random.hpp"
#include "tests/planner/requests/random_play.hpp"

namespace shardline {

// Requests as they come.
class ListedLoad {
 public:
  ListedLoad(const std::vector<TraceRequest>& requests, Seconds path)
      : requests_(requests), arrivals_([this]() -> std::optional<Seconds> {
          if (read_ == requests_.size()) return std::nullopt;
          return requests_[read_++].arrival;
        }) {
    load.arrivals = &arrivals_;
    load.request = [this](TraceRequest& r) {
      return sent_ < requests_.size() && (r = requests_[sent_++], true);
    };
    load.path = path;
  }
  ListedLoad(const ListedLoad&) = delete;  // the load points to it
  ListedLoad& operator=(const ListedLoad&) = delete;
  ClusterLoad load;

 private:
  const std::vector<TraceRequest>& requests_;
  std::size_t read_ = 0, sent_ = 0;
  TraceArrivals arrivals_;
};

struct PlayedPair {
  PairRun run;
  std::map<double, AnsweredRequest> answers;  // by when they came
  std::uint64_t answered = 0;
  std::vector<std::unique_ptr<Scheduler>> schedulers;
};

// A case has the knobs of both pools' schedulers, how many there are of each, and what comes;
// `engine_of(knobs, role)` is such a scheduler.
template <class Case, class EngineOf>
PlayedPair play_case(const Case& c, EngineOf engine_of, Router to_prefill, Router to_decode,
                     std::int64_t max_local_prefill) {
  const BentStepTimes times;
  PlayedPool prefill, decode;
  const auto engine = [&](ReplicaPool pool) -> std::unique_ptr<Scheduler> {
    const bool prefills = pool == ReplicaPool::prefill;
    return engine_of(prefills ? c.prefill : c.decode, prefills ? PairRole::prefills : PairRole::decodes);
  };
  if constexpr (requires { c.prefill_groups; }) {
    prefill.groups = c.prefill_groups;
    decode.groups = c.decode_groups;
  }
  for (std::size_t i = 0; i < c.senders * prefill.groups.count; ++i)
    prefill.schedulers.push_back(engine(ReplicaPool::prefill));
  for (std::size_t i = 0; i < c.receivers * decode.groups.count; ++i)
    decode.schedulers.push_back(engine(ReplicaPool::decode));
  prefill.times = decode.times = &times;
  prefill.router = to_prefill;
  decode.router = to_decode;
  decode.max_local_prefill = max_local_prefill;
  ListedLoad listed(c.requests, c.path);
  PlayedPair out;
  out.run = play_pair(prefill, decode, c.links, listed.load, c.requests.size(),
                      [&](const AnsweredRequest& a) {
                        ++out.answered;
                        out.answers[a.came.value] = a;
                      },
                      {}, {c.failures, engine});
  for (PlayedPool* p : {&prefill, &decode})
    for (auto& s : p->schedulers) out.schedulers.push_back(std::move(s));
  return out;
}

// One to three replicas of each pool, links and a path. Off the grid of the steps: at a tie two ways of
// adding times up, which round differently, may both be right.
template <class Case>
void draw_links(RandomStream& random, Case& c, std::uint64_t most_per_token, bool receiver_submits) {
  c.senders = 1 + random.below(3);
  c.receivers = 1 + random.below(3);
  c.links = {Seconds(0.001 * static_cast<double>(random.below(4))),
             Seconds(1e-6 * static_cast<double>(1 + random.below(most_per_token)) * (1 + 3.14159e-8)),
             1 + static_cast<double>(random.below(3)) / 2, 1 + static_cast<double>(random.below(3)) / 2};
  c.path = Seconds(0.002 * (1 + 2.71828e-7));
  if (random.below(3) == 0) return;
  const auto submit = static_cast<double>(random.below(3));
  const auto token = static_cast<double>(random.below(200));
  c.links.submit = Seconds(0.0007 * submit * (1 + 1.61803e-8));
  c.links.submit_token = Seconds(1e-6 * token * (1 + 1.41421e-8));
  c.links.receiver_submits = receiver_submits;
}

}  // namespace shardline
