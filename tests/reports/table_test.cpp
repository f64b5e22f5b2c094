#include "reports/table.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace shardline {
namespace {

TEST(Table, AlignsNumbersRightAndTextLeft) {
  Table t({"plan", "TTL", "users"});
  t.add({"helix:kvp=8", "6.82 ms", "32"});
  t.add({"tp", "12.4 ms", "8"});
  EXPECT_EQ(t.text(),
            "  plan             TTL  users\n"
            "  helix:kvp=8  6.82 ms     32\n"
            "  tp           12.4 ms      8\n");
}

TEST(Table, OneTextCellMakesAColumnText) {
  Table t({"rank", "n"});
  t.add({"1", "10"});
  t.add({"none", "9"});
  EXPECT_EQ(t.text(""),
            "rank   n\n"
            "1     10\n"
            "none   9\n");
}

TEST(Table, SignsAreNumbersAndEmptyCellsAreNeither) {
  Table t({"d"});
  t.add({"+10 %"});
  t.add({""});
  t.add({"-5 %"});
  EXPECT_EQ(t.text(""), "    d\n+10 %\n\n -5 %\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table t({"what", "n"});
  t.add({"µs → x", "1"});
  t.add({"abcdef", "2"});
  EXPECT_EQ(t.text(""),
            "what    n\n"
            "µs → x  1\n"
            "abcdef  2\n");
}

TEST(Table, ShortRowsAndNoTrailingSpaces) {
  Table t({"plan", "summary"});
  t.add({"x"});
  t.add({"y", "long summary"});
  EXPECT_EQ(t.text(""), "plan  summary\nx\ny     long summary\n");
}

// What a function writes to standard error, which is a pipe meanwhile.
template <class F>
std::string error_output(F f) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const int saved = dup(STDERR_FILENO);
  std::fflush(stderr);
  dup2(ends[1], STDERR_FILENO);
  f();
  std::fflush(stderr);
  dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::close(ends[1]);
  std::string out;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  return out;
}

TEST(Progress, NotATerminalWhenAPipe) {
  bool terminal = true;
  error_output([&] { terminal = Progress::terminal(); });
  EXPECT_FALSE(terminal);
}

TEST(Progress, SilentWhenDisabled) {
  const std::string out = error_output([] {
    Progress p("search", false);
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    p.show(5, 10);
  });
  EXPECT_EQ(out, "");
}

TEST(Progress, ShowsBarRateAndTimeLeftAndClearsTheLine) {
  const std::string out = error_output([] {
    Progress p("search", true);
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    p.show(2, 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    p.show(5, 10);
  });
  // A pace of .1 s is none to go by.
  EXPECT_NE(out.find("\r\033[Ksearch [####....................] 2/10 plans, "), std::string::npos) << out;
  EXPECT_NE(out.find(" plans/s\r\033[Ksearch [############............] 5/10 plans, "), std::string::npos)
      << out;
  EXPECT_NE(out.find(" plans/s, 2 s left"), std::string::npos) << out;  // 3 in the second behind the first 2
  EXPECT_TRUE(out.ends_with("\r\033[K"));
}

// The first plans of a search may take seconds, in which nothing else is told.
TEST(Progress, FirstStepsThatTakeLongAreTold) {
  const std::string out = error_output([] {
    Progress p("search", true);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    p.show(2, 10);
  });
  EXPECT_TRUE(out.starts_with("\r\033[Ksearch: at the first plans for 1 s\r\033[Ksearch [####")) << out;
  EXPECT_TRUE(out.ends_with("\r\033[K"));
}

TEST(Progress, TimeLeftIsToldOfAHundredthOfTheWorkAndASecond) {
  EXPECT_FALSE(Progress::tells_time_left(0.99, 999, 1000));
  EXPECT_TRUE(Progress::tells_time_left(1, 10, 1000));
  EXPECT_FALSE(Progress::tells_time_left(1, 9, 1000));
  EXPECT_FALSE(Progress::tells_time_left(9.9, 9, 1000));
  EXPECT_TRUE(Progress::tells_time_left(10, 1, 1'000'000));
}

TEST(Progress, AtMostTenUpdatesASecond) {
  const auto start = std::chrono::steady_clock::now();
  const std::string out = error_output([] {
    Progress p("s", true);
    for (std::uint64_t i = 1; i <= 250; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      p.show(i, 1000);
    }
  });
  const auto tenths = (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(100);
  std::size_t shown = 0;
  for (std::size_t at = out.find("plans,"); at != std::string::npos; at = out.find("plans,", at + 1)) ++shown;
  EXPECT_GE(shown, 1U);
  EXPECT_LE(shown, static_cast<std::size_t>(tenths));
}

}  // namespace
}  // namespace shardline
