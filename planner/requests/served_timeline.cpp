#include "planner/requests/served_timeline.hpp"

#include <algorithm>
#include <tuple>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

auto order_of(const ServedTimeline::Step& s) { return std::tuple(s.step.from, s.replica, s.step.to); }
auto order_of(const ServedTimeline::Request& r) {
  return std::tuple(r.request.came, r.replica, r.request.number);
}

template <class Item>
bool earlier(const Item& a, const Item& b) {
  return order_of(a) < order_of(b);
}

template <class Item>
void keep_first(std::vector<Item>& items, std::size_t most) {
  if (items.size() <= most) return;
  std::nth_element(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(most), items.end(),
                   earlier<Item>);
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(most), items.end());
}

// Twice as many may lie there in between: each trim then pays for as many additions.
template <class Item>
void add_to(std::vector<Item>& items, std::size_t most, Item item) {
  items.push_back(std::move(item));
  if (items.size() >= 2 * most) keep_first(items, most);
}

}  // namespace

ServedTimeline::ServedTimeline(std::size_t most) : most_(most) {
  SL_CHECK(most > 0, "a timeline has room for something");
}

void ServedTimeline::add(std::size_t replica, const PlayedStep& step) {
  ++added_steps_;
  add_to(steps_, most_, Step{replica, step});
}

void ServedTimeline::add(std::size_t replica, const AnsweredRequest& request) {
  ++added_requests_;
  add_to(requests_, most_, Request{replica, request});
}

void ServedTimeline::finish() {
  keep_first(steps_, most_);
  keep_first(requests_, most_);
  std::sort(steps_.begin(), steps_.end(), earlier<Step>);
  std::sort(requests_.begin(), requests_.end(), earlier<Request>);
}

}  // namespace shardline
