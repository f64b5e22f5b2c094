// A heap of events in the order of their time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shardline {

/// At `time` something happens to `task`, unless a later event took its place: `ticket` tells.
struct HeapEvent {
  double time;
  std::uint32_t task;
  std::uint32_t ticket;

  friend bool before(const HeapEvent& a, const HeapEvent& b) {
    return a.time < b.time || (a.time == b.time && a.task < b.task);
  }
};

/// A four-way heap: half the depth of a binary one, and the children of a node lie in one cache line. The
/// first event is the one `before` all others.
template <class Event>
class EventHeap {
 public:
  bool empty() const { return events_.empty(); }
  const Event& top() const { return events_.front(); }
  /// All of them; only the first has its place.
  std::span<const Event> events() const { return events_; }
  void clear() { events_.clear(); }

  void push(Event event) {
    std::size_t hole = events_.size();
    events_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!before(event, events_[parent])) break;
      events_[hole] = events_[parent];
      hole = parent;
    }
    events_[hole] = event;
  }

  void pop() {
    const Event last = events_.back();
    events_.pop_back();
    if (events_.empty()) return;
    const std::size_t size = events_.size();
    std::size_t hole = 0;
    for (std::size_t child = 1; child < size; child = 4 * hole + 1) {
      const std::size_t end = std::min(child + 4, size);
      std::size_t least = child;
      for (std::size_t i = child + 1; i < end; ++i) {
        if (before(events_[i], events_[least])) least = i;
      }
      if (!before(events_[least], last)) break;
      events_[hole] = events_[least];
      hole = least;
    }
    events_[hole] = last;
  }

 private:
  std::vector<Event> events_;
};

}  // namespace shardline
