// What profiles keep of measured serving for reports, and errors by layout [F10].
#include "calibrate/validate/served_tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/engines/profile.hpp"
#include "planner/scenario/shipped.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

// Profiles carry both, and name the versions that their hosts were measured on.
TEST(ServedFit, F10ProfilesSayWhatWasMeasured) {
  for (const char* name : {"vllm", "sglang", "trtllm"}) {
    SCOPED_TRACE(name);
    const auto folder = shipped_catalogs().engines;
    const ServedDetails details = load_served_details(folder / (std::string(name) + ".yaml"));
    const EngineProfile p = load_engine(name, "", folder);
    ASSERT_EQ(details.ttft_covered.size(), p.error.ttft_by_users.size() + 1);
    for (std::size_t i = 0; i < p.error.ttft_by_users.size(); ++i)
      EXPECT_EQ(details.ttft_covered[i].rows, p.error.ttft_by_users[i].measured.rows);
    ASSERT_FALSE(details.tpot_covered.empty());
    EXPECT_EQ(details.tpot_covered.back().of, "TPOT of all models, any users");
    EXPECT_EQ(details.tpot_covered.back().rows, p.error.rows);
    EXPECT_NEAR(details.tpot_covered.back().covered, p.error.covered, 1e-9);
    EXPECT_THAT(p.assumes, ::testing::Contains(HasSubstr("host measured on ")));
    int versions = 0;
    for (const MeasuredVersion& v : details.versions) versions += v.rows;
    EXPECT_EQ(versions, p.error.rows);
    ASSERT_EQ(details.other_host.size(), 1u);
    EXPECT_EQ(details.other_host.front().rows, p.error.rows);
    // Each band names its models, and they are models of the tables.
    for (const TtftBand& b : p.error.ttft_by_users) {
      EXPECT_FALSE(b.models.empty());
      for (const std::string& model : b.models)
        EXPECT_TRUE(std::any_of(p.error.tables.begin(), p.error.tables.end(), [&](const ServedError& e) {
          return e.of.starts_with("TPOT of " + model + " on ");
        })) << model;
    }
  }
}

// Of rows laid out alike; of one model where there are enough.
TEST(ServedFit, ErrorsByLayout) {
  std::vector<TimedRow> rows(8);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].row.system = "h200-hgx";
    rows[i].row.plan = i < 6   ? "tensor:tpa=8,tpf=8,batch=1"
                       : i < 7 ? "dp_ep:dp=8,ep=8,batch=1"
                               : "pipeline:pp=2,tpa=4,tpf=4,in_flight=2,batch=1";
  }
  std::vector<LeftOutModel> models(2);
  models[0].label = "a", models[1].label = "b";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    LeftOutModel& m = models[i < 5 ? 0 : 1];
    m.rows.push_back(&rows[i]);
    m.tpot.push_back(i < 5 ? 0.9 : 1.3);
  }
  const std::vector<ServedError> errors = errors_by_layout(models);
  ASSERT_EQ(errors.size(), 4u);
  EXPECT_EQ(errors[0].of, "TPOT with TP 8");
  EXPECT_EQ(errors[0].rows, 6);
  EXPECT_NEAR(errors[0].bias, -0.1, 1e-12);
  EXPECT_EQ(errors[1].of, "TPOT with attention DP 8");
  EXPECT_EQ(errors[2].of, "TPOT with PP 2 x TP 4");
  EXPECT_EQ(errors[3].of, "TPOT of a on h200-hgx, TP 8") << "b has one row of it";
  EXPECT_EQ(errors[3].rows, 5);
}

}  // namespace
}  // namespace shardline
