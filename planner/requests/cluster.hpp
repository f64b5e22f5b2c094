// Replicas of an engine under a router, and who sends requests to them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "planner/requests/router.hpp"
#include "planner/requests/served_timeline.hpp"
#include "sim/queue/arrivals.hpp"

namespace shardline {

/// How the requests of a cluster come, and what they are.
struct ClusterLoad {
  Arrivals* arrivals = nullptr;                // when; of a closed loop, users are dealt to replicas
  std::function<bool(TraceRequest&)> request;  // the next one, its arrival not said; false: no more
  bool closed = false;                         // whether who comes waits for the answer of before
  Seconds path;  // from a user to the engine, and back: before the engine has it
};

/// Whose replica one is: of the one pool that there is, or of one of a pair.
enum class ReplicaPool : std::uint8_t { only, prefill, decode };

/// [R13] A replica that dies and is back with nothing, in seconds from the beginning; `up` infinite: never.
struct ReplicaFailure {
  std::size_t replica = 0;
  Seconds down, up;
  ReplicaPool pool = ReplicaPool::only;
};

/// Those of a play, and a new scheduler for each attention group of a replica that is back.
struct ClusterFailures {
  std::vector<ReplicaFailure> all;  // of one replica in the order of time, none before the other's end
  std::function<std::unique_ptr<Scheduler>()> scheduler;
};

/// What came of it.
struct ClusterRun {
  std::vector<ServedRequests> replicas;
  /// Requests that wait for their first step in all replicas when one comes, means over the 20 parts of
  /// `sent` requests in their order; and when each part began.
  static constexpr std::size_t kParts = 20;
  std::vector<double> waiting;
  std::vector<Seconds> begins;
  std::uint64_t sent = 0;
  Seconds last_sent;
  std::uint64_t retried = 0;   // times that a request lost its replica and was sent again
  std::uint64_t unserved = 0;  // requests that wait at the end for a replica that never comes back
  Seconds down;                // of all replicas together, up to the end of the last step
};

/// Of requests that were sent at a time and found so many waiting, in their order: the means over the parts,
/// and when each part began.
void add_waiting(const std::vector<std::pair<Seconds, double>>& waits, std::vector<double>& waiting,
                 std::vector<Seconds>& begins);

/// [R7] Plays `requests` of them at most, to the end of the last. `replica` is which one answers. With a
/// router that asks for the state of replicas each is played to the end of the step in which a request comes.
/// `step` is called now and then and may throw to stop. What happens is added to `timeline`, if there is one.
/// Schedulers are those of the groups of the first replica, of the second and so on; times are of replicas.
/// [R13] Who loses a replica begins anew on another, at once, or waits until one is back; latencies are from
/// the first sending to tokens of the replica that answers.
ClusterRun play_cluster(const std::vector<std::unique_ptr<Scheduler>>& schedulers,
                        const std::vector<const StepTimes*>& times, Router router, const ClusterLoad& load,
                        std::uint64_t requests, const PlayedEngine::Answered& answered,
                        const std::function<void(std::uint64_t done)>& step,
                        ServedTimeline* timeline = nullptr, ReplicaGroups groups = {},
                        const ClusterFailures& failures = {});

}  // namespace shardline
