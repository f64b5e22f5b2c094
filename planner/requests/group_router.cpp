#include "planner/requests/group_router.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/requests/block_pool.hpp"
#include "sim/base/error.hpp"

namespace shardline {

std::string_view to_string(GroupRouting routing) {
  switch (routing) {
    case GroupRouting::in_turn:
      return "in turn";
    case GroupRouting::fewest:
      return "to the one with the fewest, those that wait counted four times";
    case GroupRouting::by_room:
      return "by the room that the router draws";
    case GroupRouting::from_queue:
      return "from one queue to groups with a place, to the one with the fewest tokens of prompts";
  }
  return "";
}

std::vector<Dealt> deal_together(std::span<const std::uint64_t> tokens, std::vector<GroupLoad>& groups) {
  std::uint64_t all = tokens.size(), part = 0;
  for (const GroupLoad& g : groups) {
    all += g.requests;
    part = std::max(part, g.requests);
  }
  part = std::max<std::uint64_t>(part, (all + groups.size() - 1) / groups.size());
  std::vector<std::size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return tokens[a] > tokens[b]; });
  std::vector<Dealt> out;
  for (const std::size_t request : order) {
    std::optional<std::size_t> best;
    const auto load = [&](std::size_t g) { return std::pair(groups[g].tokens, groups[g].requests); };
    for (std::size_t g = 0; g < groups.size(); ++g)
      if (groups[g].requests < part && (!best || load(g) < load(*best))) best = g;
    SL_CHECK(best.has_value(), "parts of all groups hold all requests");
    ++groups[*best].requests;
    groups[*best].tokens += tokens[request];
    out.push_back({request, *best});
  }
  return out;
}

GroupRouter::GroupRouter(GroupRouting routing, std::size_t groups) : routing_(routing), groups_(groups) {
  SL_CHECK(groups > 0, "an engine has a group");
  if (routing == GroupRouting::fewest) known_.assign(groups, std::vector<Counts>(groups));
  counts_.resize(groups);
}

// Drawn at random by the router; here the same for whoever asks.
std::uint64_t GroupRouter::room_of(std::uint64_t request) {
  constexpr std::uint64_t kRooms = 0xd6e8feb86659fd93ULL;
  return chain_hash(kRooms, request);
}

// Nothing has changed since what was said last.
void GroupRouter::publish_up_to(Seconds time) {
  const double times = std::floor(time / kPublished);
  if (times <= published_) return;
  published_ = times;
  for (std::vector<Counts>& server : known_) server = counts_;
}

void GroupRouter::hold(Seconds from, Seconds to, std::span<const Counts> counts) {
  SL_CHECK(from >= until_ && to >= from && counts.size() == groups_, "time goes on, of all groups");
  if (routing_ == GroupRouting::fewest) publish_up_to(from);
  until_ = to;
  counts_.assign(counts.begin(), counts.end());
}

std::size_t GroupRouter::route(Seconds at, std::uint64_t request) {
  const std::uint64_t number = routed_++;
  if (routing_ == GroupRouting::in_turn || groups_ == 1) return number % groups_;
  if (routing_ == GroupRouting::by_room) return room_of(request) % groups_;
  SL_CHECK(routing_ == GroupRouting::fewest, "whose requests wait in one queue are not routed as they come");
  publish_up_to(at);
  const std::size_t server = number % groups_;
  std::vector<Counts>& known = known_[server];
  const auto score = [&](std::size_t group) { return 4 * known[group].waiting + known[group].running; };
  std::size_t best = server;  // each server begins with another group
  for (std::size_t i = 1; i < groups_; ++i) {
    const std::size_t group = (server + i) % groups_;
    if (score(group) < score(best)) best = group;
  }
  known[best].waiting += groups_;
  return best;
}

}  // namespace shardline
