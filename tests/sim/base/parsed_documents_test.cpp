#include "sim/base/parsed_documents.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

namespace fs = std::filesystem;

class ParsedDocumentsTest : public testing::Test {
 protected:
  std::shared_ptr<const std::string> load() {
    return known_.load(file_, [this](const Document& document) {
      ++parsed_;
      std::string name = document.root().at("name").text();
      document.finish();
      return name;
    });
  }
  void write(const std::string& text) const { std::ofstream(file_) << text; }

  // Each test has a file of its own: they run beside each other.
  const fs::path file_ =
      fs::path(testing::TempDir()) /
      (std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + ".yaml");
  ParsedDocuments<std::string> known_;
  int parsed_ = 0;
};

TEST_F(ParsedDocumentsTest, ParsesATextOnce) {
  write("name: a\n");
  const auto first = load();
  EXPECT_EQ(*first, "a");
  EXPECT_EQ(load(), first);
  EXPECT_EQ(parsed_, 1);
}

// Of the same length and perhaps of the same moment: only the text itself tells.
TEST_F(ParsedDocumentsTest, ParsesAgainWhatHasChanged) {
  write("name: a\n");
  const auto first = load();
  write("name: b\n");
  EXPECT_EQ(*load(), "b");
  EXPECT_EQ(*first, "a");
  EXPECT_EQ(parsed_, 2);
}

TEST_F(ParsedDocumentsTest, KeepsNoFault) {
  write("nam: a\n");
  EXPECT_THROW(load(), UserError);
  EXPECT_THROW(load(), UserError);
  EXPECT_EQ(parsed_, 2);
  write("name: a\n");
  EXPECT_EQ(*load(), "a");
  fs::remove(file_);
  EXPECT_THROW(load(), UserError);
}

}  // namespace
}  // namespace shardline
