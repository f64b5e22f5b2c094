// Servers behind one queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/engine/event_heap.hpp"
#include "sim/queue/calendar.hpp"

namespace shardline {

/// Equal servers that share a queue, each serving one customer at a time at full speed [S18]: links, workers,
/// doors. Customers are numbers of the caller's. Who waits is served by priority, smaller first, and in order
/// of arrival within one; with one priority that is first come, first served.
class Station {
 public:
  /// resume: a customer of a smaller priority takes the place of the one in service that has the largest, and
  /// of these of the last to come; who goes on later where it was, before those of its priority who came
  /// after it.
  enum class Preemption : std::uint8_t { none, resume };

  /// Its timers are of `calendar`, which outlives it, and have the tag `tag`.
  Station(EventCalendar& calendar, std::uint64_t tag, std::size_t servers,
          Preemption preemption = Preemption::none);
  Station(const Station&) = delete;
  Station& operator=(const Station&) = delete;
  ~Station();

  /// At the calendar's time a customer comes for `work` of service, not negative.
  void enter(std::uint64_t customer, Seconds work, std::int32_t priority = 0);
  /// The event of one of its timers: who leaves. The next who waits begins.
  std::uint64_t leave(const EventCalendar::Event& event);

  std::size_t waiting() const { return waiting_.events().size(); }
  std::size_t busy() const { return servers_.size() - idle_.size(); }
  /// Time that servers have served in all, until the calendar's time.
  Seconds served() const;

 private:
  struct Customer {
    std::uint64_t order;  // of coming
    std::uint64_t number;
    Seconds work;  // left
    std::int32_t priority;

    friend bool before(const Customer& a, const Customer& b) {
      return a.priority < b.priority || (a.priority == b.priority && a.order < b.order);
    }
  };
  struct Server {
    Timer timer;
    Customer customer{};
    Seconds since;
  };
  void begin(std::size_t server, const Customer& customer);
  bool take_place(const Customer& customer);

  EventCalendar& calendar_;
  std::vector<Server> servers_;
  std::vector<std::size_t> idle_;
  EventHeap<Customer> waiting_;
  std::uint64_t entered_ = 0;
  Preemption preemption_;
  Seconds served_;  // in services that ended or were broken off
};

}  // namespace shardline
