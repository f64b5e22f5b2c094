#include "sim/base/file_name.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace shardline {
namespace {

TEST(FileName, NamesOfTheCatalogueStayAsTheyAre) {
  for (const char* name :
       {"llama-3.1-405b", "qwen3-235b-a22b", "My model (8 B)", ".hidden", "...", "Größe", "a%2Fb"}) {
    EXPECT_EQ(not_a_file_name(name), std::nullopt) << name;
    EXPECT_EQ(file_name_of(name), name);
  }
}

TEST(FileName, SaysWhatIsWrong) {
  EXPECT_EQ(not_a_file_name(""), "is empty");
  EXPECT_EQ(not_a_file_name("."), "is .");
  EXPECT_EQ(not_a_file_name(".."), "is ..");
  EXPECT_EQ(not_a_file_name("../../../x"), "holds a /");
  EXPECT_EQ(not_a_file_name("/abs/x"), "holds a /");
  EXPECT_EQ(not_a_file_name("a\\b"), "holds a \\");
  EXPECT_EQ(not_a_file_name("a\x1b[31m"), "holds a control character");
  EXPECT_EQ(not_a_file_name(std::string("a\0b", 3)), "holds a control character");
  EXPECT_EQ(not_a_file_name(std::string(129, 'x')), "has 129 bytes; at most 128 are allowed");
  EXPECT_EQ(not_a_file_name(std::string(128, 'x')), std::nullopt);
}

TEST(FileName, DevicesOfWindowsAreNoNames) {
  for (const char* name : {"CON", "nul", "Aux.txt", "prn.tar.gz", "COM1", "lpt9.csv"}) {
    EXPECT_TRUE(not_a_file_name(name)) << name;
    EXPECT_EQ(file_name_of(name), std::string("_") + name);
    EXPECT_EQ(not_a_file_name(file_name_of(name)), std::nullopt) << name;
  }
  for (const char* name : {"CONSOLE", "COM0", "COM10", "null", "a.nul", "LPT"})
    EXPECT_EQ(not_a_file_name(name), std::nullopt) << name;
}

TEST(FileName, WhatIsUnfinishedHasNamesOfItsOwn) {
  EXPECT_EQ(not_a_file_name(".shardline-abcdef"), "begins with .shardline-, as what is not yet written");
  EXPECT_EQ(file_name_of(".shardline-abcdef"), "%2Eshardline-abcdef");
  EXPECT_EQ(file_name_of("%2Eshardline-abcdef"), "%2Eshardline-abcdef");
  for (const char* name : {"shardline-a", ".shardline", "a.shardline-b"})
    EXPECT_EQ(not_a_file_name(name), std::nullopt) << name;
}

TEST(FileName, AnyTextStaysInItsFolder) {
  const std::filesystem::path folder = "/some/folder";
  for (const std::string& text :
       {std::string(), std::string("."), std::string(".."), std::string("/"), std::string("../../../x"),
        std::string("/abs/x"), std::string("a/../.."), std::string("a\nb\\c"), std::string("a\0b", 3),
        std::string(5000, '/'), std::string(5000, 'x')}) {
    const std::string name = file_name_of(text);
    EXPECT_EQ(not_a_file_name(name), std::nullopt) << name;
    EXPECT_EQ((folder / name).lexically_normal().parent_path(), folder) << name;
    EXPECT_EQ(file_name_of(name), name);
  }
  EXPECT_EQ(file_name_of("../x"), "..%2Fx");
  EXPECT_EQ(file_name_of(".."), "%2E%2E");
}

TEST(FileName, LongTextsOfOneBeginningStayApart) {
  const std::string same(500, 'x');
  EXPECT_NE(file_name_of(same + "a"), file_name_of(same + "b"));
}

}  // namespace
}  // namespace shardline
