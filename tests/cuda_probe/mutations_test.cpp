// Every way to break a schedule is found.
#include "cuda_probe/execute/cpu/mutations.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda_probe/execute/cpu/check.hpp"
#include "cuda_probe/execute/verify/verify_cases.hpp"
#include "planner/strategies/strategy.hpp"
#include "tests/cuda_probe/schedules.hpp"

namespace shardline {
namespace {

using testing::all_made;
using testing::Made;
using testing::MadeOfKinds;

constexpr int kTries = 6;

// The first such case of a strategy.
template <class Wanted>
void add_first(std::vector<MadeOfKinds>& all, const char* name, Wanted wanted) {
  for (const cli::VerifyCase& c : cli::verify_cases(strategy(name))) {
    if (!wanted(c)) continue;
    all.push_back({c.what, cli::verify_schedule(c), c.kinds});
    return;
  }
  ADD_FAILURE() << "no such case of " << name;
}

bool says(const cli::VerifyCase& c, const char* words) { return c.what.find(words) != std::string::npos; }
bool of_all_ranks(const cli::VerifyCase& c) { return c.charges == Charges::every_rank; }

std::vector<MadeOfKinds> all_of_kinds() {
  std::vector<MadeOfKinds> all;
  for (Made& made : all_made())
    all.push_back({made.name, std::move(made.schedule), {std::move(made.problem)}});
  all.push_back(testing::layers_of_kinds());
  for (const char* name : {"tensor", "kv_shard"}) {
    // Keys that an index chooses: of whole caches, and of caches that ranks share.
    add_first(all, name, [](const cli::VerifyCase& c) {
      return of_all_ranks(c) && says(c, "index") && c.plan.batch >= 4;
    });
    // Blocks that an index chooses for each KV head.
    add_first(all, name, [](const cli::VerifyCase& c) {
      return of_all_ranks(c) && says(c, "chosen blocks") && c.plan.batch >= 4 && c.plan.tpa == 1;
    });
  }
  // Keys that an index chooses, gathered by context-parallel ranks. (Of blocks a message that is a row off
  // may leave the highest score of every block as it was.)
  add_first(all, "allgather_kv",
            [](const cli::VerifyCase& c) { return says(c, "index of") && says(c, "12 new"); });
  // Rows of several tokens, beside a window, all of them and those that an index chooses: a prompt behind
  // cached tokens makes some.
  add_first(all, "tensor", [](const cli::VerifyCase& c) {
    return of_all_ranks(c) && says(c, "rows of 2") && says(c, "12 new") && c.plan.tpa == 1;
  });
  // Linear attention: decoding requests, a prompt behind cached tokens, heads over ranks that share caches.
  const auto add_states = [&](const char* name, auto wanted) {
    add_first(all, name, [&](const cli::VerifyCase& c) {
      return has_recurrence(c.study.model) && of_all_ranks(c) && wanted(c);
    });
  };
  add_states("tensor", [](const cli::VerifyCase& c) { return c.plan.tpa == 2 && c.plan.batch == 4; });
  add_states("tensor", [](const cli::VerifyCase& c) {
    return c.study.batch.prefills() && c.study.batch.prefill.front().cached == 36 && c.plan.tpa == 1;
  });
  add_states("tensor", [](const cli::VerifyCase& c) {
    return says(c, "Mamba-2") && c.plan.tpa == 2 && c.plan.batch == 4;
  });
  add_states("ring_pass_kv", [](const cli::VerifyCase& c) {
    return c.plan.cp == 3 && c.study.batch.prefill.front().cached == 36 && c.plan.tpa == 1;
  });
  add_states("helix", [](const cli::VerifyCase& c) { return c.plan.kvp == 2 && c.plan.batch == 4; });
  // States behind each of the tokens that are verified.
  for (const char* rule : {"DeltaNet", "Mamba-2"}) {
    add_states("tensor", [&](const cli::VerifyCase& c) {
      return says(c, rule) && c.plan[kDrafts] > 0 && c.plan.tpa == 2 && c.plan.batch == 3;
    });
  }
  return all;
}

bool is_charge(const Mutation& m) { return std::string(m.name).starts_with("charged_"); }

TEST(Mutations, EachIsFoundWhereverItApplies) {
  const std::vector<MadeOfKinds> all = all_of_kinds();
  EXPECT_GE(mutations().size(), 20u);
  for (const Mutation& mutation : mutations()) {
    int applied = 0, by_values = 0;
    for (const MadeOfKinds& made : all) {
      for (int i = 0; i < kTries; ++i) {
        SCOPED_TRACE(std::string(mutation.name) + ", " + made.name + ", seed " + std::to_string(i));
        std::mt19937_64 random(static_cast<std::uint64_t>(i));
        Schedule broken = deep_copy(made.schedule);
        if (!mutation.apply(broken, random)) break;
        ++applied;
        EXPECT_FALSE(check(broken, made.problems).passed());
        by_values += !check(broken, made.problems, {.hazards = false, .charges = Charges::none}).passed();
      }
    }
    EXPECT_GT(applied, 0) << mutation.name << " applies to no schedule";
    // Charges are no values; all else shows in the numbers (or cannot be run), also without looking at
    // charges.
    EXPECT_EQ(by_values, is_charge(mutation) ? 0 : applied) << mutation.name;
  }
}

TEST(Mutations, NamesAreUniqueAndExplained) {
  std::set<std::string> names;
  for (const Mutation& m : mutations()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name;
    EXPECT_FALSE(std::string(m.what).empty());
  }
}

TEST(Mutations, ACopyHasItsOwnDataFlow) {
  for (const MadeOfKinds& made : all_of_kinds()) {
    for (const Mutation& mutation : mutations()) {
      std::mt19937_64 random(1);
      Schedule broken = deep_copy(made.schedule);
      mutation.apply(broken, random);
    }
    SCOPED_TRACE(made.name);
    EXPECT_TRUE(check(made.schedule, made.problems).passed());
  }
}

TEST(Mutations, NothingToBreakChangesNothing) {
  Schedule s;
  s.flow = std::make_shared<Dataflow>();
  for (const Mutation& mutation : mutations()) {
    std::mt19937_64 random(1);
    EXPECT_FALSE(mutation.apply(s, random)) << mutation.name;
  }
}

}  // namespace
}  // namespace shardline
