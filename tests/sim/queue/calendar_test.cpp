// The event calendar [S13] against a plain list.
#include "sim/queue/calendar.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "sim/base/cancel.hpp"
#include "sim/base/random.hpp"
#include "tests/sim/engine/allocations.hpp"

namespace shardline {
namespace {

/// What is set: every event in a list, the first found by looking at all.
struct PlainList {
  struct Row {
    double time;
    std::uint64_t order;
    std::uint32_t timer;
  };
  std::vector<Row> rows;
  std::uint64_t order = 0;

  void stop(std::uint32_t timer) {
    std::erase_if(rows, [&](const Row& r) { return r.timer == timer; });
  }
  void set(std::uint32_t timer, double time) {
    stop(timer);
    rows.push_back({time, order++, timer});
  }
  std::optional<Row> first() const {
    if (rows.empty()) return std::nullopt;
    return *std::min_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return std::tie(a.time, a.order) < std::tie(b.time, b.order);
    });
  }
};

/// Random operations on both; times are few, so that many are equal.
void compare_with_list(std::uint64_t seed, std::size_t most) {
  SCOPED_TRACE(seed);
  RandomStream random(seed, "operations");
  EventCalendar calendar;
  PlainList list;
  std::vector<Timer> timers;
  for (int step = 0; step < 4000; ++step) {
    const std::uint64_t what = random.below(10);
    if (timers.empty() || (what == 0 && timers.size() < most)) {
      timers.push_back(calendar.add(step));
      ASSERT_FALSE(calendar.is_set(timers.back()));
      continue;
    }
    const std::size_t at = random.below(timers.size());
    const Timer timer = timers[at];
    if (what <= 5) {
      const double time = calendar.now().value + static_cast<double>(random.below(8)) / 4;
      calendar.set(timer, Seconds(time));
      list.set(timer, time);
      ASSERT_EQ(calendar.time(timer), Seconds(time));
    } else if (what == 6) {
      calendar.stop(timer);
      list.stop(timer);
      ASSERT_FALSE(calendar.is_set(timer));
    } else if (what == 7 && random.below(4) == 0) {
      calendar.remove(timer);
      list.stop(timer);
      timers.erase(timers.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (const auto first = list.first()) {
      ASSERT_EQ(calendar.next_time(), Seconds(first->time));
      const EventCalendar::Event event = calendar.pop();
      ASSERT_EQ(event.time, Seconds(first->time));
      ASSERT_EQ(event.timer, first->timer);
      ASSERT_FALSE(calendar.is_set(event.timer));
      list.stop(event.timer);
    }
    ASSERT_EQ(calendar.size(), list.rows.size());
    const auto first = list.first();
    ASSERT_EQ(calendar.next_time(), Seconds(first ? first->time : std::numeric_limits<double>::infinity()));
  }
}

TEST(Calendar, S13EqualsAPlainList) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) compare_with_list(seed, 1 + seed * 5);
}

TEST(Calendar, S13TiesComeInTheOrderOfSetting) {
  EventCalendar calendar;
  std::vector<Timer> timers;
  for (int i = 0; i < 100; ++i) timers.push_back(calendar.add());
  for (int i = 0; i < 100; ++i) calendar.set(timers[static_cast<std::size_t>(i * 37 % 100)], Seconds(1));
  // Set again to the same time, a timer comes last.
  calendar.set(timers[0], Seconds(1));
  for (int i = 1; i < 100; ++i)
    EXPECT_EQ(calendar.pop().timer, timers[static_cast<std::size_t>(i * 37 % 100)]);
  EXPECT_EQ(calendar.pop().timer, timers[0]);
  EXPECT_TRUE(calendar.empty());
}

TEST(Calendar, S13TheTagIsThatOfTheTimerAndNumbersAreUsedAgain) {
  EventCalendar calendar;
  const Timer a = calendar.add(7);
  calendar.set(a, Seconds(1));
  EXPECT_EQ(calendar.pop().tag, 7U);
  calendar.remove(a);
  const Timer b = calendar.add(8);
  EXPECT_EQ(a, b);
  EXPECT_FALSE(calendar.is_set(b));
  calendar.set(b, Seconds(1));
  EXPECT_EQ(calendar.pop().tag, 8U);
}

// A timer that is set again and again leaves nothing behind: no memory is taken, and none is due but itself.
TEST(Calendar, S13SettingAgainLeavesNothingBehind) {
  EventCalendar calendar;
  std::vector<Timer> timers;
  for (int i = 0; i < 20; ++i) timers.push_back(calendar.add());
  RandomStream random(1, "again");
  const long before = allocations();
  for (int i = 0; i < 100'000; ++i) {
    const Timer timer = timers[random.below(timers.size())];
    calendar.set(timer, Seconds(random.unit()));
    if (i % 3 == 0) calendar.stop(timers[random.below(timers.size())]);
  }
  EXPECT_EQ(allocations(), before);
  std::size_t due = 0;
  for (const Timer timer : timers) due += calendar.is_set(timer) ? 1 : 0;
  EXPECT_EQ(calendar.size(), due);
  for (; !calendar.empty(); --due) calendar.pop();
  EXPECT_EQ(due, 0U);
}

// A million users are a tree of 32 MiB, whose pages alone took a tenth of a second of a slow machine.
TEST(Calendar, S13AsksWhileItGrowsAndIsAsItWasWhereItIsStopped) {
  constexpr std::size_t kTimers = std::size_t{1} << 18;
  EventCalendar calendar;
  for (std::size_t i = 0; i < kTimers; ++i) calendar.set(calendar.add(i), Seconds(double(kTimers - i)));
  std::size_t asked = 0, most = 1000;
  const CancelQuestion question = [&] { return ++asked > most; };
  const CancelScope scope(&question);
  EXPECT_THROW(calendar.add(), Cancelled);
  EXPECT_EQ(calendar.size(), kTimers);
  EXPECT_EQ(calendar.next_time(), Seconds(1));
  most = std::numeric_limits<std::size_t>::max();
  asked = 0;
  EXPECT_EQ(calendar.add(), Timer(kTimers));
  EXPECT_GT(asked, kTimers / 256);  // each of its leaves that moves, and each pair above
  for (std::size_t i = kTimers; i-- > 0;) ASSERT_EQ(calendar.pop().tag, i);
}

TEST(Calendar, S13MinusZeroIsZero) {
  EventCalendar calendar;
  const Timer a = calendar.add(), b = calendar.add();
  calendar.set(a, Seconds(1));
  calendar.set(b, Seconds(-0.0));
  EXPECT_EQ(calendar.pop().timer, b);
}

TEST(Calendar, S13RefusesWhatCannotBe) {
  EventCalendar calendar;
  EXPECT_THROW(calendar.pop(), std::logic_error);
  const Timer a = calendar.add();
  EXPECT_THROW(calendar.set(a, Seconds(-1)), std::logic_error);
  EXPECT_THROW(calendar.set(a, Seconds(std::numeric_limits<double>::infinity())), std::logic_error);
  EXPECT_THROW(calendar.set(a, Seconds(std::numeric_limits<double>::quiet_NaN())), std::logic_error);
  EXPECT_THROW(calendar.set(Timer(5), Seconds(1)), std::logic_error);
  calendar.set(a, Seconds(2));
  calendar.pop();
  EXPECT_THROW(calendar.pop(), std::logic_error);
  EXPECT_THROW(calendar.set(a, Seconds(1)), std::logic_error);
  calendar.remove(a);
  EXPECT_THROW(calendar.set(a, Seconds(3)), std::logic_error);
  EXPECT_THROW(calendar.remove(a), std::logic_error);
}

}  // namespace
}  // namespace shardline
