// calibrate/scatter: rows of a table that ought to be equal [F11].
#include "calibrate/scatter.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace shardline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Product {
  double m, n, k, seconds;
};
FitRows rows(const std::vector<Product>& products) {
  FitRows out;
  out.width = 3;
  for (const Product& p : products) {
    out.numbers.insert(out.numbers.end(), {p.m, p.n, p.k});
    out.seconds.push_back(p.seconds);
  }
  return out;
}

TEST(Scatter, F11RowsOfOneTileAreComparedWithTheMedianOfTheOthers) {
  // 17 begins the next block of rows, 4096 columns are another shape.
  const Neighbours found = in_one_tile(rows({{1, 512, 4096, 7},
                                             {17, 512, 4096, 90},
                                             {2, 512, 4096, 8},
                                             {16, 512, 4096, 20},
                                             {9, 4096, 4096, 50},
                                             {9, 512, 4096, 9}}));
  EXPECT_THAT(found.rows, ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(found.seconds, ElementsAre(9, 9, 8, 8));  // of 8, 9, 20; 7, 9, 20; 7, 8, 9; 7, 8, 20
}

TEST(Scatter, F11FewRowsAndLargeOnesTellNothing) {
  EXPECT_THAT(in_one_tile(rows({{1, 512, 4096, 7}, {2, 512, 4096, 8}, {3, 512, 4096, 9}})).rows, IsEmpty());
  std::vector<Product> large;
  for (double m = 129; m <= 144; ++m) large.push_back({m, 512, 4096, m});
  EXPECT_THAT(in_one_tile(rows(large)).rows, IsEmpty());
  for (Product& p : large) p.m -= 16;
  EXPECT_EQ(in_one_tile(rows(large)).rows.size(), 16u);
}

TEST(Scatter, F11RepeatsAreTheShapesOfBothTables) {
  const Repeats found = repeats_of(rows({{1, 512, 64, 3}, {2, 512, 64, 4}, {3, 512, 64, 5}}),
                                   rows({{3, 512, 64, 6}, {1, 512, 64, 7}, {1, 512, 65, 8}}));
  EXPECT_THAT(found.first, ElementsAre(3, 5));
  EXPECT_THAT(found.second, ElementsAre(7, 6));
}

}  // namespace
}  // namespace shardline
