#include "planner/serving/equal_loop.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

namespace shardline {

namespace {

// Users who do the same at the same time.
struct Group {
  double asked = 0;  // when they sent their request
  double at = 0;     // when it reaches the engine
  double users = 0;
  double rounds = 0;        // that they still ask for, this request among them
  long long last_step = 0;  // the step that answers them
};

class Loop {
 public:
  Loop(const EngineProfile& engine, const ServedLoad& load, const ServedTimes& times)
      : times_(times),
        path_(engine.host.path.value),
        most_(std::max(1.0, std::min(times.most, std::floor(times.room)))),
        room_(std::floor(times.room)),
        steps_(static_cast<long long>(times.steps)),
        decode_steps_(std::max(1LL, std::llround(load.output) - 1)) {
    const double rounds = std::round(load.rounds);
    coming_.push_back({0, path_, load.users, rounds, 0});
    left_ = load.users * rounds;
  }

  double mean() {
    const double all = left_;
    while (left_ > 0) step();
    return sum_ / all;
  }

 private:
  // Who has reached the engine, in that order.
  void arrive() {
    for (; !coming_.empty() && coming_.front().at <= now_ + 1e-12; coming_.pop_front())
      waiting_.push_back(coming_.front());
  }

  void step() {
    arrive();
    const double free = room_ - decoding_;
    if (!waiting_.empty() && free >= 1) {
      prefill(std::min(most_, free));
    } else if (decoding_ > 0) {
      // Until somebody is answered or, where there is room, the next one comes: in the end of a step.
      long long jump = running_.front().last_step - step_;
      if (waiting_.empty() && !coming_.empty() && free >= 1) {
        const double until = (coming_.front().at - now_) / times_.decode.value;
        jump = std::min(jump, std::max(1LL, static_cast<long long>(std::ceil(until - 1e-9))));
      }
      now_ += times_.decode.value * static_cast<double>(jump);
      step_ += jump;
      answer();
    } else {
      now_ = coming_.front().at;
    }
  }

  // The steps of as many prompts as share them, from their first to their last chunk.
  void prefill(double most) {
    std::deque<Group> ended;
    double prompts = 0;
    while (!waiting_.empty() && prompts < most) {
      Group& first = waiting_.front();
      Group part = first;
      part.users = std::min(first.users, most - prompts);
      prompts += part.users;
      first.users -= part.users;
      if (first.users <= 0) waiting_.pop_front();
      ended.push_back(part);
    }
    const double whole = times_.prompt_of(prompts).value;
    const double chunk = whole / static_cast<double>(steps_);
    for (long long i = 0; i < steps_; ++i) {
      // Nobody decodes beside the first ones.
      now_ += decoding_ > 0 ? chunk : std::max(0.0, chunk - times_.decode.value);
      ++step_;
      answer();
    }
    for (Group& g : ended) {
      sum_ += g.users * (now_ - g.asked);
      left_ -= g.users;
      decoding_ += g.users;
      g.last_step = step_ + decode_steps_;
      running_.push_back(g);
    }
  }

  // Who has the last token with this step comes back, if there is a next round.
  void answer() {
    for (; !running_.empty() && running_.front().last_step <= step_; running_.pop_front()) {
      Group g = running_.front();
      decoding_ -= g.users;
      if ((g.rounds -= 1) < 1) continue;
      g.asked = now_;
      g.at = now_ + path_;
      // Who comes back with the same step is of one group again, as long as it has as many rounds before it.
      const bool same =
          !coming_.empty() && coming_.back().asked == g.asked && coming_.back().rounds == g.rounds;
      if (same)
        coming_.back().users += g.users;
      else
        coming_.push_back(g);
    }
  }

  const ServedTimes& times_;
  const double path_, most_, room_;
  const long long steps_, decode_steps_;
  std::deque<Group> coming_, waiting_, running_;  // each in the order of time
  double now_ = 0, decoding_ = 0, sum_ = 0, left_ = 0;
  long long step_ = 0;
};

}  // namespace

double equal_loop_ttft(const EngineProfile& engine, const ServedLoad& load, const ServedTimes& times) {
  return Loop(engine, load, times).mean();
}

}  // namespace shardline
