#include "sim/base/line_reader.hpp"

#include <gtest/gtest.h>

#include <istream>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include "sim/base/cancel.hpp"

namespace shardline {
namespace {

// A device: one byte again and again.
class Endless : public std::streambuf {
 public:
  explicit Endless(char byte) : bytes_(1 << 16, byte) {}

 private:
  int_type underflow() override {
    setg(bytes_.data(), bytes_.data(), bytes_.data() + bytes_.size());
    return traits_type::to_int_type(bytes_.front());
  }
  std::vector<char> bytes_;
};

TEST(LineReader, GivesLinesWithoutTheirEnds) {
  std::istringstream in("\xef\xbb\xbfone\r\n\nthree");
  LineReader lines(in, "text");
  std::vector<std::string> read;
  while (lines.next()) read.emplace_back(lines.line());
  EXPECT_EQ(read, (std::vector<std::string>{"one", "", "three"}));
  EXPECT_EQ(lines.number(), 3);
}

TEST(LineReader, GoesOnAfterALineThatItCuts) {
  std::istringstream in(std::string(LineReader::kLongest + 70'000, 'x') + "\nnext");
  LineReader lines(in, "text");
  ASSERT_TRUE(lines.next());
  EXPECT_TRUE(lines.cut());
  EXPECT_EQ(lines.line().size(), LineReader::kLongest);
  ASSERT_TRUE(lines.next());
  EXPECT_FALSE(lines.cut());
  EXPECT_EQ(lines.line(), "next");
}

TEST(LineReader, EndsALineWithoutEnd) {
  Endless zeros('\0');
  std::istream in(&zeros);
  LineReader lines(in, "/dev/zero");
  ASSERT_TRUE(lines.next());
  EXPECT_TRUE(lines.cut());
  EXPECT_FALSE(lines.next());
}

TEST(LineReader, AsksWhetherToStop) {
  Endless feeds('\n');
  std::istream in(&feeds);
  LineReader lines(in, "feeds");
  int asked = 0;
  const CancelQuestion question = [&] { return ++asked > 3; };
  const CancelScope scope(&question);
  EXPECT_THROW(while (lines.next()){}, Cancelled);
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace shardline
