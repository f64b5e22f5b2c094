// A trace is read first for its length and faults, then as it is played: what another program makes of it in
// between is refused, whatever is played.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "planner/studies/deployment.hpp"
#include "planner/studies/deployment_jobs.hpp"
#include "planner/studies/sized_trace.hpp"
#include "sim/base/error.hpp"
#include "tests/planner/serve/served_line.hpp"

namespace shardline {
namespace {

using ::testing::HasSubstr;

const std::string kHeader = "arrival_s,input_tokens,output_tokens\n";
const std::string kRows = "0,100,10\n1,200,20\n2,300,30\n";

class ChangedTrace : public ::testing::Test {
 protected:
  void SetUp() override { write(kHeader + kRows); }
  void TearDown() override { std::filesystem::remove(trace_); }
  void write(const std::string& text) const { std::ofstream(trace_) << text; }

  ServiceQuestion asked() const {
    ServiceQuestion q = question(study_);
    q.rate = 0;
    q.requests = 0;
    q.trace = trace_.string();
    return q;
  }

  // What is said where the trace is `text` when it is played; "" if it is played as if it were the same.
  std::string played(const ServiceQuestion& q, const std::string& text) const {
    write(kHeader + kRows);
    RequestService service(study_, q, [](std::uint64_t, std::uint64_t) {});
    text.empty() ? std::filesystem::resize_file(trace_, 0) : write(text);
    try {
      service.answer();
    } catch (const TraceChanged& e) {
      return e.what();
    }
    return "";
  }

  const Study study_ = study_of_line();
  const std::filesystem::path trace_ =
      std::filesystem::temp_directory_path() / ("shardline_changed_" + std::to_string(::getpid()) + ".csv");
};

// Its times would be divided by a pace, which makes no other time of 0 s: the play would be of a burst and
// its answer named the rate.
TEST_F(ChangedTrace, OfOneMomentHasNoRate) {
  write(kHeader + "0,100,10\n0,200,20\n");
  ServiceQuestion q = asked();
  const auto none = [](std::uint64_t, std::uint64_t) {};
  EXPECT_EQ(RequestService(study_, q, none).answer().load.answered, 2U);
  q.rate = 3;
  try {
    RequestService(study_, q, none);
    ADD_FAILURE() << "a burst was taken for 3 requests/s";
  } catch (const UserError& e) {
    EXPECT_THAT(e.what(), HasSubstr(": all its requests come at 0 s: no pace gives it 3 requests/s"));
  }
}

TEST_F(ChangedTrace, ThatCannotBeOpenedSaysWhy) {
  const auto none = [](std::uint64_t, std::uint64_t) {};
  const std::string loop = trace_.string() + ".loop";
  std::filesystem::create_symlink(loop, loop);
  for (const auto& [file, why] : {std::pair(loop, "Too many levels of symbolic links"),
                                  std::pair(trace_.string() + ".none", "no such file")}) {
    try {
      size_of(file, 0, none);
      ADD_FAILURE() << file;
    } catch (const UserError& e) {
      EXPECT_EQ(e.what(), "cannot read " + file + ": " + why + "\n");
    }
  }
  std::filesystem::remove(loop);
}

TEST_F(ChangedTrace, IsRefusedInThePlay) {
  const ServiceQuestion q = asked();
  EXPECT_EQ(played(q, kHeader + kRows), "");
  const std::string changed =
      trace_.string() + ": another program changed it while it was played: 3 requests at first, ";
  EXPECT_EQ(played(q, kHeader + "0,100,10\n1,200,20\n"), changed + "now 2\n");
  EXPECT_EQ(played(q, kHeader + kRows + "3,100,10\n"), changed + "now more\n");
  EXPECT_EQ(played(q, kHeader + kRows + "2,100,10\n"), changed + "now more\n");
  EXPECT_EQ(played(q, kHeader + "0,100,10\n1,200,20\n2,300,29\n"), changed + "now others\n");
  EXPECT_EQ(played(q, kHeader + "0,100,10\n1,200,20\n2,300,90\n"), changed + "now others\n");
  EXPECT_EQ(played(q, kHeader + "0,100,10\n1.5,200,20\n2,300,30\n"), changed + "now others\n");
  EXPECT_THAT(played(q, kHeader + "0,100,10\n1,2"), HasSubstr(changed + trace_.string() + ":3:"));
  EXPECT_THAT(played(q, ""), HasSubstr(changed + trace_.string()));
}

TEST_F(ChangedTrace, OfOneThatIsGoneItIsSaid) {
  RequestService service(study_, asked(), [](std::uint64_t, std::uint64_t) {});
  std::filesystem::remove(trace_);
  EXPECT_THROW(service.answer(), TraceChanged);
}

// What comes after the requests that are played may change: a log that grows can be asked of.
TEST_F(ChangedTrace, OnlyWhatIsPlayedMatters) {
  ServiceQuestion q = asked();
  q.requests = 2;
  EXPECT_EQ(played(q, kHeader + "0,100,10\n1,200,20\n2,300,29\n"), "");
  EXPECT_THAT(played(q, kHeader + "0,100,10\n1,200,21\n2,300,30\n"), HasSubstr("now others"));
  EXPECT_THAT(played(q, kHeader + "0,100,10\n"), HasSubstr("now 1"));
}

TEST_F(ChangedTrace, OfPoolsThatPrefillAndDecode) {
  ServiceQuestion q = asked();
  q.plan = possible_plan(study_, "tensor:tpa=1,tpf=1");
  q.prefill.emplace();
  q.prefill->plan = q.plan;
  EXPECT_EQ(played(q, kHeader + kRows), "");
  EXPECT_THAT(played(q, kHeader + "0,100,10\n1,200,20\n"), HasSubstr("now 2"));
  EXPECT_THAT(played(q, kHeader + "0,100,10\n1,200,20\n2,300,29\n"), HasSubstr("now others"));
}

// Each plan reads it again, and one that finds another is not one that has no such setting.
TEST_F(ChangedTrace, OfDeployments) {
  DeploymentQuestion q;
  q.load.trace = trace_.string();
  q.load.targets = parse_targets("--slo", "ttft p90 2 s");
  q.most_gpus = 2;
  q.knobs = {{}};
  q.threads = 1;
  DeploymentJobs jobs(study_, q);
  ASSERT_GE(jobs.servers().size(), 2U);
  EXPECT_EQ(jobs.requests(), 3U);
  EXPECT_EQ(jobs.settings(0).size(), 1U);
  write(kHeader + "0,100,10\n1,200,20\n2,300,29\n");
  EXPECT_THROW(jobs.settings(1), TraceChanged);
  EXPECT_THROW(jobs.tried({DeploymentJob::What::whole, 0, 2, 0}), TraceChanged);
}

}  // namespace
}  // namespace shardline
