#include "planner/requests/router.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace shardline {

std::string_view to_string(Router router) {
  switch (router) {
    case Router::round_robin:
      return "round_robin";
    case Router::least_requests:
      return "least_requests";
    case Router::least_kv:
      return "least_kv";
    case Router::prefix:
      return "prefix";
  }
  return "";
}

ReplicaRouter::ReplicaRouter(Router router, std::size_t replicas)
    : router_(router), laden_(replicas), sent_(replicas), up_(replicas, 1), lives_(replicas) {}

bool ReplicaRouter::any_up() const { return std::find(up_.begin(), up_.end(), 1) != up_.end(); }

void ReplicaRouter::down(std::size_t replica) {
  up_[replica] = 0;
  laden_[replica] = 0;
  sent_[replica].clear();
  ++lives_[replica];
}

void ReplicaRouter::took(std::size_t replica, double prompt) { laden_[replica] += weight_of(prompt); }

void ReplicaRouter::answers(std::size_t replica, double prompt, Seconds at) {
  if (router_ != Router::round_robin) leaving_.push({at, replica, weight_of(prompt), lives_[replica]});
}

std::size_t ReplicaRouter::route(const TraceRequest& request, Seconds now) {
  SL_CHECK(any_up(), "a replica is up");
  if (router_ == Router::round_robin) {
    while (up_[routed_ % up_.size()] == 0) ++routed_;
    return routed_++ % up_.size();
  }
  // Engines are ahead of this request, to the end of the step in which it comes: who is answered there is
  // still in.
  for (; !leaving_.empty() && leaving_.top().at <= now; leaving_.pop()) {
    const Leaving& l = leaving_.top();
    if (l.life == lives_[l.replica]) laden_[l.replica] -= l.weight;
  }
  const std::size_t best = best_of(request);
  BlockHash hash = 0;
  for (const std::uint64_t block : request.blocks) {
    if (router_ != Router::prefix) break;
    sent_[best].insert(hash = chain_hash(hash, block));
  }
  return best;
}

std::size_t ReplicaRouter::best_of(const TraceRequest& request) const {
  std::size_t best = laden_.size(), most = 0;
  for (std::size_t i = 0; i < laden_.size(); ++i) {
    if (up_[i] == 0) continue;
    std::size_t known = 0;
    if (router_ == Router::prefix) {
      for (BlockHash hash = 0; known < request.blocks.size(); ++known) {
        hash = chain_hash(hash, request.blocks[known]);
        if (!sent_[i].contains(hash)) break;
      }
    }
    if (best < laden_.size() && (known < most || (known == most && laden_[i] >= laden_[best]))) continue;
    best = i;
    most = known;
  }
  return best;
}

}  // namespace shardline
