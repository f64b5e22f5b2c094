// Tables that parse, and that no kernel can be: their fits are refused in words, not by an internal check.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/csv.hpp"
#include "calibrate/power.hpp"
#include "hardware/machine/system.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::SizeIs;

// What a table or the fit to it is refused with; empty: it is not.
std::string refusal(const std::string& text) {
  const System system = load_system("h200-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog");
  try {
    const std::vector<MeasurementTable> tables{parse_measurements("t.csv", text)};
    calibrate(system, tables);
  } catch (const UserError& e) {
    return e.what();
  }
  return {};
}

// A product that takes minutes on any device, measured in a microsecond.
TEST(HostileTables, TimesThatNoShapeTakesAreRefused) {
  std::string text = "m,n,k,dtype,kernel,latency_us\n";
  for (int i = 0; i < 120; ++i)
    text += fmt::format("{},{},{},bf16,nvjet,{}\n", 1LL << (i % 31), 1LL << (i * 7 % 31),
                        1LL << (i * 11 % 30), 1 + i % 7);
  EXPECT_THAT(refusal(text), HasSubstr("times off what their shapes can take"));
}

std::string repeated(const std::string& part, std::size_t count) {
  std::string out;
  out.reserve(part.size() * count);
  for (std::size_t i = 0; i < count; ++i) out += part;
  return out;
}

std::string refusal_of_watts(const std::string& text) {
  try {
    parse_power("t.csv", text, load_system("h200-hgx", SHARDLINE_SOURCE_DIR "/hardware/catalog").device);
  } catch (const UserError& e) {
    return e.what();
  }
  return {};
}

constexpr std::size_t kScreens = 30'000;  // bytes: 50 faults of four lines

TEST(HostileTables, ALineOfMegabytesIsNotCutIntoCells) {
  for (const std::string& text : {repeated("m,", 1'000'000) + "\n1\n",
                                  "m,n,k,dtype,kernel,latency_us\n" + repeated("1,", 1'000'000) + "\n",
                                  "# " + repeated("x", 100'000) + "\nm,n,k,dtype,kernel,latency_us\n"}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("a line of more than 65536 bytes"), SizeIs(Lt(1000u))));
    EXPECT_THAT(refusal_of_watts(text), HasSubstr("a line of more than 65536 bytes"));
  }
}

TEST(HostileTables, NoTableHasThousandsOfColumns) {
  const std::string wide = repeated("m,", 10'000);
  for (const std::string& text : {wide + "\n1\n", "op_name,framework,version,device," + wide + "\n1\n",
                                  "m,n,k,dtype,kernel,latency_us\n" + wide + "\n"}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr("more than 256 columns"), SizeIs(Lt(kScreens))));
    EXPECT_THAT(refusal_of_watts(text), SizeIs(Lt(kScreens)));
  }
  EXPECT_THAT(refusal_of_watts(wide), HasSubstr("more than 256 columns"));
  EXPECT_EQ(csv_cells(wide).size(), kMostColumns + 1);
}

// 200 columns are no reason to stop before all of them are counted, and none to say all.
TEST(HostileTables, FiftyFaultsAreToldAndTheOthersCounted) {
  const std::string header = "m,n,k,dtype,kernel,latency_us";
  const std::string unknown = refusal(header + repeated("," + repeated("x", 300), 200) + "\n1\n");
  EXPECT_THAT(unknown, AllOf(EndsWith("t.csv: 150 more faults; what follows line 1 was not read\n"),
                             SizeIs(Lt(2 * kScreens))));
  EXPECT_THAT(refusal_of_watts(header + repeated(",m", 200) + "\n1\n"), HasSubstr("more faults"));
  EXPECT_THAT(refusal(header + "\n" + repeated("bad,row\n", 1000)),
              AllOf(EndsWith("t.csv: what follows line 51 was not read\n"), SizeIs(Lt(kScreens))));
}

TEST(HostileTables, LongTextsAreAskedForWhateverIsInThem) {
  const std::string header = "m,n,k,dtype,kernel,latency_us\n";
  for (const std::string& text :
       {repeated("\n", 1'000'000), repeated("# a\n", 250'000), header + repeated("\n", 1'000'000),
        repeated("\xc3\xa4", 4'000) + repeated("\n" + repeated("\xc3\xa4", 4'000), 100)}) {
    int asked = 0;
    const CancelQuestion question = [&] { return ++asked == 4; };
    const CancelScope scope(&question);
    EXPECT_THROW(refusal(text), Cancelled);
    asked = 0;
    EXPECT_THROW(refusal_of_watts(text), Cancelled);
  }
}

TEST(HostileTables, LinesOfNothingTakeFourBytes) {
  const std::string text = "a\r\n\n\nb";
  const CsvText lines("t.csv", text);
  ASSERT_EQ(lines.lines().size(), 4u);
  EXPECT_EQ(lines.lines()[0], "a");
  EXPECT_EQ(lines.lines()[1], "");
  EXPECT_EQ(lines.lines()[3], "b");
}

TEST(HostileTables, NotesOfRowsAreFewWhateverStandsInThem) {
  const std::string header = "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\n";
  std::string text = header + "vllm,0.24.0,H200,gemm,x,bfloat16,64,128,256,0.1\n";
  for (int i = 0; i < 500; ++i)
    text += fmt::format("vllm,0.24.0,H200,{}{},x,bfloat16,64,128,256,0.1\n", repeated("y", 1000), i);
  for (int i = 0; i < 500; ++i)
    text += fmt::format("vllm,0.{}.0,H200,gemm,x,bfloat16,64,128,{},0.1\n", i, 256 + i);
  const MeasurementTable table = parse_measurements("t.csv", text);
  EXPECT_LE(table.notes.size(), 53u);
  for (const std::string& note : table.notes) EXPECT_LT(note.size(), 1000u);
}

}  // namespace
}  // namespace shardline
