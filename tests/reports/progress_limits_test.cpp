#include <gtest/gtest.h>

#include <thread>

#include "reports/table.hpp"

namespace shardline {
namespace {

std::string shown(std::uint64_t done, std::uint64_t total) {
  ::testing::internal::CaptureStderr();
  try {
    Progress p("s", true);
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    p.show(done, total);
  } catch (const std::exception& e) {
    ::testing::internal::GetCapturedStderr();
    return e.what();
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(ProgressLimits, NothingDoneShowsNothing) { EXPECT_EQ(shown(0, 10), ""); }

TEST(ProgressLimits, MoreThanAllIsAll) {
  EXPECT_NE(shown(11, 10).find("10/10 plans"), std::string::npos) << shown(11, 10);
}

}  // namespace
}  // namespace shardline
