// Values as bytes and back.
#include "sim/base/packed.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardline {
namespace {

enum class Colour : unsigned char { red, blue };

template <class... Ts>
std::string packed(const Ts&... values) {
  Packer out;
  out(values...);
  return std::move(out).bytes();
}

TEST(Packed, ValuesComeBackToTheBit) {
  const double nan = std::nan("7"), least = std::numeric_limits<double>::denorm_min();
  const std::vector<std::optional<std::pair<std::string, double>>> list{
      {}, {{"", -0.0}}, {{std::string("a\0b", 3), least}}};
  const std::array<std::vector<int>, 2> rows{std::vector<int>{}, {1, -2, 3}};
  const std::string bytes = packed(true, Colour::blue, nan, Seconds(0.1), list, rows, std::size_t{1} << 40);
  bool yes = false;
  Colour colour = Colour::red;
  double number = 0;
  Seconds time;
  std::vector<std::optional<std::pair<std::string, double>>> list_back;
  std::array<std::vector<int>, 2> rows_back;
  std::size_t size = 0;
  Unpacker in(bytes);
  in(yes, colour, number, time, list_back, rows_back, size);
  EXPECT_TRUE(in.done());
  EXPECT_EQ(packed(yes, colour, number, time, list_back, rows_back, size), bytes);
  EXPECT_EQ(list_back, list);
  EXPECT_EQ(rows_back, rows);
  EXPECT_EQ(size, std::size_t{1} << 40);
}

TEST(Packed, WhatIsCutIsAFault) {
  const std::string bytes = packed(std::vector<double>(5, 1.0));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    std::vector<double> out;
    Unpacker in(std::string_view(bytes).substr(0, size));
    EXPECT_ANY_THROW(in(out)) << size;
  }
}

}  // namespace
}  // namespace shardline
