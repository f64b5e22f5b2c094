// Messages are worded for the command line, unless the library was asked: of this thread and those it works
// by.
#include "sim/base/argument_names.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "sim/base/parallel.hpp"

namespace shardline {
namespace {

TEST(ArgumentNames, AreOptionsOfTheCommandLine) {
  EXPECT_EQ(argument_name("max-local-prefill"), "--max-local-prefill");
  EXPECT_EQ(argument_name("as"), "--as");
  EXPECT_EQ(argument_given("costs", "parameters"), "--costs parameters");
}

TEST(ArgumentNames, AreThoseOfTheLibraryWhereItIsAsked) {
  {
    const LibraryArguments names;
    EXPECT_EQ(argument_name("max-local-prefill"), "max_local_prefill");
    EXPECT_EQ(argument_name("as"), "read_as");
    EXPECT_EQ(argument_given("costs", "parameters"), "costs=\"parameters\"");
    const LibraryArguments inner(false);
    EXPECT_EQ(argument_name("gpus"), "--gpus");
  }
  EXPECT_EQ(argument_name("gpus"), "--gpus");
}

TEST(ArgumentNames, GoWithTheWorkToOtherThreads) {
  for (const bool library : {true, false}) {
    const LibraryArguments names(library);
    std::mutex mutex;
    std::set<std::string> seen;
    parallel_for(0, 64, 4, [&](std::size_t, std::size_t) {
      const std::lock_guard lock(mutex);
      seen.insert(argument_name("gpus"));
    });
    EXPECT_EQ(seen, std::set<std::string>{library ? "gpus" : "--gpus"});
  }
}

}  // namespace
}  // namespace shardline
