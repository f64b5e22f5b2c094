#include "planner/requests/router.hpp"

namespace shardline {

std::string_view to_string(Router router) {
  switch (router) {
    case Router::round_robin:
      return "round_robin";
    case Router::least_kv:
      return "least_kv";
    case Router::prefix:
      return "prefix";
  }
  return "";
}

ReplicaRouter::ReplicaRouter(Router router, std::size_t replicas)
    : router_(router), laden_(replicas), sent_(replicas) {}

void ReplicaRouter::took(std::size_t replica, double prompt) { laden_[replica] += prompt; }

void ReplicaRouter::answers(std::size_t replica, double prompt, Seconds at) {
  if (router_ != Router::round_robin) leaving_.push({at, replica, prompt});
}

std::size_t ReplicaRouter::route(const TraceRequest& request, Seconds now) {
  if (router_ == Router::round_robin) return routed_++ % laden_.size();
  // Engines are ahead of this request, to the end of the step in which it comes: who is answered there is
  // still in.
  for (; !leaving_.empty() && leaving_.top().at <= now; leaving_.pop())
    laden_[leaving_.top().replica] -= leaving_.top().prompt;
  const std::size_t best = best_of(request);
  BlockHash hash = 0;
  for (const std::uint64_t block : request.blocks) {
    if (router_ != Router::prefix) break;
    sent_[best].insert(hash = chain_hash(hash, block));
  }
  return best;
}

std::size_t ReplicaRouter::best_of(const TraceRequest& request) const {
  std::size_t best = 0, most = 0;
  for (std::size_t i = 0; i < laden_.size(); ++i) {
    std::size_t known = 0;
    if (router_ == Router::prefix) {
      for (BlockHash hash = 0; known < request.blocks.size(); ++known) {
        hash = chain_hash(hash, request.blocks[known]);
        if (!sent_[i].contains(hash)) break;
      }
    }
    if (i > 0 && (known < most || (known == most && laden_[i] >= laden_[best]))) continue;
    best = i;
    most = known;
  }
  return best;
}

}  // namespace shardline
