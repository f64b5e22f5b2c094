#include "sim/base/shared_list.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace shardline {
namespace {

TEST(SharedList, CopiesAreOneListUntilOneIsEdited) {
  SharedList<std::string> a{"one", "two"};
  SharedList<std::string> b = a;
  EXPECT_EQ(a.data(), b.data());
  b.edit().push_back("three");
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(a.list(), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(b.list(), (std::vector<std::string>{"one", "two", "three"}));
}

TEST(SharedList, EditsInPlaceWhereNobodyElseHasTheList) {
  SharedList<int> a{1, 2, 3};
  const int* before = a.data();
  a.edit()[1] = 5;
  EXPECT_EQ(a.data(), before);
  {
    const SharedList<int> other = a;
    EXPECT_EQ(other.data(), before);
  }
  a.edit()[2] = 6;
  EXPECT_EQ(a.data(), before);
  EXPECT_EQ(a.list(), (std::vector<int>{1, 5, 6}));
}

TEST(SharedList, IsEmptyWhereNothingWasPut) {
  SharedList<int> a;
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(a.begin(), a.end());
  const SharedList<int> b = a;
  a.edit().push_back(1);
  EXPECT_EQ(a.size(), 1u);
  EXPECT_TRUE(b.empty());
}

TEST(SharedList, ThreadsEditTheirOwnCopies) {
  const SharedList<int> all(std::vector<int>(1000, 1));
  std::vector<int> sums(8);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&all, &sums, t] {
        for (int i = 0; i < 100; ++i) {
          SharedList<int> own = all;
          for (int& v : own.edit()) v += t;
          int sum = 0;
          for (const int v : own) sum += v;
          sums[static_cast<std::size_t>(t)] = sum;
        }
      });
    }
  }
  for (int t = 0; t < 8; ++t) EXPECT_EQ(sums[static_cast<std::size_t>(t)], 1000 * (1 + t));
  EXPECT_EQ(all.list(), std::vector<int>(1000, 1));
}

}  // namespace
}  // namespace shardline
