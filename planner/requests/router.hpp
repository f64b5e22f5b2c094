// Which replica a request is sent to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "planner/requests/block_pool.hpp"
#include "planner/serving/trace.hpp"

namespace shardline {

/// Which replica a request is sent to. round_robin: each in turn. least_requests: that with the fewest
/// requests that are not answered, as nginx's least_conn; of equal ones the first. least_kv: that with the
/// fewest tokens of requests in it, those that wait included. prefix: that which was sent most of the
/// request's leading blocks before, and of equal ones the least laden.
enum class Router : std::uint8_t { round_robin, least_requests, least_kv, prefix };
std::string_view to_string(Router router);

/// A router in front of replicas that are played ahead of the requests that it deals out. It knows of an
/// answer when that is given, not when the step that gives it is played.
class ReplicaRouter {
 public:
  ReplicaRouter(Router router, std::size_t replicas);

  /// The replica of a request that is sent at `now`, one of those that are up (checked: one is); calls do not
  /// go back in time.
  std::size_t route(const TraceRequest& request, Seconds now);
  /// A replica took a request with so many tokens of prompt.
  void took(std::size_t replica, double prompt);
  /// It answers one at `at`.
  void answers(std::size_t replica, double prompt, Seconds at);
  /// [R13] A replica is gone with all that it had, and gets nothing until it is back, with nothing.
  void down(std::size_t replica);
  void up(std::size_t replica) { up_[replica] = 1; }
  bool is_up(std::size_t replica) const { return up_[replica] != 0; }
  bool any_up() const;

 private:
  struct Leaving {
    Seconds at;
    std::size_t replica;
    double weight;
    std::uint64_t life;  // of the replica, that it was sent in
    bool operator>(const Leaving& other) const { return at > other.at; }
  };
  std::size_t best_of(const TraceRequest& request) const;
  // What a request with so many tokens of prompt adds to a replica's load.
  double weight_of(double prompt) const { return router_ == Router::least_requests ? 1 : prompt; }

  const Router router_;
  std::uint64_t routed_ = 0;
  // Tokens of prompts in each replica (least_requests: requests), when the last request was sent.
  std::vector<double> laden_;
  std::priority_queue<Leaving, std::vector<Leaving>, std::greater<>> leaving_;
  std::vector<std::unordered_set<BlockHash>> sent_;
  std::vector<char> up_;
  std::vector<std::uint64_t> lives_;  // how often each went down
};

}  // namespace shardline
