// Tables of measurements: every family round trip, located faults, mutants, and published tables where they
// are at hand.
#include "calibrate/measurement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/support/bad_input.hpp"
#include "tests/support/files.hpp"
#include "tests/support/mutator.hpp"

namespace shardline {
namespace {

// Three rows of invented shapes, sampled.
MeasurementTable invented(const FamilySpec& f) {
  MeasurementTable t;
  t.family = &f;
  t.provenance = {{"gpu", "H200"}, {"driver", "570.1: open"}, {"date", "2026-11-21"}};
  t.numbers.resize(f.columns.size());
  t.words.resize(f.columns.size());
  for (int row = 0; row < 3; ++row) {
    for (std::size_t i = 0; i < f.columns.size(); ++i) {
      const ColumnSpec& c = f.columns[i];
      if (c.kind != ColumnKind::name && c.kind != ColumnKind::optional_name) {
        t.numbers[i].push_back(static_cast<double>(100 * row + 7 + static_cast<int>(i)));
      } else {
        t.words[i].emplace_back(!c.words.empty() ? c.words[0]
                                : c.kind == ColumnKind::optional_name && row == 0
                                    ? ""
                                    : "x" + std::to_string(row));
      }
    }
    t.median.emplace_back(2.5e-6 + row * 1e-7);
    t.low.emplace_back(2.25e-6);
    t.high.emplace_back(3e-6);
    t.samples.push_back(20 + row);
  }
  return t;
}

TEST(Measurements, EveryFamilyIsReadAsWritten) {
  EXPECT_GE(families().size(), 12u);
  for (const FamilySpec& f : families()) {
    SCOPED_TRACE(f.name);
    const MeasurementTable t = invented(f);
    const MeasurementTable back = parse_measurements("t.csv", measurement_csv(t));
    EXPECT_EQ(back.family, &f);
    EXPECT_EQ(&family(f.name), &f);
    EXPECT_EQ(back.provenance, t.provenance);
    EXPECT_EQ(back.numbers, t.numbers);
    EXPECT_EQ(back.words, t.words);
    EXPECT_EQ(back.samples, t.samples);
    ASSERT_EQ(back.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_DOUBLE_EQ(back.median[i].value, t.median[i].value);
      EXPECT_DOUBLE_EQ(back.low[i].value, t.low[i].value);
      EXPECT_DOUBLE_EQ(back.high[i].value, t.high[i].value);
    }
  }
}

TEST(Measurements, ColumnsComeInAnyOrderAndOneTimeIsEnough) {
  const MeasurementTable t = parse_measurements(
      "g.csv", "# gpu: H100\r\nlatency_us, kernel ,k,m,n,dtype\r\n3.5,cublas,4096,1,128,bf16\r\n");
  EXPECT_STREQ(t.family->name, "gemm");
  EXPECT_EQ(t.number("m"), std::vector<double>{1});
  EXPECT_EQ(t.number("k"), std::vector<double>{4096});
  EXPECT_EQ(t.word("kernel"), std::vector<std::string>{"cublas"});
  EXPECT_DOUBLE_EQ(t.median[0].value, 3.5e-6);
  EXPECT_EQ(t.low[0], t.high[0]);
  EXPECT_EQ(t.samples[0], 0);
  ASSERT_EQ(t.provenance.size(), 1u);
  EXPECT_EQ(t.provenance[0].second, "H100");
}

TEST(Measurements, RowsNameTheirEngine) {
  const std::string text =
      "# engine: sglang_0.5.14\n# engine: vllm\n"
      "engine,m,n,k,dtype,kernel,latency_us\n"
      "sglang_0.5.14,1,64,64,bf16,x,3\n"
      "vllm,1,64,64,bf16,x,4\n"  // the same shape of another engine
      "sglang_0.5.14,2,64,64,bf16,x,3\n";
  const MeasurementTable t = parse_measurements("g.csv", text.substr(text.find("engine,m")));
  EXPECT_EQ(t.word("engine"), (std::vector<std::string>{"sglang", "vllm", "sglang"}));
  EXPECT_EQ(t.versions, (std::vector<std::string>{"0.5.14", "", "0.5.14"}));
  const std::vector<std::pair<std::string, std::string>> named{{"engine", "sglang_0.5.14"},
                                                               {"engine", "vllm"}};
  EXPECT_EQ(t.provenance, named);
  EXPECT_EQ(measurement_csv(t), text.substr(text.find("engine,m")));
  const MeasurementTable without =
      parse_measurements("g.csv", "m,n,k,dtype,kernel,latency_us\n1,1,1,bf16,x,3\n");
  EXPECT_EQ(without.word("engine"), std::vector<std::string>{""});
}

TEST(Measurements, ColumnsThatAFileMayLack) {
  const std::string plain =
      "scope,batch,seq_q,heads_local,dtype_compute,dtype_kv,dtype_gemm,latency_us\n"
      "kernel,1,64,16,bf16,bf16,,9\n";
  const std::string whole =
      "scope,batch,seq_q,kv_cached,heads_local,dtype_compute,dtype_kv,dtype_gemm,kernel,latency_us\n"
      "module,1,64,128,16,bf16,bf16,bf16,FLASH_ATTN,9\n";
  const MeasurementTable a = parse_measurements("t.csv", plain), b = parse_measurements("t.csv", whole);
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.number("kv_cached"), std::vector<double>{0});
  EXPECT_EQ(a.word("kernel"), std::vector<std::string>{""});
  EXPECT_EQ(b.number("kv_cached"), std::vector<double>{128});
  EXPECT_EQ(b.word("kernel"), std::vector<std::string>{"FLASH_ATTN"});
  EXPECT_EQ(measurement_csv(a), plain);
  EXPECT_EQ(measurement_csv(b), whole);
}

TEST(Measurements, BadFilesAreRefusedWithTheirPlaces) {
  testing::expect_messages("measurement", ".csv", 27, [](const std::string& name, const std::string& text) {
    parse_measurements(name, text);
  });
}

TEST(Measurements, MutantsEndInATableOrAUserError) {
  std::vector<std::string> texts;
  for (const FamilySpec& f : families()) texts.push_back(measurement_csv(invented(f)));
  const std::vector<std::string> words{"latency_us", "m",  "-1",   "nan", "1e400", "0",
                                       ",",          "\n", "bf16", "#",   "\r",    "p10_us"};
  int valid = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    testing::Mutator mutator(seed, words);
    const std::string text =
        mutator.mutate(texts[mutator.below(texts.size())], texts[mutator.below(texts.size())]);
    try {
      const MeasurementTable t = parse_measurements("fuzz", text);
      ++valid;
      ASSERT_GT(t.size(), 0u);
      for (std::size_t i = 0; i < t.size(); ++i) {
        EXPECT_GT(t.median[i].value, 0) << seed;
        EXPECT_LE(t.low[i], t.median[i]) << seed;
      }
    } catch (const UserError& e) {
      ++refused;
      EXPECT_FALSE(e.diagnostics().empty());
    }
  }
  EXPECT_GT(valid, 300);
  EXPECT_GT(refused, 300);
}

// Or a table of the family would be refused as one that no form prices.
TEST(Measurements, NoFamilyHasTheColumnsOfAnUnpricedTable) {
  for (const UnpricedSpec& u : unpriced_tables()) {
    for (const FamilySpec& f : families()) {
      const bool all = std::all_of(u.columns.begin(), u.columns.end(), [&](std::string_view wanted) {
        return std::any_of(f.columns.begin(), f.columns.end(),
                           [&](const ColumnSpec& c) { return wanted == c.name; });
      });
      EXPECT_FALSE(all) << f.name << " reads as " << u.what;
    }
  }
}

// A folder with one folder of tables per system, for instance of AIConfigurator's collected data.
TEST(Measurements, PublishedTablesAreRead) {
  const char* folder = std::getenv("SHARDLINE_MEASUREMENTS");
  if (folder == nullptr) GTEST_SKIP() << "SHARDLINE_MEASUREMENTS names no folder of tables";
  std::size_t tables = 0, rows = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".csv") continue;
    SCOPED_TRACE(entry.path().string());
    try {
      rows += load_measurements(entry.path()).size();
      ++tables;
    } catch (const UnpricedTable& e) {
      std::printf("%s: %s\n", entry.path().filename().c_str(), e.diagnostics()[0].what.c_str());
    }
  }
  EXPECT_GT(tables, 0u);
  std::printf("%zu tables, %zu rows\n", tables, rows);
}

// Of tables of one name in two folders.
TEST(Measurements, FaultsNameTheFileAsItWasAskedFor) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "shardline_tables";
  const std::filesystem::path file = folder / "b" / "x.csv";
  std::filesystem::create_directories(file.parent_path());
  for (const char* text : {"", "dtype,m,n,k,kernel,latency_us\nbf16,x,64,64,a,3\n"}) {
    std::ofstream(file) << text;
    try {
      load_measurements(file);
      ADD_FAILURE() << text;
    } catch (const UserError& e) {
      EXPECT_TRUE(std::string_view(e.what()).starts_with(file.string())) << e.what();
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(Measurements, FaultsNameTheirColumn) {
  const auto keys = [](const std::string& text) {
    std::vector<std::string> out;
    try {
      parse_measurements("t.csv", text);
    } catch (const UserError& e) {
      for (const Diagnostic& d : e.diagnostics()) out.push_back(d.where.key);
    }
    return out;
  };
  const std::vector<std::string> m{"m"}, time{"latency_us"}, dtype{"dtype"}, odd{"odd"}, row{""};
  EXPECT_EQ(keys("dtype,m,n,k,kernel,latency_us\nbf16,x,64,64,a,3\n"), m);
  EXPECT_EQ(keys("dtype,m,n,k,kernel,latency_us\nbf16,8,64,64,a,-3\n"), time);
  EXPECT_EQ(keys("dtype,m,n,k,kernel,latency_us\nbf17,8,64,64,a,3\n"), dtype);
  EXPECT_EQ(keys("dtype,m,n,k,kernel,latency_us,odd\nbf16,8,64,64,a,3,1\n"), odd);
  EXPECT_EQ(keys("dtype,m,n,k,kernel,latency_us\nbf16,8,64,64,a\n"), row);  // of no single cell
}

}  // namespace
}  // namespace shardline
