// Room for texts of requests: contents, reuse, and what it says of itself against what the library asks for.
#include "planner/requests/text_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "planner/requests/request_slots.hpp"
#include "sim/base/random.hpp"

namespace shardline {
namespace {

// What is asked of the system, counted.
class Counted : public std::pmr::memory_resource {
 public:
  std::size_t bytes = 0;

 private:
  void* do_allocate(std::size_t size, std::size_t align) override {
    bytes += size;
    return std::pmr::new_delete_resource()->allocate(size, align);
  }
  void do_deallocate(void* at, std::size_t size, std::size_t align) override {
    bytes -= size;
    std::pmr::new_delete_resource()->deallocate(at, size, align);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

TEST(TextMemory, TextsStayWhatTheyWereWhileOthersComeAndGo) {
  TextMemory memory;
  RandomStream random(7, "texts");
  std::vector<std::pair<TextMemory::Text, std::vector<std::uint64_t>>> kept;
  for (int step = 0; step < 20'000; ++step) {
    if (kept.size() > 50 || (!kept.empty() && random.below(2) == 0)) {
      const std::size_t at = random.below(kept.size());
      ASSERT_EQ(std::vector(kept[at].first.begin(), kept[at].first.end()), kept[at].second);
      memory.drop(kept[at].first);
      ASSERT_TRUE(kept[at].first.empty());
      memory.drop(kept[at].first);  // of an empty one nothing
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      std::vector<std::uint64_t> ids(random.below(random.below(8) == 0 ? 40'000 : 70));
      std::iota(ids.begin(), ids.end(), random.below(1'000'000));
      const TextMemory::Text text = memory.keep(ids);
      kept.emplace_back(text, std::move(ids));
    }
  }
}

TEST(TextMemory, RoomIsHalvesOfPowersOfTwoThenWholeOnes) {
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> rooms{
      {0, 0},     {1, 1},     {2, 2},      {3, 3},       {4, 4},       {5, 6},          {6, 6},
      {7, 8},     {9, 12},    {13, 16},    {17, 24},     {129, 192},   {193, 256},      {257, 384},
      {385, 512}, {512, 512}, {513, 1024}, {1024, 1024}, {1025, 2048}, {16'385, 32'768}};
  for (const auto& [ids, room] : rooms) EXPECT_EQ(TextMemory::room(ids), room) << ids;
  std::uint64_t before = 0;
  for (std::uint64_t ids = 1; ids < 5000; ++ids) {
    EXPECT_GE(TextMemory::room(ids), std::max(before, ids));
    EXPECT_LT(TextMemory::room(ids), 2 * ids);
    before = TextMemory::room(ids);
  }
}

// The library's pools round sizes up themselves: to no more than what is asked for here already. Pieces that
// it takes are up to twice what is in them.
TEST(TextMemory, LibraryRoundsNoFurther) {
  for (const std::uint64_t ids : {3, 4, 5, 7, 13, 65, 129, 200, 257, 500, 513, 1000, 1025, 3000, 9000}) {
    Counted counted;
    std::pmr::unsynchronized_pool_resource pool({1, std::size_t{1} << 17}, &counted);
    std::pmr::polymorphic_allocator<std::uint64_t> memory(&pool);
    std::vector<std::uint64_t*> all;
    const std::uint64_t room = TextMemory::room(ids);
    const std::size_t empty = counted.bytes;
    for (int i = 0; i < 1000; ++i) all.push_back(memory.allocate(room));
    const double each = static_cast<double>(counted.bytes - empty) / 1000;
    // Chunks of one piece have a bitmap and an entry of the list beside it.
    EXPECT_LT(each, 1.02 * 8 * static_cast<double>(room) + 64) << ids;
    for (std::uint64_t* p : all) memory.deallocate(p, room);
  }
}

TEST(NumberedIds, TableIsOfThoseThatAreThere) {
  NumberedIds ids;
  ids.add(0, 7);  // the oldest, which stays
  for (std::uint64_t number = 1; number < 100'000; ++number) {
    ids.add(number, static_cast<NumberedIds::Id>(number % 5));
    ASSERT_EQ(ids.find(number), number % 5);
    ASSERT_EQ(ids.find(0), 7U);
    if (number > 3) {
      ids.erase(number - 3);
      ASSERT_FALSE(ids.find(number - 3));
    }
    ASSERT_LE(ids.size(), 5U);
  }
  EXPECT_THROW(ids.add(0, 8), std::logic_error);
  EXPECT_THROW(ids.erase(1), std::logic_error);
}

}  // namespace
}  // namespace shardline
