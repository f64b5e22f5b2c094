// The machine's memory as Linux says it, and questions that need more than they may.
#include "sim/base/memory_limit.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "sim/base/error.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

// A tree of /proc and /sys.
class Machine {
 public:
  explicit Machine(const char* name) : root_(fs::temp_directory_path() / name) { fs::remove_all(root_); }
  ~Machine() { fs::remove_all(root_); }
  Machine& file(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return *this;
  }
  double memory() const { return machine_memory(root_).value; }

 private:
  fs::path root_;
};

TEST(MemoryLimit, ThatOfTheMachineIsTheLeastOfItsGroups) {
  Machine m("shardline-memory-1");
  EXPECT_EQ(m.memory(), 0);
  m.file("proc/meminfo", "MemFree:  1 kB\nMemTotal:       24000000 kB\n");
  EXPECT_EQ(m.memory(), 24'000'000.0 * 1024);
  m.file("proc/self/cgroup", "0::/user/job\n");
  m.file("sys/fs/cgroup/user/job/memory.max", "max\n");
  EXPECT_EQ(m.memory(), 24'000'000.0 * 1024);
  m.file("sys/fs/cgroup/user/memory.max", "4000000000\n");
  EXPECT_EQ(m.memory(), 4e9);
  m.file("sys/fs/cgroup/user/job/memory.max", "3000000000\n");
  EXPECT_EQ(m.memory(), 3e9);
  m.file("sys/fs/cgroup/memory.max", "2000000000\n");
  EXPECT_EQ(m.memory(), 2e9);
}

TEST(MemoryLimit, GroupsOfTheFirstVersionCountToo) {
  Machine m("shardline-memory-2");
  m.file("proc/meminfo", "MemTotal: 1000000 kB\n").file("proc/self/cgroup", "9:cpu,memory:/a\n3:cpuset:/\n");
  m.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(m.memory(), 1'000'000.0 * 1024);
  m.file("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "500000000\n");
  EXPECT_EQ(m.memory(), 5e8);
}

TEST(MemoryLimit, ThisMachineHasSome) { EXPECT_GT(machine_memory().value, 1e8); }

TEST(MemoryLimit, WhatNeedsMoreIsRefusedWithBothNumbers) {
  const MemoryNeed need{Bytes(21.26e9), "1048576 chunks of a prompt", "larger chunks (prefill_chunk)"};
  EXPECT_NO_THROW(require_memory(need));  // nobody limited it
  limit_memory(Bytes(21.26e9));
  EXPECT_NO_THROW(require_memory(need));
  limit_memory(Bytes(19.2e9), 0.8);
  try {
    require_memory(need);
    ADD_FAILURE() << "more than it may";
  } catch (const UserError& e) {
    EXPECT_STREQ(
        e.what(),
        "this needs about 21.26 GB of memory, and may use 19.2 GB (80 % of the machine's): 1048576 chunks "
        "of a prompt\nask for less: larger chunks (prefill_chunk)\nor allow it: --memory \"22 GB\"\n");
  }
  limit_memory(Bytes(std::numeric_limits<double>::infinity()));
}

// A scope is of its thread and of those that share in its work, and ends with it.
TEST(MemoryLimit, AScopeHoldsForSharedWorkAlone) {
  const MemoryNeed need{Bytes(3e9), "a list", "fewer"};
  {
    const MemoryScope scope(Bytes(2e9));
    std::atomic<int> refused = 0;
    parallel_for(0, 8, 2, [&](std::size_t, std::size_t) {
      try {
        require_memory(need);
      } catch (const UserError&) {
        ++refused;
      }
    });
    EXPECT_EQ(refused, 8);
    {
      const MemoryScope inner(Bytes(4e9));
      EXPECT_NO_THROW(require_memory(need));
    }
    EXPECT_THROW(require_memory(need), UserError);
    std::thread([&] { EXPECT_NO_THROW(require_memory(need)); }).join();
  }
  EXPECT_NO_THROW(require_memory(need));
}

}  // namespace
}  // namespace shardline
