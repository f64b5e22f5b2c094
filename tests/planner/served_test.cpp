// planner/serving: steady serving [P19], against a play of every step.
#include "planner/serving/served.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <vector>

namespace shardline {
namespace {

EngineProfile engine(PrefillPolicy policy) {
  EngineProfile e;
  e.prefill = policy;
  e.host.path = Seconds(0.02);
  return e;
}

// A step of `prompts` prompts: what they share (weights, launches) and what each adds. A prompt that no step
// has the budget for is cut into `chunks`.
struct StepCosts {
  double decode = 0, shared = 0, each = 0;
  long long most = 1;
  int chunks = 1;
  ServedTimes times(PrefillPolicy policy, double room, long long prompts) const {
    ServedTimes t;
    t.room = room;
    t.steps = chunks;
    t.prompts = static_cast<double>(prompts);
    t.decode = Seconds(decode);
    const double added = shared * chunks + each * t.prompts;
    t.prompt = Seconds((policy == PrefillPolicy::mixed ? decode * chunks : 0) + added);
    t.prompt_added = Seconds(added / t.prompts);
    return t;
  }
};

// Each step decodes for all that have a first token and, while prompts wait, computes as many as it has the
// budget for, beside them (mixed) or in their place (first). A request is asked when a step ends and reaches
// the engine after a path of exponential length. Means of what is answered after a while (users start at
// times drawn over a cycle), or of the first answers to users who all start at once, over a path that all
// have.
class Play {
 public:
  // `room`: requests that the engine has memory for; others wait until one has left.
  Play(const ServedLoad& load, const StepCosts& costs, PrefillPolicy policy, double path, double room = 1e9)
      : load_(load),
        costs_(costs),
        mixed_(policy == PrefillPolicy::mixed),
        path_(path),
        room_(static_cast<std::size_t>(room)),
        users_(static_cast<std::size_t>(load.users)) {}

  void steady(int answers, double cycle) {
    for (std::size_t i = 0; i < users_.size(); ++i) ask(i, cycle * part_(random_));
    const int warm = static_cast<int>(3 * users_.size());
    while (done_ < answers + warm) {
      counts_ = done_ >= warm;
      if (counts_ && from_ < 0) from_ = now_, first_ = done_;
      step();
    }
  }
  void burst() {
    for (std::size_t i = 0; i < users_.size(); ++i) coming_.emplace(path_, i);
    counts_ = true;
    now_ = path_;
    std::vector<bool> served(users_.size());
    while (prompts_ < static_cast<int>(users_.size())) step();
  }
  // All requests of users who begin at once, with answers and paths that are all equally long.
  void equal_loop() {
    equal_ = counts_ = true;
    for (std::size_t i = 0; i < users_.size(); ++i) coming_.emplace(path_, i);
    const int all = static_cast<int>(load_.rounds) * static_cast<int>(users_.size());
    while (prompts_ < all) step();
  }
  double tpot() const { return decoding_ / tokens_; }
  double ttft() const { return response_ / prompts_; }
  double requests_per_s() const { return (done_ - first_) / (now_ - from_); }

 private:
  struct User {
    double asked = 0, first = 0;
    int left = 0, length = 0, chunks = 0, rounds = 0;
  };

  void ask(std::size_t user, double at) {
    users_[user].asked = at;
    if (equal_ && ++users_[user].rounds >= static_cast<int>(load_.rounds)) return;
    coming_.emplace(equal_ ? at + path_ : at - path_ * std::log(1 - part_(random_)), user);
  }

  // Takes the prompts of a step that has any: those that it ends.
  std::vector<std::size_t> prompts_of_step() {
    std::vector<std::size_t> out;
    if (costs_.chunks > 1) {
      if (++users_[waiting_.front()].chunks < costs_.chunks) return out;
      users_[waiting_.front()].chunks = 0;
    }
    while (!waiting_.empty() && static_cast<long long>(out.size()) < costs_.most &&
           decoding_now_.size() + out.size() < room_) {
      out.push_back(waiting_.front());
      waiting_.pop_front();
    }
    return out;
  }

  void step() {
    for (; !coming_.empty() && coming_.begin()->first <= now_ + 1e-12; coming_.erase(coming_.begin()))
      waiting_.push_back(coming_.begin()->second);
    if (waiting_.empty() && decoding_now_.empty()) {
      now_ = coming_.begin()->first;
      return;
    }
    const bool prefills = !waiting_.empty() && decoding_now_.size() < room_;
    const bool decodes = !decoding_now_.empty() && (mixed_ || !prefills);
    std::vector<std::size_t> ended;
    if (prefills) {
      ended = prompts_of_step();
      const double prompts = costs_.chunks > 1 ? 1.0 / costs_.chunks : static_cast<double>(ended.size());
      now_ += costs_.shared + costs_.each * prompts;
    }
    now_ += decodes ? costs_.decode : 0;
    if (decodes) std::erase_if(decoding_now_, [&](std::size_t i) { return answered(i); });
    for (const std::size_t i : ended) {
      User& u = users_[i];
      if (counts_) response_ += now_ - u.asked, ++prompts_;
      u.first = now_;
      const double part = equal_ ? 1 : length_(random_);
      u.left = u.length = std::max(1, static_cast<int>(std::lround((load_.output - 1) * part)));
      decoding_now_.push_back(i);
    }
  }

  bool answered(std::size_t i) {
    User& u = users_[i];
    if (--u.left > 0) return false;
    ++done_;
    if (counts_) decoding_ += now_ - u.first, tokens_ += u.length;
    ask(i, now_);
    return true;
  }

  const ServedLoad& load_;
  const StepCosts& costs_;
  const bool mixed_;
  const double path_;
  const std::size_t room_;
  std::vector<User> users_;
  std::multimap<double, std::size_t> coming_;  // by when they reach the engine
  std::deque<std::size_t> waiting_;
  std::vector<std::size_t> decoding_now_;
  std::mt19937_64 random_{7};
  std::uniform_real_distribution<double> length_{0.8, 1.2}, part_{0, 1};
  double now_ = 0, from_ = -1, decoding_ = 0, tokens_ = 0, response_ = 0;
  int done_ = 0, first_ = 0, prompts_ = 0;
  bool counts_ = false, equal_ = false;
};

Served served(const ServedLoad& load, const StepCosts& costs, PrefillPolicy policy, double path = 0.02,
              double room = 1e9) {
  EngineProfile e = engine(policy);
  e.host.path = Seconds(path);
  room = std::min(room, load.users);
  const auto times = [&](long long k) { return costs.times(policy, room, k); };
  return packed_serving(e, load, std::min<long long>(costs.most, static_cast<long long>(room)), times).served;
}

TEST(SteadyServing, AgreesWithAPlayOfEveryStep) {
  struct Try {
    double users, output;
    StepCosts costs;
  };
  for (const PrefillPolicy policy : {PrefillPolicy::mixed, PrefillPolicy::first}) {
    for (const Try& x : {Try{8, 200, {0.010, 0.005, 0.045, 8}}, Try{32, 400, {0.012, 0.006, 0.020, 4}},
                         Try{64, 300, {0.020, 0.010, 0.030, 1}}, Try{4, 1000, {0.007, 0.01, 0.190, 1}},
                         Try{64, 32, {0.012, 0.012, 0.002, 64}}, Try{128, 128, {0.015, 0.012, 0.003, 64}}}) {
      const ServedLoad load{1000, x.output, x.users, false, 0};
      const Served s = served(load, x.costs, policy);
      Play p(load, x.costs, policy, 0.02);
      p.steady(4000, s.ttft.value + (x.output - 1) * s.tpot.value);
      const double within = x.output < 100 ? 0.14 : 0.05;  // short answers: prompts come in crowds
      EXPECT_NEAR(s.tpot.value / p.tpot(), 1, within) << x.users << " users, " << x.output;
      EXPECT_NEAR(s.requests_per_s / p.requests_per_s(), 1, within) << x.users << " users, " << x.output;
      EXPECT_NEAR(s.ttft.value / p.ttft(), 1, 0.1) << x.users << " users, " << x.output;
    }
  }
}

// Of any workload: from one that hardly comes to one that prompts fill.
struct AnyWorkload {
  ServedLoad load;
  StepCosts costs;
  double path = 0;
};
AnyWorkload any_workload(std::mt19937_64& random) {
  std::uniform_real_distribution<double> part(0, 1);
  const auto between = [&](double low, double high) { return low * std::pow(high / low, part(random)); };
  AnyWorkload w;
  w.load = {1000, std::round(between(16, 2000)), std::round(between(2, 256)), false, 0};
  w.costs = {between(0.005, 0.04), between(0.002, 0.015), between(0.002, 0.4), 1, 1};
  w.costs.most = std::max(1LL, static_cast<long long>(between(0.1, 0.8) / w.costs.each));
  if (w.costs.each > 0.2) w.costs.chunks = 1 + static_cast<int>(4 * part(random)), w.costs.most = 1;
  w.path = between(0.005, 0.05);
  return w;
}

double part_of(std::vector<double> off, double part) {
  std::sort(off.begin(), off.end());
  return off[static_cast<std::size_t>(part * static_cast<double>(off.size() - 1))];
}

TEST(SteadyServing, MeanTtftIsThatOfAPlayOnRandomWorkloads) {
  for (const PrefillPolicy policy : {PrefillPolicy::mixed, PrefillPolicy::first}) {
    std::mt19937_64 random(11);
    std::vector<double> ttft, tpot;
    for (int i = 0; i < 200; ++i) {
      const AnyWorkload w = any_workload(random);
      const Served s = served(w.load, w.costs, policy, w.path);
      Play p(w.load, w.costs, policy, w.path);
      p.steady(std::max(4000, static_cast<int>(20 * w.load.users)),
               s.ttft.value + (w.load.output - 1) * s.tpot.value);
      ttft.push_back(std::abs(s.ttft.value / p.ttft() - 1));
      tpot.push_back(std::abs(s.tpot.value / p.tpot() - 1));
    }
    EXPECT_LT(part_of(ttft, 0.5), 0.02);
    EXPECT_LT(part_of(ttft, 0.9), 0.06);
    EXPECT_LT(part_of(ttft, 1), 0.25);
    EXPECT_LT(part_of(tpot, 0.5), 0.005);
    EXPECT_LT(part_of(tpot, 0.9), 0.05);
  }
}

TEST(SteadyServing, ABurstIsThatOfAPlay) {
  for (const PrefillPolicy policy : {PrefillPolicy::mixed, PrefillPolicy::first}) {
    std::mt19937_64 random(12);
    for (int i = 0; i < 200; ++i) {
      AnyWorkload w = any_workload(random);
      w.load.output = 4000;  // nobody is answered meanwhile
      const Served s = served(w.load, w.costs, policy, w.path);
      Play p(w.load, w.costs, policy, w.path);
      p.burst();
      EXPECT_NEAR(s.burst.value / p.ttft(), 1, 1e-9)
          << w.load.users << " users, " << w.costs.most << " a step";
    }
  }
}

// The times that it says are those that its numbers follow from.
TEST(SteadyServing, PackedTimesAreTheOnesUsed) {
  const StepCosts costs{0.015, 0.012, 0.003, 64};
  const ServedLoad load{1000, 128, 128, false, 0};
  const EngineProfile e = engine(PrefillPolicy::mixed);
  const PackedServing p =
      packed_serving(e, load, 64, [&](long long k) { return costs.times(PrefillPolicy::mixed, 128, k); });
  EXPECT_GT(p.used.prompts, 1.1);
  EXPECT_NE(p.used.prompts, std::floor(p.used.prompts));
  EXPECT_EQ(steady_serving(e, load, p.used).tpot, p.served.tpot);
}

TEST(SteadyServing, OneUserHasItsStepsAlone) {
  const ServedTimes t{10, 1, 1, Seconds(0.01), Seconds(0.1), Seconds(0.09)};
  const Served s = steady_serving(engine(PrefillPolicy::mixed), {1000, 101, 1, false, 0}, t);
  EXPECT_DOUBLE_EQ(s.tpot.value, 0.01);
  EXPECT_NEAR(s.ttft.value, 0.02 + 0.1, 1e-12);
  EXPECT_EQ(s.burst, s.ttft);
  EXPECT_NEAR(s.requests_per_s, 1 / (s.ttft.value + 1.0), 1e-12);
  EXPECT_NEAR(s.prefill_part, 0, 1e-12);
}

TEST(SteadyServing, WorkIsConserved) {
  // Prefill first, phases apart: in a cycle every user decodes its steps and all prompts are computed once.
  for (const double n : {2.0, 16.0, 100.0}) {
    const ServedTimes t{1000, 1, 1, Seconds(0.01), Seconds(0.02), Seconds(0.02)};
    const Served s = steady_serving(engine(PrefillPolicy::first), {1000, 401, n, false, 0}, t);
    const double cycle = s.ttft.value + 400 * s.tpot.value;
    EXPECT_NEAR(s.requests_per_s * cycle, n, 1e-9);
    EXPECT_GE(cycle,
              n * 0.02 + 400 * 0.01 - 0.03);  // its own prompt may lie in a step that counts for others
    EXPECT_GE(s.tpot.value, 0.01);
    EXPECT_LE(s.decoding, n);
  }
}

TEST(SteadyServing, UsersInStepHaveHalfOfTheOthersPromptsBehindThem) {
  const ServedTimes t{100, 1, 1, Seconds(0.01), Seconds(0.02), Seconds(0.02)};
  const Served s = steady_serving(engine(PrefillPolicy::first), {1000, 101, 11, true, 0}, t);
  EXPECT_NEAR(s.tpot.value, 0.01 + 5 * 0.02 / 100, 1e-12);
  EXPECT_NEAR(s.ttft.value, 0.02 + 6 * 0.02, 1e-12);
  // Where prompts ride on steps of others users drift apart, and lengths make no difference to TPOT.
  const EngineProfile mixing = engine(PrefillPolicy::mixed);
  const ServedTimes m{100, 1, 1, Seconds(0.01), Seconds(0.02), Seconds(0.01)};
  const Served equal = steady_serving(mixing, {1000, 101, 11, true, 0}, m);
  EXPECT_DOUBLE_EQ(equal.tpot.value, steady_serving(mixing, {1000, 101, 11, false, 0}, m).tpot.value);
  EXPECT_LT(equal.ttft.value, equal.burst.value / 2);
}

// A memory that holds fewer requests than there are users: the batch that runs is capped, the others wait.
TEST(SteadyServing, AMemoryThatIsFullIsThatOfAPlay) {
  for (const PrefillPolicy policy : {PrefillPolicy::mixed, PrefillPolicy::first}) {
    std::mt19937_64 random(13);
    std::uniform_real_distribution<double> part(0.1, 0.95);
    std::vector<double> ttft, tpot, rate;
    for (int i = 0; i < 200; ++i) {
      AnyWorkload w = any_workload(random);
      w.load.users = std::max(4.0, w.load.users);
      const double room = std::max(1.0, std::floor(w.load.users * part(random)));
      const Served s = served(w.load, w.costs, policy, w.path, room);
      Play p(w.load, w.costs, policy, w.path, room);
      p.steady(std::max(4000, static_cast<int>(20 * w.load.users)),
               s.ttft.value + (w.load.output - 1) * s.tpot.value);
      ttft.push_back(std::abs(s.ttft.value / p.ttft() - 1));
      tpot.push_back(std::abs(s.tpot.value / p.tpot() - 1));
      rate.push_back(std::abs(s.requests_per_s / p.requests_per_s() - 1));
    }
    EXPECT_LT(part_of(tpot, 0.5), 0.005);
    EXPECT_LT(part_of(tpot, 0.9), 0.05);
    EXPECT_LT(part_of(rate, 0.5), 0.01);
    EXPECT_LT(part_of(rate, 0.9), 0.05);
    EXPECT_LT(part_of(ttft, 0.5), 0.02);
    EXPECT_LT(part_of(ttft, 0.9), 0.08);
  }
}

TEST(SteadyServing, WhoFindsNoRoomWaits) {
  const ServedTimes t{8, 1, 1, Seconds(0.01), Seconds(0.02), Seconds(0.015)};
  const EngineProfile e = engine(PrefillPolicy::mixed);
  const Served room = steady_serving(e, {1000, 101, 8, false, 0}, t);
  const Served more = steady_serving(e, {1000, 101, 20, false, 0}, t);
  const Served most = steady_serving(e, {1000, 101, 200, false, 0}, t);
  // A place is taken as soon as it is free: more of them are used, and no more than all.
  EXPECT_GT(more.requests_per_s, room.requests_per_s);
  EXPECT_LT(more.requests_per_s, room.requests_per_s * 1.05);
  EXPECT_DOUBLE_EQ(more.tpot.value, most.tpot.value);
  EXPECT_DOUBLE_EQ(more.requests_per_s, most.requests_per_s);
  EXPECT_NEAR(most.ttft.value - more.ttft.value, 180 / most.requests_per_s, 1e-9);
  EXPECT_NEAR(more.waiting, 12 - more.requests_per_s * 0.02, 1e-9);
  EXPECT_EQ(room.waiting, 0);
  EXPECT_EQ(steady_serving(e, {1000, 101, 8, false, 0}, ServedTimes{}).tpot, Seconds(0));
}

// Who was prefilled together comes back together: the mean TTFT of a loop of equal lengths is that of a play.
TEST(SteadyServing, ALoopOfEqualLengthsIsThatOfAPlay) {
  std::mt19937_64 random(14);
  std::uniform_real_distribution<double> part(0.3, 1.3);
  double most_apart = 0;
  for (int i = 0; i < 200; ++i) {
    AnyWorkload w = any_workload(random);
    w.load.equal_lengths = true;
    w.load.rounds = 10;
    const double room = std::max(1.0, std::floor(w.load.users * part(random)));
    EngineProfile e = engine(PrefillPolicy::mixed);
    const Served s = served(w.load, w.costs, PrefillPolicy::mixed, w.path, room);
    Play p(w.load, w.costs, PrefillPolicy::mixed, w.path, room);
    p.equal_loop();
    EXPECT_NEAR(s.ttft.value / p.ttft(), 1, 1e-9)
        << w.load.users << " users, room " << room << ", " << w.costs.most << " a step, " << w.costs.chunks
        << " chunks";
    w.load.equal_lengths = false;
    most_apart =
        std::max(most_apart, s.ttft / served(w.load, w.costs, PrefillPolicy::mixed, w.path, room).ttft);
  }
  EXPECT_GT(most_apart, 2);  // which no law of independent arrivals gives
}

}  // namespace
}  // namespace shardline
