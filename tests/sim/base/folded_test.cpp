// Folded blocks of integers, which Document reads itself, against yaml-cpp reading the same text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "sim/base/read_text.hpp"
#include "sim/base/reader.hpp"

namespace shardline {
namespace {

// All that a getter may say of a node and of those below it.
std::string told(const Reader& r) {
  const Location at = r.location();
  std::string out = fmt::format("{} {}:{} ", r.path(), at.line, at.column);
  if (r.is_map()) {
    out += "{\n";
    for (const std::string& key : r.keys()) out += key + ": " + told(r.at(key));
    return out + "}\n";
  }
  if (r.is_sequence()) {
    out += "[\n";
    for (const Reader& item : r.items()) out += told(item);
    return out + "]\n";
  }
  return out + (r.is_scalar() ? "<" + r.text() + ">\n" : "null\n");
}

// With a comment behind each mark: such blocks are left to yaml-cpp.
std::string commented(std::string text) {
  for (std::size_t i = text.find(">-\n"); i != std::string::npos; i = text.find(">-\n", i))
    text.replace(i, 3, ">- #\n");
  return text;
}

std::string tree(const std::string& text) {
  try {
    const Document d = Document::parse("t.yaml", text);
    return told(d.root());
  } catch (const UserError& e) {
    return e.what();
  }
}

TEST(FoldedBlocks, AreReadAsYamlCppReadsThem) {
  for (const char* text : {
           "a:\n  values: >-\n    1 2\n    -3 4\n  b: 1\n",
           "a: >-\n  1\nb: >-\n  2\n  3",
           "- runs: 1\n  values: >-\n      5 6\n      7\n- x: y\n",
           "a: >-\n  1 2\n\n\n",
       }) {
    SCOPED_TRACE(text);
    EXPECT_EQ(tree(text), tree(commented(text)));
    EXPECT_NE(tree(text).find('<'), std::string::npos);
  }
  EXPECT_NE(tree("a: >-\n  1\nb: >-\n  2\n  3").find("<2 3>"), std::string::npos);
}

// Where it is not a block of integers, or the text around it makes it something else.
TEST(FoldedBlocks, OthersAreLeftToYamlCpp) {
  for (const char* text : {
           "a: >-\n  1\n\n  2\nb: 3\n",  // an empty line is a line end
           "a: >-\n  1\n   2\nb: 3\n",   // so is a deeper one
           "a: >-\n  1 # 2\n  3\n",      // no comment inside a block
           "a: >-\n  one\n  2\nb: 3\n",
           "a: >-\n    1\n  2\nb: 3\n",  // a fault
           "a: >-\n1\nb: 3\n",
           "a: >-\nb: 3\n",
           "- a: >-\n  1\n- b\n",
           "a: >-\n  1\n  b: 2\n",
       }) {
    SCOPED_TRACE(text);
    EXPECT_EQ(tree(text), tree(commented(text)));
  }
  // Inside of another text it is a part of that.
  EXPECT_NE(tree("note: |\n  values: >-\n    1 2\n  end\nb: >-\n  3\n").find("values: >-\n  1 2\nend"),
            std::string::npos);
  EXPECT_NE(tree("note: \"x\n  values: >-\n    1 2\n  y\"\n").find("x values: >- 1 2 y"), std::string::npos);
}

// A fault of a block, or behind it, has its own line and column.
TEST(FoldedBlocks, FaultsKeepTheirPlaces) {
  const std::string block = "a: >-\n  1\n  2\n  3\nb: x\n";
  const Document d = Document::parse("t.yaml", block);
  d.root().at("b").number(0, 1);
  d.root().at("a").fault("wrong");
  try {
    d.finish();
    ADD_FAILURE() << "no fault";
  } catch (const UserError& e) {
    ASSERT_EQ(e.diagnostics().size(), 2u);
    EXPECT_EQ(e.diagnostics()[0].where.line, 1);
    EXPECT_EQ(e.diagnostics()[0].where.column, 4);
    EXPECT_EQ(e.diagnostics()[1].where.line, 5);
    EXPECT_EQ(e.diagnostics()[1].where.source_line, "b: x");
  }
  const std::string broken = tree(block + "c: [1\n");
  EXPECT_EQ(broken, tree(commented(block) + "c: [1\n"));
  EXPECT_NE(broken.find("t.yaml:6"), std::string::npos);
  EXPECT_EQ(tree(block + "b: twice\n"), tree(commented(block) + "b: twice\n"));
}

TEST(FoldedBlocks, ShippedCalibrationsAreReadAlikeBothWays) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(SHARDLINE_SOURCE_DIR "/hardware/calibrations")) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string text = read_text(entry.path(), std::size_t{16} << 20);
    ASSERT_NE(text.find(">-\n"), std::string::npos);
    EXPECT_TRUE(tree(text) == tree(commented(text))) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 12);
}

}  // namespace
}  // namespace shardline
