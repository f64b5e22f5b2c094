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
  const PageInterval time{-0.1, 0.205};
  Page page{.title = "Decode",
            .summary = "Two plans",
            .scenario = "scenarios/decode.yaml",
            .command = "shardline sweep --ttl 1",
            .version = "0.1.0",
            .columns = {{"TTL", "ms", Better::less, true, true, true}, {"tokens/s/GPU", "", Better::more}},
            .x = 0,
            .y = 1,
            .limits = {{"overhead", "launches"}, {"HBM", "memory"}},
            .parts_of = "of TTL"};
  page.targets = {{"TTL at most 8 ms", 0, true, 8, 8.0}};
  page.points.push_back({"helix", "tp 8, kvp 8", "shardline simulate a", {"vLLM", "SGLang"}, true, true});
  page.points.back().numbers = {{5.5, time}, {90}};
  page.points.back().measured = 0.25, page.points.back().fitted = 0.125;
  page.points.back().extrapolated = 0.5, page.points.back().assumed = 0.125;
  page.points.back().parts = {{"attention", "HBM", 4.5}, {"ffn", "overhead", 1}};
  page.points.push_back({"star", "tp 8, kvp 4", "shardline simulate b", {"SGLang"}, false, false});
  page.points.back().numbers = {{10}, {std::nan("")}};
  return page;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(Page, HoldsHeaderAndEveryPlan) {
  const std::string html = page_html(two_plans());
  EXPECT_NE(html.find("<title>Decode</title>"), std::string::npos);
  for (const char* text :
       {"Two plans", "<code><span>scenarios/</span><wbr><span>decode.yaml</span><wbr></code>",
        "<span>--ttl </span><wbr><span>1</span>", "<dt>Target</dt><dd>TTL at most 8 ms</dd>"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  for (const char* text :
       {R"("columns":[{"name":"TTL","unit":"ms","better":"less","filter":true,"interval":true,"errs":true},)"
        R"({"name":"tokens/s/GPU","unit":"","better":"more","filter":false,"interval":false,"errs":false}])",
        R"("target":[{"text":"TTL at most 8 ms","column":0,"most":true,"value":8,"x":8,"y":null}])",
        R"("strategies":["helix","star"],"engines":["vLLM","SGLang"],"parts":["attention","ffn"],)"
        R"("limits":["overhead","HBM"],"limitTexts":["launches","memory"])",
        "[0,\"tp 8, kvp 8\",\"shardline simulate a\",[0,1],1,1,[5.5,90],[[-10,20.5],0],[25,12.5,50,12.5],"
        "[[0,1,4.5],[1,0,1]]],\n"
        "[1,\"tp 8, kvp 4\",\"shardline simulate b\",[1],0,0,[10,null],[0,0],[0,0,0,0],[]]\n]}</script>"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  EXPECT_EQ(html, page_html(two_plans()));
}

TEST(Page, HasTablesOfWhatIsNoPlan) {
  Page page = two_plans();
  page.tables = {{"Pools", "None <fits>."},
                 {"Whole", "", {{"TPOT", "plan"}, {"5 ms", "tensor:tpa=8,tpf=8"}}, 1}};
  const std::string html = page_html(page);
  EXPECT_NE(html.find("<h2 id=\"table0-title\">Pools</h2>\n<p class=\"hint\">None &lt;fits&gt;.</p>\n<h2 id"),
            std::string::npos);
  EXPECT_NE(html.find("aria-labelledby=\"table1-title\""), std::string::npos);
  EXPECT_NE(html.find("<th>TPOT</th><th class=\"plan\">plan</th>"), std::string::npos);
  EXPECT_NE(html.find("<td>5 ms</td><td class=\"plan\"><code>"), std::string::npos);
  EXPECT_EQ(page_html(two_plans()).find("table0-title"), std::string::npos);
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
  page.columns[0].name = page.targets[0].text = page.interval_note = attack;
  page.points[0].engines = {attack};
  page.limits[0].text = page.parts_of = attack;
  const std::string hostile = page_html(page, {});
  EXPECT_GE(count(hostile, "alert"), 6U + 1U + 2U * 2U + 6U);
  EXPECT_EQ(count(hostile, "<script"), 2U);  // the data and the page's own
  EXPECT_EQ(count(hostile, "</script"), 2U);
  EXPECT_EQ(count(hostile, "<script>alert"), 0U);
  EXPECT_EQ(count(hostile, "<!--"), 0U);
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
    EXPECT_EQ(count(html, "UW Interactive Data Lab"), 0U);
    EXPECT_NE(html.find("tp 8, kvp 4"), std::string::npos);
  }
}

TEST(Page, InlinesVega) {
  if (vega_files().empty()) GTEST_SKIP() << "needs Vega (Debian package libjs-vega)";
  const std::string html = page_html(two_plans());
  EXPECT_EQ(count(html, "Debian package libjs-vega"), 0U);
  EXPECT_EQ(count(html, "vegaNext = \""), vega_files().size());
  // What its licence asks of copies: the notice, the conditions, the disclaimer.
  EXPECT_EQ(count(html, "Copyright 2015-2021, UW Interactive Data Lab"), 1U);
  EXPECT_EQ(count(html, "2. Redistributions in binary form must reproduce"), 1U);
  EXPECT_EQ(count(html, "THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS"), 1U);
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
