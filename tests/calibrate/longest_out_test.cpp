// Leave the longest out: decode attention of long sequences, predicted from shorter ones. calibrate/README.md
// [F9].
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "calibrate/calibrate.hpp"
#include "calibrate/rows.hpp"
#include "calibrate/withhold.hpp"
#include "hardware/cost/forms/split_rules.hpp"

namespace shardline {
namespace {

System catalog(const std::string& name) {
  return load_system(name, SHARDLINE_SOURCE_DIR "/hardware/catalog");
}

struct Known {
  const Form* form;
  FormContext context;
  std::vector<double> parameters;
};

Known known(const char* family, const std::vector<std::string>& words) {
  Known k{find_form(family), {}, {}};
  EXPECT_TRUE(k.form->context(words, catalog("gb200-nvl72"), k.context));
  for (const FormParameter& p : k.form->parameters) k.parameters.push_back(p.start);
  return k;
}

// Up to 128K keys; the longest of one sequence `factor` slower than the form says.
FitRows sequences(const Known& k, double factor) {
  FitRows rows;
  for (double batch = 1; batch <= 256; batch *= 2) {
    for (double keys = 32; keys <= 131072; keys *= 2) {
      for (const double heads : {1.0, 8.0, 16.0, 64.0, 128.0}) {
        const std::vector<double> x{batch, keys, heads};
        const double slower = keys == 131072 && batch * std::ceil(heads / 64) == 1 ? factor : 1;
        rows.width = x.size();
        rows.numbers.insert(rows.numbers.end(), x.begin(), x.end());
        rows.seconds.push_back(slower * k.form->seconds(x, k.context, k.parameters));
      }
    }
  }
  return rows;
}

TEST(WithholdLongest, F9FindsWhatOneLongSequenceTakesBeyondTheForm) {
  const Known k = known("mla_decode", {"kernel", "bf16", "fp8", "", ""});
  const std::vector<LongestOut> found =
      withhold_longest(*k.form, k.context, sequences(k, 1.25), 2, {std::nullopt, {}, 4});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].rows, 4u);  // 1, 8, 16 and 64 heads are one tile
  EXPECT_NEAR(found[0].bias, 1 / 1.25 - 1, 0.02);
  EXPECT_EQ(found[0].within, 0);
  for (std::size_t i = 1; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].bias, 0, 0.02);
    EXPECT_EQ(found[i].within, 1);
    EXPECT_LE(found[i].low, found[i].bias);
    EXPECT_GE(found[i].high, found[i].bias);
  }
}

TEST(WithholdLongest, F9IsOfDecodeFormsWithEnoughShortRows) {
  const Known k = known("mla_decode", {"kernel", "bf16", "fp8", "", ""});
  EXPECT_TRUE(withhold_longest(*k.form, k.context, FitRows{}, 2, {std::nullopt, {}, 4}).empty());
  EXPECT_TRUE(withhold_longest(*k.form, k.context, sequences(k, 1), 2, {std::nullopt, {}, 1000}).empty());
  const Known other = known("nccl", {"all_reduce"});
  FitRows rows;
  rows.width = 2;
  rows.numbers = {8, 1024};
  rows.seconds = {1e-5};
  EXPECT_TRUE(withhold_longest(*other.form, other.context, rows, 2, {std::nullopt, {}, 0}).empty());
}

bool decodes(const MeasurementTable& t) {
  return t.family->name == std::string("attention_decode") || t.family->name == std::string("mla_decode");
}

/// f(system, table) of every decode table in the folders SYSTEM and SYSTEM.FRAMEWORK of `root`, of systems in
/// the catalogue. Returns why there were none, or nothing.
template <class F>
std::string for_decode_tables(const char* root, F f) {
  if (root == nullptr) return "SHARDLINE_MEASUREMENTS names no folder of tables";
  const std::vector<std::string> known = system_names(SHARDLINE_SOURCE_DIR "/hardware/catalog");
  std::size_t found = 0;
  for (const std::filesystem::path& folder : entries_of(root)) {
    const std::string name = folder.filename().string();
    const std::string system = name.substr(0, name.find('.'));
    if (std::find(known.begin(), known.end(), system) == known.end() || csv_files(folder).empty()) continue;
    const System s = catalog(system);
    for (const MeasurementTable& t : load_tables({folder.string()}).tables) {
      if (!decodes(t)) continue;
      f(s, t);
      ++found;
    }
  }
  return found > 0 ? "" : std::string("no folder SYSTEM or SYSTEM.FRAMEWORK with decode tables in ") + root;
}

// A kernel that no one has looked at would extrapolate as one that saturates.
TEST(PublishedDecode, H47EveryKernelHasARuleOrIsKnownToHaveNone) {
  std::set<std::string> kernels;
  const std::string missing = for_decode_tables(
      std::getenv("SHARDLINE_MEASUREMENTS"), [&](const System& s, const MeasurementTable& t) {
        const Form* form = find_form(t.family->name);
        for (const auto& [words, rows] : rows_of(*form, s, t).variants) {
          EXPECT_TRUE(split_rules(form->family, words, s)) << s.name << " " << words.back();
          kernels.insert(s.name + words.back());
        }
      });
  if (!missing.empty()) GTEST_SKIP() << missing;
  EXPECT_GE(kernels.size(), 10u);
}

TEST(PublishedDecode, F9LongSequencesOfKernelsWithARule) {
  std::vector<double> biases;
  std::size_t rows = 0;
  double within = 0;
  const std::string missing = for_decode_tables(
      std::getenv("SHARDLINE_MEASUREMENTS"), [&](const System& s, const MeasurementTable& t) {
        const Form* form = find_form(t.family->name);
        for (const auto& [words, r] : rows_of(*form, s, t).variants) {
          FormContext context;
          if (!form->context(words, s, context)) continue;
          const bool graph = words.back() == "flash_attn_fa3" || words.back() == "FLASH_ATTN_MLA";
          const bool rule =
              split_rules(form->family, words, s).value_or(SplitRules{}).groups != SplitRule::saturating;
          for (const double doublings : {2.0, 3.0}) {
            for (const LongestOut& l :
                 withhold_longest(*form, context, r, doublings, {std::nullopt, {}, 4})) {
              std::printf("%s %s %s %s, /%g, %g-%g: %zu rows, %+.1f [%+.1f, %+.1f] %%, %.2f within\n",
                          s.name.c_str(), form->family, words[0].c_str(), words.back().c_str(),
                          std::exp2(doublings), l.fewest, l.most, l.rows, 100 * l.bias, 100 * l.low,
                          100 * l.high, l.within);
              if (doublings != 2 || l.fewest != 1 || !rule || graph || words[0].starts_with("module"))
                continue;
              biases.push_back(l.bias);
              rows += l.rows;
              within += l.within * static_cast<double>(l.rows);
            }
          }
        }
      });
  if (!missing.empty()) GTEST_SKIP() << missing;
  if (biases.size() < 10) GTEST_SKIP() << "too few decode kernels with a rule: " << biases.size();
  std::sort(biases.begin(), biases.end());
  std::printf("one sequence, a quarter: %zu kernels, median bias %+.1f %%, %.2f of %zu rows within 15 %%\n",
              biases.size(), 100 * biases[biases.size() / 2], within / static_cast<double>(rows), rows);
  EXPECT_LE(std::abs(biases[biases.size() / 2]), 0.05);
  EXPECT_GE(within / static_cast<double>(rows), 0.9);
}

}  // namespace
}  // namespace shardline
