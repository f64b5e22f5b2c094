#include "planner/requests/awaited_ends.hpp"

#include <algorithm>

namespace shardline {

void AwaitedEnds::remove(Id id, std::optional<std::uint64_t> end) {
  if (const auto found = std::find(found_.begin(), found_.end(), id); found != found_.end()) {
    found_.erase(found);
    return;
  }
  if (!end) return;
  const auto all = waiting_.find(*end);
  if (all == waiting_.end()) return;
  std::erase(all->second, id);
  if (all->second.empty()) waiting_.erase(all);
}

void AwaitedEnds::store(std::span<const std::uint64_t> ids) {
  if (waiting_.empty()) return;
  for (const std::uint64_t id : ids) {
    const auto all = waiting_.find(id);
    if (all == waiting_.end()) continue;
    found_.insert(found_.end(), all->second.begin(), all->second.end());
    waiting_.erase(all);
  }
}

}  // namespace shardline
