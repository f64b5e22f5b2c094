// calibrate/validate/served_*: an engine's numbers from measured serving [F10].
#include "calibrate/validate/served_fit.hpp"
#include "calibrate/validate/served_tables.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/scenario/shipped.hpp"
#include "tests/planner/served_rows.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// What an engine with known host times serves: its numbers come back, also with models left out.
TEST(ServedFit, FindsTheNumbersThatMadeTheRows) {
  EngineProfile engine = load_engine("vllm", "", shipped_catalogs().engines);
  std::string text = kServedHeader;
  for (const char* model : {"meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B"}) {
    for (const int tp : {2, 4, 8}) {
      for (const int users : {1, 2, 4, 16, 64}) text += served_row(model, users, tp, 1, 1);
    }
  }
  std::vector<TimedRow> rows = time_rows(parse_served_rows("x.csv", text).rows, engine, shipped_catalogs());
  ASSERT_EQ(rows.size(), 30u);
  engine.host = {Seconds(4e-4), Seconds(2e-5), Seconds(0), Seconds(0.03)};
  for (TimedRow& r : rows) {
    const Served s = steady_serving(engine, r.load, with_host(r, engine));
    r.row.tpot = s.tpot.value;
    r.row.ttft = s.ttft.value;
  }
  const ServedFit fit = fit_engine(rows);
  EXPECT_NEAR(fit.host.step.value, 4e-4, 4e-6);
  EXPECT_NEAR(fit.host.request.value, 2e-5, 4e-7);
  EXPECT_EQ(fit.host.prompt_token, Seconds(0));
  EXPECT_NEAR(fit.host.path.value, 0.03, 3e-4);
  ASSERT_EQ(fit.models.size(), 2u);
  for (const LeftOutModel& m : fit.models) EXPECT_LT(served_error("", m.tpot).p90, 0.02) << m.label;
  // Of all users, though only few are fitted to; lengths were equal.
  EXPECT_EQ(fit.bands.equal.rows, 30);
  EXPECT_EQ(fit.bands.drawn.rows, 0);
  EXPECT_LT(fit.bands.equal.band.high, 0.05);
  // By users; of a few of them whatever the lengths, of others nothing that was not measured.
  EXPECT_EQ(fit.bands.ttft(true, 1).rows, 18);
  EXPECT_EQ(fit.bands.ttft(false, 4).rows, 18);
  EXPECT_EQ(fit.bands.ttft(true, 16).rows, 6);
  EXPECT_EQ(fit.bands.ttft(false, 16).rows, 0);
  EXPECT_EQ(fit.bands.ttft(true, 65).rows, 0);
}

// Three models under an engine with known host times.
std::vector<TimedRow> three_models() {
  EngineProfile engine = load_engine("vllm", "", shipped_catalogs().engines);
  std::string text = kServedHeader;
  for (const char* model :
       {"meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B-Instruct"}) {
    for (const int tp : {4, 8}) {
      for (const int users : {1, 4, 16, 32}) text += served_row(model, users, tp, 1, 1);
    }
  }
  std::vector<TimedRow> rows = time_rows(parse_served_rows("x.csv", text).rows, engine, shipped_catalogs());
  engine.host = {Seconds(4e-4), Seconds(2e-5), Seconds(0), Seconds(0.03)};
  for (TimedRow& r : rows) {
    const Served s = steady_serving(engine, r.load, with_host(r, engine));
    r.row.tpot = s.tpot.value;
    r.row.ttft = s.ttft.value;
  }
  return rows;
}

// Nothing of a model left out is in its prediction.
TEST(ServedFit, F10NothingOfAModelLeftOutIsInItsPrediction) {
  const std::vector<TimedRow> own = three_models();
  const ServedFit before = fit_engine(own);
  ASSERT_EQ(before.models.size(), 3u);
  for (const LeftOutModel& left : before.models) {
    std::vector<TimedRow> changed = own;
    for (TimedRow& r : changed) {
      if (r.row.label == left.label) r.row.tpot *= 1 + 0.02 * r.load.users, r.row.ttft *= 3;
    }
    const ServedFit after = fit_engine(changed);
    for (const LeftOutModel& m : after.models) {
      if (m.label != left.label) continue;
      EXPECT_EQ(m.host.step, left.host.step);
      EXPECT_EQ(m.host.request, left.host.request);
      EXPECT_EQ(m.host.path, left.host.path);
      for (std::size_t i = 0; i < m.rows.size(); ++i)
        EXPECT_NEAR(m.tpot[i] * m.rows[i]->row.tpot / (left.tpot[i] * left.rows[i]->row.tpot), 1, 1e-12);
    }
  }
}

// How many TTFT lie inside the band that the other models make, counted from the ratios themselves.
TEST(ServedFit, F10CoverageOfTtftIsThatOfModelsLeftOut) {
  std::vector<TimedRow> rows = three_models();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].row.label.starts_with("qwen")) rows[i].row.ttft *= 2;
    rows[i].row.ttft *= 1 + 0.01 * static_cast<double>(i % 5);
  }
  const ServedFit fit = fit_engine(rows);
  ASSERT_EQ(fit.ttft_covered.size(), 4u);  // of three numbers of users, and of all
  const ServedCoverage& few = fit.ttft_covered.front();
  EXPECT_EQ(few.of, "TTFT (any lengths) of at most 4 users");
  EXPECT_EQ(few.rows, 12);
  EXPECT_EQ(few.models, 3);
  int inside = 0;
  for (const LeftOutModel& m : fit.models) {
    std::vector<double> others;
    for (const LeftOutModel& o : fit.models) {
      for (std::size_t i = 0; i < o.rows.size(); ++i) {
        if (o.label != m.label && o.rows[i]->row.users <= 4) others.push_back(-std::log(o.ttft[i]));
      }
    }
    // Of eight rows 5 and 95 % are the least and the most; of two models they are widened by a half.
    const auto [low, high] = std::minmax_element(others.begin(), others.end());
    const ErrorBand band = ErrorBand{*low, *high}.widened(1.5);
    for (std::size_t i = 0; i < m.rows.size(); ++i)
      inside += m.rows[i]->row.users <= 4 && band.contains(-std::log(m.ttft[i])) ? 1 : 0;
  }
  EXPECT_NEAR(few.covered, inside / 12.0, 1e-9);
  EXPECT_LT(few.covered, 1) << "one model of three is twice as long";
  EXPECT_EQ(few.counted, 12);
  // Of more users each of two other models has two rows, which make no band.
  for (std::size_t i = 1; i + 1 < fit.ttft_covered.size(); ++i) {
    EXPECT_EQ(fit.ttft_covered[i].rows, 6);
    EXPECT_EQ(fit.ttft_covered[i].counted, 0);
    EXPECT_LT(fit.ttft_covered[i].covered, 0);
  }
  EXPECT_EQ(fit.ttft_covered.back().rows, 12);
  EXPECT_NEAR(fit.ttft_covered.back().covered, few.covered, 1e-9);
}

// The same of TPOT, by model and users, counted from the ratios themselves: a band is of those of the other
// models' rows, half as wide again where they are two.
TEST(ServedFit, F10CoverageOfTpotIsByModelAndUsers) {
  std::vector<TimedRow> rows = three_models();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].row.label.starts_with("qwen") && rows[i].row.users > 4) rows[i].row.tpot *= 1.2;
    rows[i].row.tpot *= 1 + 0.01 * static_cast<double>(i % 7);
  }
  const ServedFit fit = fit_engine(rows);
  ASSERT_EQ(fit.models.size(), 3u);
  const auto of_class = [](double users, int which) {
    return which == 0 ? users <= 4 : which == 1 ? users == 16 : users == 32;
  };
  constexpr const char* kClasses[] = {"at most 4", "5 to 16", "17 to 64"};
  int all = 0, missed = 0;
  for (const LeftOutModel& m : fit.models) {
    for (int users = 0; users < 3; ++users) {
      std::vector<double> others;
      for (const LeftOutModel& o : fit.models) {
        for (std::size_t i = 0; o.label != m.label && i < o.rows.size(); ++i)
          others.push_back(-std::log(o.tpot[i]));
      }
      std::sort(others.begin(), others.end());
      const std::size_t beyond = std::max<std::size_t>(1, (others.size() + 1) / 20);  // the last one inside
      const ErrorBand band = ErrorBand{others[beyond - 1], others[others.size() - beyond]}.widened(1.5);
      int counted = 0, inside = 0;
      for (std::size_t i = 0; i < m.rows.size(); ++i) {
        if (!of_class(m.rows[i]->row.users, users)) continue;
        ++counted;
        inside += band.contains(-std::log(m.tpot[i])) ? 1 : 0;
      }
      const std::string of = fmt::format("TPOT of {}, {} users", m.label, kClasses[users]);
      const auto at = std::find_if(fit.tpot_covered.begin(), fit.tpot_covered.end(),
                                   [&](const ServedCoverage& c) { return c.of == of; });
      ASSERT_NE(at, fit.tpot_covered.end()) << of;
      EXPECT_EQ(at->rows, counted) << of;
      EXPECT_NEAR(at->covered, static_cast<double>(inside) / counted, 1e-9) << of;
      all += counted, missed += counted - inside;
    }
  }
  EXPECT_GT(missed, 0) << "one model is a fifth slower";
  EXPECT_NEAR(fit.bands.covered, 1 - static_cast<double>(missed) / all, 1e-9);
  EXPECT_EQ(fit.tpot_covered.back().rows, all);
  const ServedCoverage& shown = fit.tpot_covered[fit.tpot_covered.size() - 2];
  EXPECT_THAT(shown.of, ::testing::HasSubstr("as shown"));
  EXPECT_GE(shown.covered, fit.bands.covered) << "prices are joined to the bands";
}

// Rows of which some users' caches are taken away make no band of TTFT, whatever their TTFT is, and are
// listed by themselves; a band names the models that it is of.
TEST(ServedFit, F10CappedRowsMakeNoBandOfTtft) {
  std::vector<TimedRow> rows = three_models();
  const ServedFit before = fit_engine(rows);
  int capped = 0;
  for (TimedRow& r : rows) {
    if (r.row.users != 16 || r.row.label != "qwen3-32b") continue;
    r.preempts = true;
    r.row.ttft *= 9;
    ++capped;
  }
  ASSERT_EQ(capped, 2);
  const ServedFit after = fit_engine(rows);
  const TtftBand *had = before.bands.ttft_band(true, 16), *has = after.bands.ttft_band(true, 16);
  ASSERT_NE(had, nullptr);
  ASSERT_NE(has, nullptr);
  EXPECT_EQ(had->measured.rows, 6);
  EXPECT_EQ(has->measured.rows, 4);
  EXPECT_EQ(had->models.size(), 3u);
  EXPECT_THAT(has->models, ::testing::UnorderedElementsAre("llama-3.1-8b", "llama-3.1-70b"));
  EXPECT_LT(has->measured.band.high, 0.1) << "ln 9 is 2.2";
  const auto listed = std::find_if(after.bands.tables.begin(), after.bands.tables.end(),
                                   [](const ServedError& e) { return e.of == "TTFT of memory-capped rows"; });
  ASSERT_NE(listed, after.bands.tables.end());
  EXPECT_EQ(listed->rows, 2);
  EXPECT_LT(listed->bias, -0.85);
}

// The kind of host is the one of the rows' engines, no matter which one errs less: of rows made by the other
// one it stays, and what the other would err is said beside it.
TEST(ServedFit, F10TheKindOfHostIsNotChosenByRows) {
  std::vector<TimedRow> rows = three_models();
  const ServedFit own = fit_engine(rows);
  EXPECT_EQ(own.other_host.rows, 24);
  const auto all = [](const ServedFit& fit) {
    return *std::find_if(fit.bands.tables.begin(), fit.bands.tables.end(),
                         [](const ServedError& e) { return e.of == "TPOT of all rows"; });
  };
  EXPECT_LT(all(own).p90, 0.01);
  EXPECT_GT(own.other_host.p90, 0.01);
  EngineProfile waits = *rows.front().engine;
  waits.host_waited_for = true;
  waits.host = {Seconds(4e-3), Seconds(2e-5), Seconds(0), Seconds(0.03)};
  for (TimedRow& r : rows) {
    const Served s = steady_serving(waits, r.load, with_host(r, waits));
    r.row.tpot = s.tpot.value;
    r.row.ttft = s.ttft.value;
  }
  const ServedFit other = fit_engine(rows);
  EXPECT_LT(other.other_host.p90, 0.01);
  EXPECT_GT(all(other).p90, 2 * other.other_host.p90);
  EXPECT_GT(all(other).p90, 0.02);
}

// The times that the fit adds by hand are those of lowered steps.
TEST(ServedFit, AddsHostTimesAsLoweringDoes) {
  struct Started {
    std::string name, version;
  };
  for (const auto& [name, version] : {Started{"vllm", "0.24.0"}, Started{"vllm", "0.12.0"},
                                      Started{"sglang", "0.5.1"}, Started{"sglang", "0.5.8"}}) {
    SCOPED_TRACE(name + version);
    EngineProfile engine = load_engine(name, "", shipped_catalogs().engines);
    engine.host = {Seconds(4e-4), Seconds(2e-5), Seconds(3e-6), Seconds(0.03)};
    std::string text = kServedHeader;
    for (const int users : {1, 16}) text += served_row("meta-llama/Llama-3.1-8B-Instruct", users, 2, 1, 1);
    const std::string given = ",vllm,0.24.0,", wanted = "," + name + "," + version + ",";
    for (std::size_t at = text.find(given); at != std::string::npos; at = text.find(given, at + 1))
      text.replace(at, given.size(), wanted);
    for (const TimedRow& r : time_rows(parse_served_rows("x.csv", text).rows, engine, shipped_catalogs())) {
      const EngineProfile started = as_started(engine, r.row);
      Case c = parse_scenario(
                   "s",
                   fmt::format("name: s\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\ncontext: 1024 tokens\n"
                               "precision: {}\nengine: {}\nstrategies: [tensor]\ngpus: [1]\nbatch: [1]\n",
                               r.row.precision, name),
                   shipped_catalogs())
                   .studies[0]
                   .study;
      c.engine = std::make_shared<const EngineProfile>(started);
      c.system.host = {engine.host.step, engine.host.request, engine.host.prompt_token,
                       engine.launch_time(c.system.device)};
      ServedEvaluator evaluator(c, AllReduceRule::fastest);
      const ServedPlan lowered =
          evaluator.of(parse_plan(r.row.plan), {1024, 256, static_cast<long long>(r.row.users), true, 0});
      const ServedTimes by_hand = with_host(r, started);
      EXPECT_NEAR(lowered.times.decode.value, by_hand.decode.value, 1e-9) << r.row.users;
      EXPECT_NEAR(lowered.times.prompt.value, by_hand.prompt.value, 1e-9) << r.row.users;
      EXPECT_NEAR(lowered.times.prompt_added.value, by_hand.prompt_added.value, 1e-9) << r.row.users;
    }
  }
}

}  // namespace
}  // namespace shardline
