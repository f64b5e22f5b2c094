// Vectors that are moved in pieces: all elements, and nothing changed where the work ends in between.
#include "sim/base/asking.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace shardline {
namespace {

std::vector<double> counted(std::size_t count) {
  std::vector<double> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST(Asking, GrownVectorsKeepTheirElements) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, piece_of<double>(), 3 * piece_of<double>() + 1}) {
    std::vector<double> v = counted(count);
    grow_asking(v, 2);
    EXPECT_GE(v.capacity(), count + 2);
    EXPECT_EQ(v, counted(count));
    std::vector<double> twice = v;
    append_asking(twice, v);
    ASSERT_EQ(twice.size(), 2 * count);
    EXPECT_TRUE(std::equal(v.begin(), v.end(), twice.begin() + static_cast<std::ptrdiff_t>(count)));
  }
}

TEST(Asking, ElementsWithMemoryOfTheirOwnAreMoved) {
  std::vector<std::string> v(1000, std::string(100, 'a'));
  v.shrink_to_fit();
  const char* const first = v.front().data();
  int asked = 0;
  const CancelQuestion go_on = [&] { return ++asked < 0; };
  const CancelScope scope(&go_on);
  grow_asking(v, 1);
  EXPECT_GE(v.capacity(), 2000U);
  EXPECT_EQ(v, std::vector<std::string>(1000, std::string(100, 'a')));
  EXPECT_EQ(v.front().data(), first);
  EXPECT_EQ(asked, 3);  // of 1,000, every 256
}

TEST(Asking, WhatIsCancelledIsAsItWas) {
  std::vector<double> v = counted(3 * piece_of<double>());
  v.shrink_to_fit();
  int asked = 0;
  const CancelQuestion stop = [&] { return ++asked == 2; };
  const CancelScope scope(&stop);
  EXPECT_THROW(grow_asking(v, 1), Cancelled);
  EXPECT_EQ(asked, 2);  // behind the first of three pieces
  EXPECT_EQ(v, counted(3 * piece_of<double>()));
}

TEST(Asking, TextsAsVectors) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{20}, 2 * piece_of<char>() + 1}) {
    std::string counted;
    for (std::size_t i = 0; i < size; ++i) counted += static_cast<char>('a' + i % 23);
    std::string text = counted;
    text.shrink_to_fit();
    grow_asking(text, 4096);
    EXPECT_GE(text.capacity(), size + 4096);
    EXPECT_EQ(text, counted);
    std::size_t asked = 0;
    const CancelQuestion stop = [&] { return ++asked == 2; };
    const CancelScope scope(&stop);
    const auto grow = [&] { grow_asking(text, text.capacity() - text.size() + 1); };
    if (size < piece_of<char>()) {
      EXPECT_NO_THROW(grow());
    } else {
      EXPECT_THROW(grow(), Cancelled);
    }
    EXPECT_EQ(text, counted);
  }
}

}  // namespace
}  // namespace shardline
