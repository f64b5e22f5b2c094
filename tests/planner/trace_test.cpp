// Recorded requests: extracts of published traces, and rows that are no requests.
#include "planner/serving/trace.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "tests/planner/requests/traces.hpp"
#include "tests/support/bad_input.hpp"
#include "tests/support/files.hpp"

namespace shardline {
namespace {

using testing::read_all;

std::vector<TraceRequest> extract(const std::string& name) {
  return read_all(name, testing::read_file(testing::source_dir() / "tests" / "planner" / "traces" / name));
}

TEST(Trace, MooncakeAndOursAreTheSameRequests) {
  const std::vector<TraceRequest> mooncake = extract("mooncake.jsonl"), own = extract("own.csv");
  ASSERT_EQ(mooncake.size(), 30U);
  ASSERT_EQ(own.size(), 30U);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(mooncake[i].arrival, own[i].arrival);
    EXPECT_EQ(mooncake[i].input, own[i].input);
    EXPECT_EQ(mooncake[i].output, own[i].output);
    EXPECT_EQ(mooncake[i].blocks, own[i].blocks);
  }
  EXPECT_EQ(mooncake[10].arrival, Seconds(3));
  EXPECT_EQ(mooncake[10].input, 13'544);
  EXPECT_EQ(mooncake[10].output, 71);
  EXPECT_EQ(mooncake[1].blocks,
            (std::vector<std::uint64_t>{0, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27}));
}

TEST(Trace, AzureTimesAreSinceTheFirstRequest) {
  const std::vector<TraceRequest> rows = extract("azure.csv");
  ASSERT_EQ(rows.size(), 16U);
  EXPECT_EQ(rows[0].arrival, Seconds(0));
  EXPECT_EQ(rows[1].arrival, Seconds(0.052));
  EXPECT_EQ(rows[12].arrival, Seconds(29.479069));
  EXPECT_EQ(rows[3].input, 7433);
  EXPECT_EQ(rows[3].output, 14);
  EXPECT_TRUE(rows[3].blocks.empty());
  // Over midnight, the end of a leap February, and with the zone that later traces carry.
  const auto days = read_all("t.csv",
                             "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-28 23:59:59.5,1,1\n"
                             "2024-02-29 00:00:00+00:00,1,1\n2024-03-01 00:00:00.000001+00:00,1,1\n");
  EXPECT_EQ(days[1].arrival, Seconds(0.5));
  EXPECT_EQ(days[2].arrival, Seconds(86'400.500001));
}

TEST(Trace, LineEndsCommentsAndOrderOfColumnsDoNotMatter) {
  const auto rows =
      read_all("t.csv", "# mine\r\noutput_tokens, arrival_s ,input_tokens\r\n\r\n3,1.5,7\r\n# more\n4,1.5,8");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].arrival, Seconds(1.5));
  EXPECT_EQ(rows[0].input, 7);
  EXPECT_EQ(rows[0].output, 3);
  EXPECT_EQ(rows[1].input, 8);
}

// A column may say what its ids are of, in blocks of our size alone.
TEST(Trace, AHeaderMaySayWhatItsBlocksAre) {
  const std::string row = "\n0,700,5,3-4\n", before = "arrival_ms,input_tokens,output_tokens,";
  const auto rows = read_all("t.csv", before + "block_ids(512-token blocks; runs a-b)" + row);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].blocks, (std::vector<std::uint64_t>{3, 4}));
  EXPECT_THROW(read_all("t.csv", before + "block_ids(256-token blocks; runs a-b)" + row), UserError);
}

TEST(Trace, EveryFaultIsLocated) {
  for (const char* const ending : {".csv", ".jsonl"}) {
    testing::expect_messages("trace", ending, 2,
                             [](const std::string& file, const std::string& text) { read_all(file, text); });
  }
}

// The rows before a broken one were given out, and it is named wherever it stands.
TEST(Trace, ABrokenRowInTheMiddle) {
  std::string text = "arrival_s,input_tokens,output_tokens\n";
  for (int i = 0; i < 200'000; ++i) text += i == 123'456 ? "61728,10" : std::to_string(i / 2) + ",10,10\n";
  std::istringstream in(text);
  TraceReader reader(in, "long.csv");
  std::size_t rows = 0;
  std::string message;
  try {
    for (TraceRequest row; reader.next(row);) ++rows;
  } catch (const UserError& e) {
    message = e.what();
  }
  EXPECT_EQ(rows, 123'456U);
  EXPECT_EQ(message.substr(0, message.find('\n')), "long.csv:123458:1: expected 3 cells, found 4");
}

TEST(Trace, ALineWithoutEndIsNotHeld) {
  const std::string text = "arrival_s,input_tokens,output_tokens\n" + std::string(10'000'000, '7');
  try {
    read_all("long.csv", text);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("long.csv:2:1: a line has more than 4194304 bytes"),
              std::string::npos);
  }
}

// Faults of one line, of a header or of a row, are as many as it has room for.
TEST(Trace, FiftyFaultsOfALineAreToldAndTheOthersCounted) {
  std::string columns, keys;
  for (int i = 0; i < 100'000; ++i) columns += ",x";
  for (int i = 0; i < 100'000; ++i) keys += (i > 0 ? ",\"x\":1" : "\"x\":1");
  for (const auto& [text, more] : {std::pair("arrival_s,input_tokens,output_tokens" + columns + "\n", 204),
                                   std::pair("{" + keys + "}\n", 99'950)}) {
    try {
      read_all("t", text);
      FAIL();
    } catch (const UserError& e) {
      const std::string message = e.what();
      EXPECT_TRUE(message.ends_with("t: " + std::to_string(more) + " more faults\n"))
          << message.substr(message.size() - 100);
      EXPECT_LT(message.size(), 60'000u);
    }
    int asked = 0;
    const CancelQuestion question = [&] { return ++asked == 3; };
    const CancelScope scope(&question);
    EXPECT_THROW(read_all("t", text), Cancelled);
  }
}

}  // namespace
}  // namespace shardline
