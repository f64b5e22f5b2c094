// Published curves of accepted drafts: the shipped parameters are what they give, and the bands [P28].
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "planner/scenario/shipped.hpp"
#include "planner/search/provenance.hpp"
#include "planner/serving/acceptance.hpp"
#include "tests/support/files.hpp"
#include "tests/temporary_folder.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kPublished = testing::source_dir() / "planner/serving/acceptance.yaml";

std::vector<MeasuredAcceptance> points_of(const std::vector<double>& means) {
  std::vector<MeasuredAcceptance> out;
  for (std::size_t i = 0; i < means.size(); ++i) out.push_back({static_cast<int>(i) + 1, means[i]});
  return out;
}

struct Errors {
  double median, largest;
};
Errors errors_of(const AcceptanceForm& form, const std::vector<MeasuredAcceptance>& points) {
  std::vector<double> off;
  for (const auto& point : points) off.push_back(std::abs(mean_accepted(form, point.k) / point.mean - 1));
  std::sort(off.begin(), off.end());
  const std::size_t half = off.size() / 2;
  return {off.size() % 2 == 1 ? off[half] : (off[half - 1] + off[half]) / 2, off.back()};
}

/// The shipped curve of a model, method and thinking is what its points give, and errs as it says.
void expect_shipped(const PublishedAcceptance& shipped, const std::vector<MeasuredAcceptance>& points) {
  SCOPED_TRACE(shipped.model + " " + shipped.method + " " + shipped.thinking);
  const AcceptanceForm fitted = fit_acceptance(points);
  EXPECT_NEAR(shipped.form.p, fitted.p, 1e-4);
  EXPECT_NEAR(shipped.form.g, fitted.g, 1e-4);
  const Errors errors = errors_of(shipped.form, points);
  EXPECT_NEAR(shipped.median_error, errors.median, 1e-4);
  EXPECT_NEAR(shipped.largest_error, errors.largest, 1e-4);
  EXPECT_LE(errors.largest, 0.07);
}

const PublishedAcceptance& shipped(const std::vector<PublishedAcceptance>& all, const std::string& model,
                                   const std::string& method, const std::string& thinking) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const PublishedAcceptance& c) {
    return c.model == model && c.method == method && c.thinking == thinking;
  });
  if (at == all.end()) throw std::runtime_error("no curve of " + model);
  return *at;
}

// A few of the curves by themselves, SemiAnalysisAI/InferenceX 843c6254 (Apache-2.0): the hardest, which
// falls at seven and eight drafts, one that is flat and the longest.
TEST(Acceptance, P28ShippedParametersAreThoseOfPublishedCurves) {
  const auto all = load_published_acceptance(kPublished);
  ASSERT_EQ(all.size(), 14u);
  expect_shipped(shipped(all, "deepseek-v4-pro-0813", "dspark", "on"),
                 points_of({1.84, 2.51, 3.01, 3.36, 3.61, 3.77, 3.73, 3.47}));
  expect_shipped(shipped(all, "deepseek-v4-pro", "mtp", "on"),
                 points_of({1.79, 2.27, 2.49, 2.54, 2.55, 2.55, 2.54, 2.58}));
  expect_shipped(shipped(all, "qwen3.5-397b-a17b-nvfp4", "mtp", "on"),
                 points_of({1.93, 2.73, 3.39, 3.97, 4.41, 4.8, 5.04, 5.21}));
  std::vector<double> off;
  for (const PublishedAcceptance& curve : all) {
    SCOPED_TRACE(curve.name());
    EXPECT_LE(curve.median_error, 0.026);
    EXPECT_LE(curve.largest_error, 0.07);
    EXPECT_THAT(curve.source, HasSubstr("InferenceX 843c6254"));
    std::vector<int> at;
    for (const MeasuredAcceptance& point : curve.points) {
      at.push_back(point.k);
      off.push_back(std::abs(mean_accepted(curve.form, point.k) / point.mean - 1));
      EXPECT_LE(off.back(), curve.largest_error + 5e-5) << point.k;  // as stated, which is to four digits
      EXPECT_EQ(curve.curve().at(point.k).mean, point.mean);
      EXPECT_EQ(curve.curve().at(point.k).basis, AcceptanceBasis::given);
    }
    EXPECT_EQ(at, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(curve.curve().form(), curve.form);
    expect_shipped(curve, curve.points);  // p and g are those of the means beside them
    EXPECT_EQ(curve.curve().at(9).basis, AcceptanceBasis::extrapolated);
  }
  ASSERT_EQ(off.size(), 112u);
  std::sort(off.begin(), off.end());
  EXPECT_LE((off[55] + off[56]) / 2, 0.026);
  EXPECT_LE(off.back(), 0.07);
}

std::string error_of_name(const std::string& name) {
  try {
    acceptance_named(name, kPublished);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Acceptance, P28PublishedCurvesAreNamed) {
  const AcceptanceCurve glm = acceptance_named("glm-5.2-fp8-mtp-thinking-on", kPublished);
  EXPECT_EQ(glm.origin().name, "glm-5.2-fp8-mtp-thinking-on");
  EXPECT_EQ(glm.origin().method, "mtp");
  EXPECT_THAT(glm.origin().source, HasSubstr("glm5.2_mtp.yaml"));
  EXPECT_EQ(glm.at(3).mean, 2.99);
  EXPECT_EQ(glm.at(3).curve, "glm-5.2-fp8-mtp-thinking-on");
  EXPECT_NE(acceptance_named("minimax-m3-eagle3-thinking-on", kPublished).at(3).mean,
            acceptance_named("minimax-m3-eagle3-thinking-off", kPublished).at(3).mean);
  EXPECT_EQ(acceptance_named("GLM-5.2-FP8-MTP-thinking-on", kPublished).origin().name,
            "glm-5.2-fp8-mtp-thinking-on");
  EXPECT_THAT(error_of_name("glm-5.2"), HasSubstr("no published acceptance is called glm-5.2"));
  EXPECT_THAT(error_of_name("glm-5.2"), HasSubstr("did you mean glm-5.2-fp8-mtp-thinking-on?"));
  EXPECT_THAT(error_of_name("kimi-k3-dspark-thinking-onn"),
              HasSubstr("did you mean kimi-k3-dspark-thinking-on?"));
  EXPECT_THAT(error_of_name("nonsense"),
              HasSubstr("or {p, g}, {table: [{drafts, mean}]}, or a file of yours"));
  EXPECT_THAT(error_of_name("nowhere.csv"), HasSubstr("cannot read nowhere.csv"));
}

TEST(Acceptance, P28ScenariosNamePublishedCurves) {
  const Scenario s = parse_scenario("q.yaml",
                                    "name: q\nsystem: h200-hgx\nmodels: [deepseek-r1]\ncontext: 8192 tokens\n"
                                    "speculative: {acceptance: deepseek-v4-pro-mtp-thinking-off}\n"
                                    "strategies: [tensor]\ngpus: [8]\nbatch: [1]\n",
                                    shipped_catalogs());
  const Case& c = s.studies.at(0).study;
  ASSERT_TRUE(c.acceptance);
  EXPECT_EQ(c.acceptance->at(3).mean, 2.97);
  const std::string told = drafts_text(c);
  EXPECT_THAT(
      told,
      HasSubstr("as published with 1, 2, 3, 4, 5, 6, 7, 8 of them (deepseek-v4-pro-mtp-thinking-off: "));
  EXPECT_THAT(told, HasSubstr("InferenceX 843c6254"));
  EXPECT_THAT(told, Not(HasSubstr("drafted by")));  // the model's own module, as is priced
  Case other = c;
  other.acceptance = std::make_shared<const AcceptanceCurve>(
      acceptance_named("kimi-k2.5-nvfp4-eagle3-thinking-on", kPublished));
  EXPECT_THAT(drafts_text(other), HasSubstr("drafted by eagle3 and priced as the model's own module"));
}

TEST(Acceptance, P28FilesBesideNamesAreTheUsersOwn) {
  const TemporaryFolder own;
  const std::filesystem::path& folder = own.path();
  std::ofstream(folder / "mine.csv") << "drafts,mean\n1,1.5\n3,1.9\n";
  const AcceptanceCurve mine = acceptance_named((folder / "mine.csv").string(), kPublished);
  EXPECT_EQ(mine.at(3).mean, 1.9);
  EXPECT_TRUE(mine.origin().name.empty());
  // A folder before it makes a file of what would be a curve's name.
  EXPECT_THROW(acceptance_named((folder / "glm-5.2-fp8-mtp-thinking-on").string(), kPublished), UserError);
}

// A list whose rows are wrong: every fault at its place; two curves of one name.
TEST(Acceptance, P28PublishedTablesAreChecked) {
  const auto fault = [](const std::string& rows) -> std::string {
    const std::string curve =
        "  - {model: m, method: mtp, thinking: \"on\", p: 0.8, g: 0.9, drafts: 8, error: {median: 0.01, "
        "largest: "
        "0.02}, file: f, table: " +
        rows + "}\n";
    try {
      parse_published_acceptance("a.yaml", "source: s\ncurves:\n" + curve + curve);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(fault("[{drafts: 1, mean: 1.8}]"), HasSubstr("m-mtp-thinking-on is named twice"));
  EXPECT_THAT(fault("[{drafts: 1, mean: 2.1}]"), HasSubstr("a step with 1 drafts yields from 1 to 2 tokens"));
  EXPECT_THAT(fault("[]"), HasSubstr("table is empty"));
}

// The whole table by file and thinking, where a folder of published measurements is named; else nothing.
std::map<std::string, std::vector<MeasuredAcceptance>> published_curves() {
  std::map<std::string, std::vector<MeasuredAcceptance>> curves;
  const char* const folder = std::getenv("SHARDLINE_MEASUREMENTS");
  if (folder == nullptr) return curves;
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().filename() == "acceptance_lengths.csv") file = entry.path();
  if (file.empty()) return curves;
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  if (line != "source,model,thinking,draft_tokens,mean_acceptance_length") throw std::runtime_error(line);
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    std::string source, model, thinking, k, mean;
    for (std::string* cell : {&source, &model, &thinking, &k, &mean}) std::getline(cells, *cell, ',');
    curves[source + " " + thinking.substr(9)].push_back({std::stoi(k), std::stod(mean)});
  }
  return curves;
}

constexpr const char* kNoTable = "SHARDLINE_MEASUREMENTS names no folder with acceptance_lengths.csv";

TEST(Acceptance, P28AllPublishedCurvesAreReproduced) {
  auto curves = published_curves();
  if (curves.empty()) GTEST_SKIP() << kNoTable;
  std::vector<double> off;
  for (const PublishedAcceptance& curve : load_published_acceptance(kPublished)) {
    const std::string key = curve.source.substr(curve.source.rfind(' ') + 1) + " " + curve.thinking;
    ASSERT_TRUE(curves.contains(key)) << key;
    expect_shipped(curve, curves[key]);
    for (const auto& point : curves[key]) {
      EXPECT_EQ(curve.curve().at(point.k).mean, point.mean) << curve.name() << " " << point.k;
    }
    for (const auto& point : curves[key])
      off.push_back(std::abs(mean_accepted(curve.form, point.k) / point.mean - 1));
    curves.erase(key);
  }
  EXPECT_TRUE(curves.empty());
  ASSERT_EQ(off.size(), 112u);
  std::sort(off.begin(), off.end());
  std::printf("median %.2f %%, largest %.2f %%\n", 100 * off[56], 100 * off.back());
  EXPECT_LE(off[56], 0.026);
  EXPECT_LE(off.back(), 0.07);
}

// Residuals in order: the (n + 1) 5 %-th, rounded down, and the (n + 1) 95 %-th, rounded up [calibrate F5].
ErrorBand band_of(std::vector<double> off) {
  std::sort(off.begin(), off.end());
  const double n = static_cast<double>(off.size() + 1);
  const auto low = static_cast<std::size_t>(std::max(1.0, std::floor(0.05 * n)));
  const auto high = static_cast<std::size_t>(std::min(n - 1, std::ceil(0.95 * n)));
  return {off[low - 1], off[high - 1]};
}

void expect_band(const ErrorBand& stated, const ErrorBand& found, const std::string& what) {
  constexpr double kStated = 0.0015;  // to three digits
  EXPECT_NEAR(stated.low, found.low, kStated) << what;
  EXPECT_NEAR(stated.high, found.high, kStated) << what;
}

// Each k of each curve is left out, or all from some k on, and the others' curve is asked for it.
TEST(Acceptance, P28BandsAreThoseOfPublishedCurves) {
  const auto curves = published_curves();
  if (curves.empty()) GTEST_SKIP() << kNoTable;
  ASSERT_EQ(curves.size(), 14u);
  std::vector<double> form, between;
  std::map<int, std::vector<double>> beyond;
  for (const auto& [name, points] : curves) {
    const AcceptanceForm fitted = fit_acceptance(points);
    for (const auto& p : points) form.push_back(std::log(p.mean / mean_accepted(fitted, p.k)));
    for (std::size_t i = 1; i + 1 < points.size(); ++i) {
      std::vector<MeasuredAcceptance> others = points;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      between.push_back(std::log(points[i].mean / AcceptanceCurve(others).at(points[i].k).mean));
    }
    for (std::size_t told = 2; told < points.size(); ++told) {
      const AcceptanceCurve first({points.begin(), points.begin() + static_cast<std::ptrdiff_t>(told)});
      for (std::size_t i = told; i < points.size(); ++i)
        beyond[static_cast<int>(i - told) + 1].push_back(
            std::log(points[i].mean / first.at(points[i].k).mean));
    }
  }
  expect_band(AcceptanceCurve(AcceptanceForm{0.8, 0.9}).at(3).band, band_of(form), "form");
  const AcceptanceCurve table({{1, 1.8}, {3, 2.9}});
  expect_band(table.at(2).band, band_of(between), "between");
  for (const auto& [drafts, off] : beyond)
    expect_band(table.at(3 + drafts).band, band_of(off), std::to_string(drafts) + " beyond");
}

}  // namespace
}  // namespace shardline
