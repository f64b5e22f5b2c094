// The file of what a long sweep has finished. tests/golden/resumed.py runs sweeps that are killed.
#include "planner/cli/sweep_journal.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_folder.hpp"

namespace shardline {

namespace {

constexpr auto kLonger = std::chrono::milliseconds(1100);  // than what is done again in place of being kept

std::size_t lines_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::size_t out = 0;
  for (std::string line; std::getline(in, line);) ++out;
  return out;
}

void keep_waves(SearchJournal& journal, std::size_t from, std::size_t to) {
  const std::vector<FoundOfCandidate> wave(1);
  for (std::size_t i = from; i < to; ++i) journal.keep(i, i + 1, wave);
}

}  // namespace

// A run that is resumed goes through four records, the second of them after its first second. Until it is
// through the file has all four, and then those and the fifth: five and the line of the question.
TEST(SweepJournal, AFileIsNotReplacedByAPartOfIt) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / ".model.journal";
  {
    cli::SweepJournal first(folder.path() / "model", "question");
    keep_waves(first.search(), 0, 3);
    std::this_thread::sleep_for(kLonger);
    keep_waves(first.search(), 3, 4);
  }
  ASSERT_EQ(lines_of(file), 5U);
  cli::SweepJournal again(folder.path() / "model", "question");
  EXPECT_TRUE(again.search().finished(0, 1));
  std::this_thread::sleep_for(kLonger);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_TRUE(again.search().giving_back());
    EXPECT_TRUE(again.search().finished(i, i + 1));
    EXPECT_EQ(lines_of(file), 5U) << "behind record " << i;
  }
  EXPECT_FALSE(again.search().finished(4, 5));
  keep_waves(again.search(), 4, 5);
  EXPECT_EQ(lines_of(file), 6U);
  again.remove();
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace shardline
