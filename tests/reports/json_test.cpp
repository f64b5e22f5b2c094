#include "reports/json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "sim/base/reader.hpp"

namespace shardline {
namespace {

TEST(Json, StringsAreEscaped) {
  EXPECT_EQ(json_string(""), R"("")");
  EXPECT_EQ(json_string("plain, 450 GB/s"), R"("plain, 450 GB/s")");
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string("one\ntwo\tthree\r"), R"("one\ntwo\tthree\u000d")");
  EXPECT_EQ(json_string(std::string_view("\0\x1f", 2)), R"("\u0000\u001f")");
  EXPECT_EQ(json_string("µs → 2×"), "\"µs → 2×\"");
}

TEST(Json, CannotEndAScriptElement) {
  const std::string text = json_string("</script><!-- <script>");
  EXPECT_EQ(text, R"("\u003c/script>\u003c!-- \u003cscript>")");
  EXPECT_EQ(text.find('<'), std::string::npos);
}

TEST(Json, StringsReadBack) {
  for (const std::string text :
       {"a\"b\\c", "one\ntwo\tthree", "</script>", "µs → 2×", "# not a comment", "{[:,"}) {
    const Document d = Document::parse("t.json", "{\"key\": " + json_string(text) + "}");
    EXPECT_EQ(d.root().at("key").text(), text);
    d.finish();
  }
}

TEST(Json, NumbersAreShortest) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(-2.5), "-2.5");
  EXPECT_EQ(number_text(64), "64");
  EXPECT_EQ(number_text(1e6), "1e+06");
  EXPECT_EQ(number_text(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(number_text(5e-324), "5e-324");
  EXPECT_EQ(number_text(std::numeric_limits<double>::max()), "1.7976931348623157e+308");
}

TEST(Json, NumbersReadBackToTheSameBits) {
  constexpr std::uint64_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 rng(kSeed);
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(-1000, 1000);
  for (int i = 0; i < 10000; ++i) {
    const double value = std::ldexp(mantissa(rng), exponent(rng));
    EXPECT_EQ(std::strtod(number_text(value).c_str(), nullptr), value);
  }
}

TEST(Csv, QuotesOnlyWhereNeeded) {
  EXPECT_EQ(csv_cell("helix:kvp=8"), "helix:kvp=8");
  EXPECT_EQ(csv_cell(""), "");
  EXPECT_EQ(csv_cell("kvp=8,tpa=8"), "\"kvp=8,tpa=8\"");
  EXPECT_EQ(csv_cell("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_cell("a\nb"), "\"a\nb\"");
  EXPECT_EQ(csv_cell("a\rb"), "\"a\rb\"");
}

TEST(Csv, GoldenLines) {
  EXPECT_EQ(csv_line({"plan", "ttl_ms", "memory_gb_per_gpu"}), "plan,ttl_ms,memory_gb_per_gpu\n");
  EXPECT_EQ(csv_line({"helix:kvp=8,tpa=8", number_text(2.8), number_text(170.25)}),
            "\"helix:kvp=8,tpa=8\",2.8,170.25\n");
  EXPECT_EQ(csv_line({"a", "", "c"}), "a,,c\n");
}

}  // namespace
}  // namespace shardline
