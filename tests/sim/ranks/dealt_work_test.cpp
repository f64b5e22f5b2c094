// Work that is dealt out to ranks [S19]: threads stand for processes.
#include "sim/ranks/dealt_work.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include "sim/base/error.hpp"
#include "tests/support/thread_ranks.hpp"

namespace shardline {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ThreadRanks;

constexpr auto kShort = 300ms;

std::vector<DealtJob> jobs_of(std::size_t count, std::size_t kept = 1) {
  std::vector<DealtJob> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back({std::to_string(i), i / kept, 0});
  return out;
}

// Takes 0 to 2 ms, the same for the same job.
std::string squared(std::string_view job) {
  const auto n = static_cast<std::uint64_t>(std::stoull(std::string(job)));
  std::this_thread::sleep_for(std::chrono::microseconds(n * 7919 % 2000));
  return std::to_string(n * n);
}

// As long as nobody ends it.
std::string endless(std::string_view) {
  while (true) {
    check_cancelled();
    std::this_thread::sleep_for(1ms);
  }
}

std::vector<std::string> dealt(WorkDealer& dealer, const std::vector<DealtJob>& jobs) {
  std::vector<std::string> out(jobs.size());
  dealer.deal(jobs, [&](std::size_t job, std::string_view result) {
    EXPECT_EQ(out[job], "") << "a job is taken once";
    out[job] = result;
    return true;
  });
  return out;
}

std::vector<std::string> squares(std::size_t count) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(std::to_string(i * i));
  return out;
}

TEST(DealtWork, S19ResultsAreThoseOfOneRank) {
  for (const std::size_t count : {1U, 2U, 5U}) {
    ThreadRanks ranks(count);
    ranks.start([](Ranks& r) { EXPECT_FALSE(work_for_rank_0(r, 2, "1", squared)); });
    WorkDealer dealer(ranks.end(0), 2, "1", squared);
    for (const std::size_t jobs : {0U, 1U, 3U, 300U}) EXPECT_EQ(dealt(dealer, jobs_of(jobs)), squares(jobs));
    const std::vector<std::uint64_t> by = dealer.done_by();
    EXPECT_EQ(std::accumulate(by.begin(), by.end(), std::uint64_t{0}), 304U);
    EXPECT_THAT(dealer.lost(), ElementsAre());
  }
}

// Rank 0 holds its first job until another rank has done one.
TEST(DealtWork, S19EveryRankDoesJobs) {
  ThreadRanks ranks(4);
  std::array<std::atomic<int>, 4> done{};
  const auto counting = [&](std::size_t rank) -> DoJob {
    return [&done, rank](std::string_view job) {
      const auto all = [&] {
        return std::all_of(done.begin() + 1, done.end(), [](const auto& n) { return n > 0; });
      };
      while (rank == 0 && !all()) {
        check_cancelled();
        std::this_thread::sleep_for(1ms);
      }
      ++done[rank];
      return squared(job);
    };
  };
  ranks.start([&](Ranks& r) { work_for_rank_0(r, 1, "1", counting(r.rank())); });
  WorkDealer dealer(ranks.end(0), 1, "1", counting(0));
  EXPECT_EQ(dealt(dealer, jobs_of(100)), squares(100));
}

// It falls silent in the middle of what it has; jobs that it took are done by the others.
TEST(DealtWork, S19WhatALostRankHadIsDoneByOthers) {
  ThreadRanks ranks(4);
  ranks.be_patient(kShort);
  std::atomic<int> begun = 0;
  ranks.start([&](Ranks& r) {
    work_for_rank_0(r, 1, "1", [&](std::string_view job) {
      if (r.rank() == 2 && ++begun == 5) ranks.mute(2);
      return squared(job);
    });
  });
  WorkDealer dealer(ranks.end(0), 1, "1", squared);
  EXPECT_EQ(dealt(dealer, jobs_of(400)), squares(400));
  EXPECT_EQ(dealt(dealer, jobs_of(40)), squares(40));
  EXPECT_THAT(dealer.lost(), Contains(2U));
}

// A machine that stood still: its late results are those that others have had since, and are taken once.
TEST(DealtWork, S19ARankThatWasOnlySlowChangesNothing) {
  ThreadRanks ranks(3);
  ranks.be_patient(kShort);
  std::atomic<int> begun = 0;
  ranks.start([&](Ranks& r) {
    work_for_rank_0(r, 1, "1", [&](std::string_view job) {
      if (r.rank() == 1 && ++begun == 3) ranks.mute(1);
      return squared(job);
    });
  });
  WorkDealer dealer(ranks.end(0), 1, "1", squared);
  EXPECT_EQ(dealt(dealer, jobs_of(300)), squares(300));
  ranks.mute(1, true);
  EXPECT_EQ(dealt(dealer, jobs_of(200)), squares(200));
  EXPECT_THAT(dealer.lost(), Contains(1U));
}

// Nobody but rank 0 is left.
TEST(DealtWork, S19Rank0AloneDoesTheRest) {
  ThreadRanks ranks(3);
  ranks.be_patient(kShort);
  for (const std::size_t r : {1U, 2U}) ranks.mute(r);
  ranks.start([](Ranks& r) { work_for_rank_0(r, 1, "1", squared); });
  WorkDealer dealer(ranks.end(0), 1, "1", squared);
  EXPECT_EQ(dealt(dealer, jobs_of(500)), squares(500));
  EXPECT_THAT(dealer.lost(), ElementsAre(1U, 2U));
}

TEST(DealtWork, S19WhatAJobThrowsIsThrown) {
  ThreadRanks ranks(3);
  const DoJob faulty = [](std::string_view job) -> std::string {
    if (job == "77") throw UserError("job 77 is wrong");
    return squared(job);
  };
  ranks.start([&](Ranks& r) { work_for_rank_0(r, 1, "1", faulty); });
  WorkDealer dealer(ranks.end(0), 1, "1", faulty);
  EXPECT_THAT([&] { dealt(dealer, jobs_of(100)); },
              ::testing::ThrowsMessage<UserError>(HasSubstr("job 77 is wrong")));
  // What follows knows nothing of the jobs that were under way.
  EXPECT_EQ(dealt(dealer, jobs_of(60)), squares(60));
}

// A rank whose machine has too little memory, for instance.
TEST(DealtWork, S19WhatFailsElsewhereIsDoneByRank0) {
  ThreadRanks ranks(3);
  ranks.start([](Ranks& r) {
    work_for_rank_0(r, 1, "1", [](std::string_view) -> std::string { throw std::bad_alloc(); });
  });
  WorkDealer dealer(ranks.end(0), 1, "1", squared);
  EXPECT_EQ(dealt(dealer, jobs_of(100)), squares(100));
  EXPECT_THAT(dealer.done_by(), ElementsAre(100U, 0U, 0U));
}

TEST(DealtWork, S19RanksOfAnotherVersionAreRefused) {
  ThreadRanks ranks(2);
  ranks.start([](Ranks& r) { work_for_rank_0(r, 1, "0.2", squared); });
  WorkDealer dealer(ranks.end(0), 1, "0.1", endless);
  EXPECT_THAT([&] { dealt(dealer, jobs_of(3)); },
              ::testing::ThrowsMessage<UserError>(
                  HasSubstr("rank 1 finds other plans, requests or prices than rank 0 (0.2, not 0.1)")));
}

TEST(DealtWork, S19CancelledWorkEndsAndSoDoTheOthers) {
  ThreadRanks ranks(3);
  std::atomic<bool> stop = false;
  const CancelQuestion question = [&] { return stop.load(); };
  ranks.start([&](Ranks& r) { work_for_rank_0(r, 1, "1", endless); });
  const CancelScope scope(&question);
  {
    WorkDealer dealer(ranks.end(0), 1, "1", endless);
    std::thread later([&] {
      std::this_thread::sleep_for(50ms);
      stop = true;
    });
    EXPECT_THROW(dealt(dealer, jobs_of(10)), Cancelled);
    later.join();
  }
  ranks.join();  // the others' jobs were ended, too
}

// Levels come in order: when the answer is known, what is left is of later ones, and is not done.
TEST(DealtWork, S19EndsOnceTheAnswerIsKnown) {
  for (const std::size_t count : {1U, 3U}) {
    ThreadRanks ranks(count);
    ranks.start([](Ranks& r) { work_for_rank_0(r, 1, "1", squared); });
    WorkDealer dealer(ranks.end(0), 1, "1", squared);
    std::vector<DealtJob> jobs = jobs_of(1000);
    for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i].level = i / 10;
    std::size_t of_level = 0, beyond = 0;
    dealer.deal(jobs, [&](std::size_t job, std::string_view) {
      (job < 50 ? of_level : beyond) += 1;
      return of_level < 50;
    });
    EXPECT_EQ(of_level, 50U);
    EXPECT_LT(beyond, 200U) << "near what was asked for";
    EXPECT_EQ(dealt(dealer, jobs_of(30)), squares(30)) << "and the next deal is as any";
  }
}

// Of a second deal most of what ranks have kept stays where it is.
TEST(DealtWork, S19JobsGoWhereWhatTheyNeedIsKept) {
  constexpr std::size_t kThings = 60, kDeals = 5;
  ThreadRanks ranks(3);
  std::mutex mutex;
  std::set<std::pair<std::size_t, std::string>> made;  // things by rank
  const auto work = [&](std::size_t rank) -> DoJob {
    return [&, rank](std::string_view job) {
      {
        const std::lock_guard lock(mutex);
        made.emplace(rank, job);
      }
      std::this_thread::sleep_for(1ms);
      return squared(job);
    };
  };
  ranks.start([&](Ranks& r) { work_for_rank_0(r, 1, "1", work(r.rank())); });
  WorkDealer dealer(ranks.end(0), 1, "1", work(0));
  for (std::size_t i = 0; i < kDeals; ++i) EXPECT_EQ(dealt(dealer, jobs_of(kThings)), squares(kThings));
  // Dealt blindly, each thing would end on nearly all ranks: 3 * 60 * (1 - (2/3)^5) = 156.
  const std::lock_guard lock(mutex);
  EXPECT_LT(made.size(), 140U);
}

}  // namespace
}  // namespace shardline
