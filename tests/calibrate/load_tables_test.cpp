// Paths that name no table, or nothing that can be looked at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "calibrate/calibrate.hpp"
#include "sim/base/error.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;

// What the library of the language throws of them is none of ours, and ended as an internal error.
TEST(LoadTables, PathsThatCannotBeFollowedAreRefusedWithTheReason) {
  const TemporaryFolder own;
  const std::string folder = own.path().string();
  std::filesystem::create_symlink("loop", folder + "/loop");
  std::string long_path;
  for (int i = 0; i < 12'000; ++i) long_path += "long/";
  for (const auto& [path, reason] :
       {std::pair(folder + "/loop", "Too many levels of symbolic links"),
        std::pair(folder + "/loop/x.csv", "Too many levels of symbolic links"),
        std::pair(std::string(300, 'x'), "File name too long"), std::pair(long_path, "File name too long"),
        std::pair(folder + "/none.csv", "no such file"), std::pair(folder + "/none/x.csv", "no such file")}) {
    try {
      load_tables({path});
      FAIL() << path;
    } catch (const UserError& e) {
      EXPECT_THAT(std::string(e.what()),
                  AllOf(HasSubstr("cannot read "), HasSubstr(reason), SizeIs(Lt(2000u))));
    }
  }
  EXPECT_TRUE(is_folder(folder));
  EXPECT_FALSE(is_folder(folder + "/none"));
}

}  // namespace
}  // namespace shardline
