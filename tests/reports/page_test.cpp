#include "reports/page.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <string>

namespace shardline {
namespace {

Page two_plans() {
  return {.title = "Decode",
          .summary = "Two plans",
          .scenario = "scenarios/decode.yaml",
          .command = "shardline sweep scenarios/decode.yaml",
          .version = "0.1.0",
          .points = {
              {"helix", "tp 8, kvp 8", "shardline simulate a", 64, 8, 8, 5.5, 181.25, 90, 120, true, 0.25,
               0.125, 0.5, 0.125, 1, -0.1, 0.205},
              {"medha", "tp 8, kvp 4", "shardline simulate b", 32, 4, 4, 10, 100, std::nan(""), 80, false}}};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Page, HoldsHeaderAndEveryPlan) {
  const std::string html = page_html(two_plans());
  EXPECT_NE(html.find("<title>Decode</title>"), std::string::npos);
  for (const char* text : {"Two plans", "<code>scenarios/decode.yaml</code>",
                           "<code>shardline sweep scenarios/decode.yaml</code>", "<code>0.1.0</code>"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  EXPECT_NE(
      html.find(
          "{\"labels\":[\"TTL (ms)\",\"Tokens/s per user\",\"Tokens/s per GPU\",\"Users\"],"
          "\"strategies\":[\"helix\",\"medha\"],\n\"points\":[\n"
          "[0,\"tp 8, kvp 8\",\"shardline simulate "
          "a\",64,8,8,5.5,181.25,90,120,1,25,12.5,50,12.5,-10,20.5],\n"
          "[1,\"tp 8, kvp 4\",\"shardline simulate b\",32,4,4,10,100,null,80,0,0,0,0,0,0,0]\n]}</script>"),
      std::string::npos);
  EXPECT_EQ(html, page_html(two_plans()));
}

TEST(Page, RefersToNothingOutside) {
  const std::string html = page_html(two_plans());
  EXPECT_FALSE(std::regex_search(html, std::regex(R"((src|href)\s*=\s*["']?\s*(https?:|//|file:))")));
  EXPECT_EQ(count(html, "<link"), 0U);
  EXPECT_EQ(count(html, "@import"), 0U);
  EXPECT_EQ(count(html, "sourceMappingURL"), 0U);
}

TEST(Page, HostileTextsStayText) {
  Page page = two_plans();
  const std::string attack = "</script><script>alert(1)</script><!--\"'&\\\n";
  page.title = page.summary = page.scenario = page.command = page.version = attack;
  for (PagePoint& p : page.points) p.strategy = p.plan = p.command = attack;
  const std::string html = page_html(page, {});
  EXPECT_EQ(count(html, "alert(1)"), 6U + 1U + 2U * 2U);
  EXPECT_EQ(count(html, "<script>alert"), 0U);
  EXPECT_EQ(count(html, "<!--"), 0U);
  EXPECT_EQ(count(html, "<script"), 2U);  // the data and the page's own
  EXPECT_EQ(count(html, "</script"), 2U);
}

TEST(Page, SaysWhereCostsAreFrom) {
  Page page = two_plans();
  EXPECT_EQ(page_html(page, {}).find("<dt>Costs</dt>"), std::string::npos);
  page.costs = "fitted to <measurements>";
  EXPECT_NE(page_html(page, {}).find("<dt>Costs</dt><dd>fitted to &lt;measurements&gt;</dd>"),
            std::string::npos);
}

TEST(Page, ScenarioOfSeveralLinesIsFolded) {
  Page page = two_plans();
  page.scenario = "model: a\nmachine: b\n";
  EXPECT_NE(page_html(page, {}).find("<details><summary>show</summary><pre>model: a\nmachine: b\n</pre>"),
            std::string::npos);
}

TEST(Page, WithoutVegaNamesThePackage) {
  for (const auto& html :
       {page_html(two_plans(), {}), page_html(two_plans(), {"/nowhere/vega-util.min.js"})}) {
    EXPECT_EQ(count(html, "Debian package libjs-vega"), 1U);
    EXPECT_EQ(count(html, "vegaNext"), 0U);
    EXPECT_NE(html.find("tp 8, kvp 4"), std::string::npos);
  }
}

TEST(Page, InlinesVega) {
  if (vega_files().empty()) GTEST_SKIP() << "needs Vega (Debian package libjs-vega)";
  const std::string html = page_html(two_plans());
  EXPECT_EQ(count(html, "Debian package libjs-vega"), 0U);
  EXPECT_EQ(count(html, "vegaNext = \""), vega_files().size());
  for (const char* module : {"vega-util", "vega-view", "vega-parser", "vega-selection"})
    EXPECT_EQ(count(html, "vegaNext = \"" + std::string(module) + "\";"), 1U) << module;
}

// A module that would end its own element would spill code into the page.
TEST(Page, ModuleThatEndsItsElementIsRefused) {
  std::string file = (std::filesystem::temp_directory_path() / "vega-XXXXXX").string();
  const int descriptor = mkstemp(file.data());
  ASSERT_GE(descriptor, 0);
  std::ofstream(file) << "define([], () => '</script>');";
  const std::string html = page_html(two_plans(), {file});
  std::filesystem::remove(file);
  EXPECT_EQ(count(html, "Debian package libjs-vega"), 1U);
}

}  // namespace
}  // namespace shardline
