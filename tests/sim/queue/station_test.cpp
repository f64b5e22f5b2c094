// Who is served when [S18].
#include "sim/queue/station.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace shardline {
namespace {

using Left = std::vector<std::pair<double, std::uint64_t>>;

/// Customers 0, 1, ... by (time, work, priority); when each leaves.
struct Coming {
  double time, work;
  std::int32_t priority = 0;
};
Left left(const std::vector<Coming>& coming, std::size_t servers, Station::Preemption preemption) {
  EventCalendar calendar;
  Station station(calendar, 1, servers, preemption);
  std::vector<Timer> doors;
  for (const Coming& c : coming) {
    doors.push_back(calendar.add(0));
    calendar.set(doors.back(), Seconds(c.time));
  }
  Left out;
  std::size_t next = 0;
  while (!calendar.empty()) {
    const EventCalendar::Event event = calendar.pop();
    if (event.tag == 0) {
      station.enter(next, Seconds(coming[next].work), coming[next].priority);
      ++next;
    } else {
      out.emplace_back(event.time.value, station.leave(event));
    }
  }
  EXPECT_EQ(station.busy(), 0U);
  EXPECT_EQ(station.waiting(), 0U);
  return out;
}

TEST(Station, S18FirstComeFirstServed) {
  EXPECT_EQ(left({{0, 5}, {1, 1}, {2, 1}}, 1, Station::Preemption::none), (Left{{5, 0}, {6, 1}, {7, 2}}));
  EXPECT_EQ(left({{0, 5}, {1, 1}, {1.5, 1}}, 2, Station::Preemption::none), (Left{{2, 1}, {3, 2}, {5, 0}}));
}

TEST(Station, S18PriorityOvertakesInTheQueueOnly) {
  EXPECT_EQ(left({{0, 5, 9}, {1, 1, 2}, {2, 1, 1}, {3, 1, 1}}, 1, Station::Preemption::none),
            (Left{{5, 0}, {6, 2}, {7, 3}, {8, 1}}));
}

TEST(Station, S18PreemptedWorkIsResumed) {
  // 0 is broken off at 1 by 1, which at 2 is broken off by 2; each goes on where it was.
  EXPECT_EQ(left({{0, 3, 2}, {1, 2, 1}, {2, 4, 0}}, 1, Station::Preemption::resume),
            (Left{{6, 2}, {7, 1}, {9, 0}}));
  // Of two in service the one of larger priority; of equals the last to come; equals do not preempt.
  EXPECT_EQ(left({{0, 9, 1}, {0, 9, 2}, {1, 2, 0}, {1, 2, 1}}, 2, Station::Preemption::resume),
            (Left{{3, 2}, {5, 3}, {9, 0}, {13, 1}}));
  EXPECT_EQ(left({{0, 9, 1}, {1, 9, 1}, {2, 2, 0}}, 2, Station::Preemption::resume),
            (Left{{4, 2}, {9, 0}, {12, 1}}));
}

// Who would leave at the time of another's coming leaves, and is not broken off with nothing left.
TEST(Station, S18WhoIsDoneIsNotPreempted) {
  EventCalendar calendar;
  Station station(calendar, 1, 1, Station::Preemption::resume);
  const Timer door = calendar.add(0);
  calendar.set(door, Seconds(2));
  station.enter(0, Seconds(2), 1);
  EXPECT_EQ(calendar.pop().tag, 0U);  // set first
  station.enter(1, Seconds(3), 0);
  EventCalendar::Event event = calendar.pop();
  EXPECT_EQ(event.time, Seconds(2));
  EXPECT_EQ(station.leave(event), 0U);
  event = calendar.pop();
  EXPECT_EQ(event.time, Seconds(5));
  EXPECT_EQ(station.leave(event), 1U);
  EXPECT_EQ(station.served(), Seconds(5));
}

TEST(Station, S18RefusesWhatCannotBe) {
  EventCalendar calendar;
  EXPECT_THROW(Station(calendar, 1, 0), std::logic_error);
  Station station(calendar, 1, 1);
  EXPECT_THROW(station.enter(0, Seconds(-1)), std::logic_error);
  EXPECT_THROW(station.enter(0, Seconds(std::numeric_limits<double>::infinity())), std::logic_error);
  EXPECT_THROW(station.leave({Seconds(0), calendar.add(), 0}), std::logic_error);
}

}  // namespace
}  // namespace shardline
