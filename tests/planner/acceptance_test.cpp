// Accepted lengths of drafts: the form, fits of published curves, a user's table, steps of an answer [P28].
#include "planner/serving/acceptance.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "tests/support/files.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

std::vector<MeasuredAcceptance> points_of(const std::vector<double>& means) {
  std::vector<MeasuredAcceptance> out;
  for (std::size_t i = 0; i < means.size(); ++i) out.push_back({static_cast<int>(i) + 1, means[i]});
  return out;
}

std::string error_of(const std::string& file, const std::string& text) {
  try {
    parse_acceptance(file, text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Acceptance, P28FormIsTheSumOfItsProducts) {
  EXPECT_EQ(mean_accepted({0.5, 1}, 0), 1);
  EXPECT_DOUBLE_EQ(mean_accepted({0.5, 1}, 3), 1 + 0.5 + 0.25 + 0.125);
  EXPECT_DOUBLE_EQ(mean_accepted({0.8, 0.5}, 3), 1 + 0.8 + 0.8 * 0.4 + 0.8 * 0.4 * 0.2);
  EXPECT_EQ(mean_accepted({1, 1}, 5), 6);
  std::mt19937_64 rng(7);
  std::uniform_real_distribution<double> part(0.001, 1);
  for (int i = 0; i < 200; ++i) {
    const AcceptanceForm form{part(rng), part(rng)};
    double before = 1;
    for (int k = 1; k <= kMostDrafts; ++k) {
      const double mean = mean_accepted(form, k);
      EXPECT_GE(mean, before);
      EXPECT_LE(mean, 1 + k);
      EXPECT_LE(mean - before, std::pow(form.p, k) + 1e-12);  // no later draft is surer than an earlier one
      before = mean;
    }
  }
}

TEST(Acceptance, P28AFitFindsTheParametersOfACurve) {
  for (const AcceptanceForm form :
       {AcceptanceForm{0.83, 0.95}, {0.95, 0.7}, {0.3, 0.4}, {1, 0.9}, {0.6, 1}}) {
    std::vector<double> means;
    for (int k = 1; k <= 8; ++k) means.push_back(mean_accepted(form, k));
    const AcceptanceForm fitted = fit_acceptance(points_of(means));
    EXPECT_NEAR(fitted.p, form.p, 1e-6);
    EXPECT_NEAR(fitted.g, form.g, 1e-6);
  }
  // Drafts that grow surer have no such form: the nearest has g = 1 and errs on both sides.
  const auto surer = points_of({1.5, 1.95, 2.35});
  const AcceptanceForm fitted = fit_acceptance(surer);
  EXPECT_NEAR(fitted.g, 1, 1e-9);
  EXPECT_GT(mean_accepted(fitted, 1), 1.5);
  EXPECT_LT(mean_accepted(fitted, 3), 2.35);
}

TEST(Acceptance, P28OnlyAGivenMeanHasNoBand) {
  const AcceptanceCurve table({{2, 2.4}, {4, 3.2}}), form(AcceptanceForm{0.8, 0.9});
  for (const int k : {0, 2, 4}) EXPECT_EQ(table.at(k).band.low, table.at(k).band.high) << k;
  double before = 0;
  for (const int k : {3, 1, 5, 6, 8, 10, 20}) {
    const ErrorBand band = table.at(k).band;
    EXPECT_LT(band.low, 0) << k;
    EXPECT_GT(band.high, 0) << k;
    EXPECT_GT(band.high - band.low, k == 1 || k == 3 || k == 5 ? 0.06 : before) << k;
    before = band.high - band.low;
  }
  EXPECT_EQ(form.at(0).band.low, 0);
  for (int k = 2; k <= 64; ++k) {  // never surer of more
    EXPECT_LE(form.at(k).band.low, form.at(k - 1).band.low) << k;
    EXPECT_GE(form.at(k).band.high, form.at(k - 1).band.high) << k;
  }
}

TEST(Acceptance, P28ATableIsUsedExactlyAndTheFormBetween) {
  const AcceptanceCurve curve =
      parse_acceptance("a.yaml",
                       "table:\n  - {drafts: 5, mean: 3.61}\n  - {drafts: 1, mean: 1.84}\n"
                       "  - {drafts: 3, mean: 3.01}\n");
  EXPECT_EQ(curve.at(0).mean, 1);
  for (const auto& [k, mean] : {std::pair(1, 1.84), {3, 3.01}, {5, 3.61}}) {
    EXPECT_EQ(curve.at(k).mean, mean);
    EXPECT_EQ(curve.at(k).basis, AcceptanceBasis::given);
  }
  EXPECT_EQ(curve.at(2).basis, AcceptanceBasis::interpolated);
  EXPECT_EQ(curve.at(6).basis, AcceptanceBasis::extrapolated);
  // What the curve was measured to be at the k left out: 2.51, 3.36.
  EXPECT_NEAR(curve.at(2).mean, 2.51, 0.01 * 2.51);
  EXPECT_NEAR(curve.at(4).mean, 3.36, 0.01 * 3.36);
  for (int k = 1; k <= kMostDrafts; ++k) {
    const AcceptedLength length = curve.at(k);
    EXPECT_GE(length.mean, curve.at(k - 1).mean) << k;
    double sum = 1, before = 1;
    for (const double s : length.survival) {
      EXPECT_LE(s, before);
      sum += before = s;
    }
    EXPECT_NEAR(sum, length.mean, 1e-9) << k;
  }
  EXPECT_TRUE(curve.falls().empty());
  // One that falls is used as it stands, and says where.
  const AcceptanceCurve falling = parse_acceptance("a.csv", "drafts,mean\n5,3.61\n6,3.77\n7,3.73\n8,3.47\n");
  EXPECT_EQ(falling.falls(), (std::vector<int>{7, 8}));
  EXPECT_EQ(falling.at(8).mean, 3.47);
  EXPECT_LT(falling.at(8).mean, falling.at(6).mean);
  // The user's form in place of the fitted one, and without a table.
  EXPECT_EQ(parse_acceptance("a.yaml", "p: 0.8\ng: 0.9\n").at(3).mean, mean_accepted({0.8, 0.9}, 3));
  EXPECT_EQ(parse_acceptance("a.yaml", "p: 0.8\ng: 0.9\n").at(3).basis, AcceptanceBasis::form);
  const AcceptanceCurve both =
      parse_acceptance("a.yaml", "p: 0.8\ng: 0.9\ntable: [{drafts: 3, mean: 2.5}]\n");
  EXPECT_EQ(both.at(3).mean, 2.5);
  EXPECT_NEAR(both.at(4).mean, mean_accepted({0.8, 0.9}, 4) * 2.5 / mean_accepted({0.8, 0.9}, 3), 1e-12);
}

TEST(Acceptance, P28OneMeanSaysNothingOfOtherK) {
  const AcceptanceCurve one = parse_acceptance("a.yaml", "table:\n  - {drafts: 3, mean: 2.5}\n");
  EXPECT_EQ(one.at(3).mean, 2.5);
  EXPECT_EQ(one.usual(), std::vector<int>{3});  // sweeps try these, and what yields are told of
  EXPECT_EQ(parse_acceptance("a.yaml", "p: 0.8\ng: 0.9\n").usual(),
            (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_NEAR(1 + one.at(3).survival[0] + one.at(3).survival[1] + one.at(3).survival[2], 2.5, 1e-9);
  try {
    one.at(2);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("a.yaml:2:5: acceptance: a mean of 3 drafts alone says nothing of 2"));
    EXPECT_THAT(e.what(), HasSubstr("expected a second k in the table, or p and g"));
  }
  // Every draft certain, none accepted: the ends of what may be.
  for (const double mean : {1.0, 4.0}) {
    const AcceptanceCurve end(std::vector<MeasuredAcceptance>{{3, mean}});
    EXPECT_NEAR(end.at(3).survival[2], mean == 4 ? 1 : 0, 1e-9);
  }
}

TEST(Acceptance, P28FaultsHaveTheirPlaceAndWhatWasExpected) {
  struct Case {
    const char *file, *text, *place, *expected;
  };
  for (const Case& c : {
           Case{"a.yaml", "p: 1.5\ng: 0.9\n", "a.yaml:1:4: p", "1"},
           Case{"a.yaml", "p: 0\ng: 0.9\n", "a.yaml:1:4: p", "1"},
           Case{"a.yaml", "p: 0.9\ng: 1.1\n", "a.yaml:2:4: g: 1.1 would make every draft more probable",
                "at most 1; what your drafts do beyond that, a table says"},
           Case{"a.yaml", "p: 0.9\n", "a.yaml:1:1", "g"},
           Case{"a.yaml", "p: high\ng: 0.9\n", "a.yaml:1:4: p", "a number"},
           Case{"a.yaml", "[1]\n", "a.yaml:1:1", "a mapping"},
           Case{"a.yaml", "table: 3\n", "a.yaml:1:8: table", "a sequence"},
           Case{"a.yaml", "table: []\n", "a.yaml:1:8: table is empty", "rows of drafts and mean"},
           Case{"a.yaml", "table: [{drafts: 0, mean: 1}]\n", "a.yaml:1:18: table[0].drafts",
                "expected 1 to 64"},
           Case{"a.yaml", "table: [{drafts: 2, mean: 3.1}]\n", "a.yaml:1:27: table[0].mean",
                "a step with 2 drafts yields from 1 to 3 tokens, not 3.1"},
           Case{"a.yaml", "table: [{drafts: 2, mean: 0.9}]\n", "a.yaml:1:27: table[0].mean", "from 1 to 3"},
           Case{"a.yaml", "table: [{drafts: 2, mean: 2}, {drafts: 2, mean: 2}]\n",
                "a.yaml:1:40: table[1].drafts", "2 drafts are given twice"},
           Case{"a.yaml", "table: [{drafts: 2, men: 2}]\n", "table[0].men", "did you mean mean?"},
           Case{"a.yaml", "tabel: [{drafts: 2, mean: 2}]\n", "a.yaml:1:1: unknown key tabel", "table"},
           Case{"a.csv", "", "a.csv:1:1: unknown columns", "expected the header drafts,mean"},
           Case{"a.csv", "k,mean\n1,1.8\n", "a.csv:1:1: unknown columns", "expected the header drafts,mean"},
           Case{"a.csv", "drafts,mean\n", "a.csv:1:1: no row", "drafts and mean"},
           Case{"a.csv", "drafts,mean\n1,1.8,2\n", "a.csv:2:1: 3 cells", "expected two"},
           Case{"a.csv", "drafts,mean\n1.5,1.8\n", "a.csv:2:1: drafts: found 1.5", "integer from 1 to 64"},
           Case{"a.csv", "drafts,mean\n1,nan\n", "a.csv:2:3: mean: found nan", "expected a number"},
           Case{"a.csv", "drafts,mean\n1, 2.5\n", "a.csv:2:4: a step with 1 drafts", "from 1 to 2 tokens"},
           Case{"a.csv", "drafts,mean\n1,1.5\n1,1.6\n", "a.csv:3:1: 1 drafts are given twice", ""},
       }) {
    const std::string error = error_of(c.file, c.text);
    EXPECT_THAT(error, HasSubstr(c.place)) << c.text;
    EXPECT_THAT(error, HasSubstr(c.expected)) << c.text;
  }
  // Every fault, not only the first.
  const std::string both = error_of("a.csv", "drafts,mean\nx,1.8\n2,y\n");
  EXPECT_THAT(both, HasSubstr("a.csv:2:1"));
  EXPECT_THAT(both, HasSubstr("a.csv:3:3"));
  EXPECT_THROW(load_acceptance("/nonexistent/a.csv"), UserError);
  EXPECT_EQ(error_of("a.csv", "drafts,mean\n1,1.5\n1,1.5\n1,1.5\n"),
            "a.csv:3:1: 1 drafts are given twice\n  1,1.5\n  ^\n"
            "a.csv:4:1: 1 drafts are given twice\n  1,1.5\n  ^\n");
  EXPECT_THROW(load_acceptance("/nonexistent/a.yaml"), UserError);
}

// A step accepts as long as no draft is refused, and an answer ends in the midst of one.
double simulated_steps(const AcceptedLength& length, long long n, int answers, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> part(0, 1);
  long long steps = 0;
  for (int i = 0; i < answers; ++i) {
    for (long long made = 0; made < n; ++steps) {
      const double u = part(rng);  // the first j drafts are accepted with survival[j - 1]
      ++made;
      for (const double s : length.survival) made += u < s ? 1 : 0;
    }
  }
  return static_cast<double>(steps) / answers;
}

// A device without an end, a table of any length, and one whose every row is wrong.
TEST(Acceptance, P28FilesAreReadWithinBounds) {
  const std::filesystem::path endless =
      std::filesystem::temp_directory_path() / fmt::format("shardline_acceptance_{}.csv", ::getpid());
  std::filesystem::remove(endless);
  std::filesystem::create_symlink("/dev/zero", endless);
  try {
    load_acceptance(endless);
    ADD_FAILURE() << "read a device without an end";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr("more than 1 MiB"));
  }
  std::filesystem::remove(endless);
  std::string rows = "drafts,mean\n";
  for (int i = 0; i < 200'000; ++i) rows += "0,1\n";
  try {
    parse_acceptance("a.csv", rows);
    ADD_FAILURE() << "accepted no drafts";
  } catch (const UserError& e) {
    EXPECT_LE(e.diagnostics().size(), 200u);
  }
}

TEST(Acceptance, P28StepsOfAnAnswerAreThoseOfASimulation) {
  constexpr int kAnswers = 20'000;
  for (const AcceptanceForm form : {AcceptanceForm{0.86, 0.91}, {0.5, 1}, {0.95, 0.73}}) {
    for (const int k : {1, 3, 8}) {
      const AcceptedLength length = AcceptanceCurve(form).at(k);
      for (const long long n : {1, 2, 5, 17, 100}) {
        SCOPED_TRACE(::testing::Message()
                     << form.p << " " << form.g << " k " << k << " n " << n << " seed 5");
        const double exact = steps_of_answer(length, n);
        // Steps of one answer spread by less than sqrt(n); four standard errors.
        EXPECT_NEAR(simulated_steps(length, n, kAnswers, 5), exact,
                    4 * std::sqrt(static_cast<double>(n) / kAnswers));
        EXPECT_GE(exact, static_cast<double>(n) / length.mean - 1e-9);
        EXPECT_LE(exact, static_cast<double>(n + k) / length.mean + 1e-9);
        const double closed = steps_of_long_answer(length, static_cast<double>(n));
        EXPECT_LE(std::abs(closed - exact), k / length.mean);
        // One draft accepted with 0.95 is the slowest of these: what is left falls as (-0.95)^n.
        if (n == 100) {
          EXPECT_NEAR(closed, exact, std::pow(0.95, 100));
        }
      }
    }
  }
}

TEST(Acceptance, P28StepsOfAnAnswerAtTheEndsOfWhatMayBe) {
  const AcceptedLength none = AcceptanceCurve(AcceptanceForm{0.5, 0.5}).at(0);
  EXPECT_EQ(steps_of_answer(none, 0), 0);
  EXPECT_EQ(steps_of_answer(none, 57), 57);
  EXPECT_EQ(steps_of_long_answer(none, 57), 57);
  // All drafts certain: whole steps of 1 + k, so the closed form is right in the mean of n alone.
  const AcceptedLength all = AcceptanceCurve(AcceptanceForm{1, 1}).at(3);
  double sum = 0;
  for (int n = 1; n <= 4; ++n) {
    EXPECT_EQ(steps_of_answer(all, n), 1);
    EXPECT_EQ(steps_of_answer(all, 40 + n), 11);
    sum += steps_of_answer(all, 40 + n) - steps_of_long_answer(all, 40 + n);
  }
  EXPECT_NEAR(sum, 0, 1e-12);
  // One token takes one step, whatever is accepted behind it.
  EXPECT_EQ(steps_of_answer(AcceptanceCurve(AcceptanceForm{0.9, 0.9}).at(5), 1), 1);
}

}  // namespace
}  // namespace shardline
