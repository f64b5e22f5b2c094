#include "planner/serving/pool_loop.hpp"

#include <algorithm>
#include <cmath>

#include "planner/serving/response.hpp"
#include "sim/base/error.hpp"

namespace shardline {

Seconds PromptServer::prompt(double prompts) const {
  const double each = std::clamp(prompts / groups, 1.0, times.back().first);
  const auto above =
      std::lower_bound(times.begin(), times.end(), each, [](const auto& t, double k) { return t.first < k; });
  if (above == times.begin()) return above->second;
  const auto below = above - 1;
  return below->second +
         (above->second - below->second) * ((each - below->first) / (above->first - below->first));
}

double PromptServer::most_per_s() const {
  double most = 0;
  for (const auto& [each, time] : times) most = std::max(most, each * groups * microbatches / time.value);
  return most;
}

namespace {

// The queue of one replica that prefills: steps begin while prompts wait, with as many as they have room
// for; a prompt that finds a step under way waits for its end.
class PromptQueue {
 public:
  PromptQueue(const PromptServer& server, double users)
      : server_(server), users_(users), most_(std::min(server.most(), std::max(1.0, users))) {}

  double most_per_s() const { return server_.most_per_s(); }

  // While so many come in a second: the mean from a prompt's arrival to its end, of all its steps.
  struct Means {
    double response = 0, together = 1, busy = 0;
  };
  Means at(double rate) const {
    // A prompt meets those of the other users; of a step that it finds one more user is out of the way.
    const double others = rate * (users_ - 1) / users_;
    const double third = users_ > 2 ? others * (users_ - 2) / (users_ - 1) : 0;
    const Steps s = steps(rate, users_), seen = steps(others, users_ - 1);
    Means out;
    out.together = s.together;
    out.busy = std::min(1.0, rate * s.mean / s.together);
    // Users who have waited for each other come apart: steps are found as much less often as the queue of
    // periodic sources is shorter than that of strangers.
    const double rho = std::min(1.0, rate * step(most_) / most_);
    const double apart = std::min(1.0, 2 * (1 - rho) * waiting_of_periodic(rho, users_));
    const double found = (rho < 1 ? apart : 1) * std::min(1.0, others * seen.mean / seen.together);
    const double length = seen.square / seen.mean;  // of the step that it finds
    const double own = std::min(most_, 1 + third * length);
    // Whom a full step leaves behind, with all the steps before its own: Lq of M/D/c by H. Sakasegawa (Ann.
    // Inst. Stat. Math. 29, 1977), as of servers that take c at a time [P19].
    const double load = std::min(1.0, others * step(most_) / most_);
    const double behind =
        std::pow(load, std::sqrt(2 * (most_ + 1))) * waiting_of_periodic(load, users_) * step(most_) / most_;
    out.response = (1 - found) * prompt(1) + found * (length / 2 + prompt(own)) + behind;
    return out;
  }

  // Mean until the prompts of so many users who come at once are done.
  double burst(double users) const {
    const double whole = std::floor(users / most_ + 1e-9), rest = std::max(0.0, users - whole * most_);
    const double tail = prompt(most_) - step(most_);  // of stages behind the first
    double sum = most_ * (step(most_) * whole * (whole + 1) / 2 + whole * tail);
    if (rest > 1e-9) sum += rest * (whole * step(most_) + prompt(rest));
    return sum / users;
  }
  // Time of a prompt where a step never lacks any.
  double full() const { return step(most_) / most_; }
  double most() const { return most_; }

 private:
  double step(double prompts) const { return server_.step(prompts).value; }
  double prompt(double prompts) const { return server_.prompt(prompts).value; }

  // Mean prompts and time of a step, and the mean of its square. In a step some of the users come in who have
  // no prompt in it, independently of each other; if nobody does, the next one begins with a single prompt.
  struct Steps {
    double together = 1, mean = 0, square = 0;
  };
  Steps steps(double rate, double users) const {
    const double alone = step(1);
    Steps out{1, alone, alone * alone};
    if (most_ <= 1 || users <= 1) return out;
    for (int i = 0; i < 12; ++i) {
      const double away = std::max(1.0, users - out.together);
      const double x = std::min(away, rate * out.mean), none = std::pow(1 - x / away, away);
      const double some = none < 1 - 1e-9 ? std::min(most_, x / (1 - none)) : 1;
      const double shared = step(some), mean = none * alone + (1 - none) * shared;
      out.together = none + (1 - none) * some;
      out.square = none * alone * alone + (1 - none) * shared * shared;
      if (std::abs(mean - out.mean) < 1e-9 * mean) break;
      out.mean = mean;
    }
    return out;
  }

  const PromptServer& server_;
  const double users_, most_;
};

// Mean time at which users who come at once have a place among those that decode, in turns of as many as have
// room, each of them `turn` long; of one turn after the other where those that decode are the slower ones.
double burst_of(const PromptQueue& queue, double users, double room, double turn) {
  if (users <= room || turn <= room * queue.full()) return queue.burst(users);
  const double turns = std::floor(users / room + 1e-9), last = std::max(0.0, users - turns * room);
  double sum = room * turns * (queue.burst(room) + turn * (turns - 1) / 2);
  if (last > 1e-9) sum += last * (queue.burst(last) + turn * turns);
  return sum / users;
}

}  // namespace

PoolLoop pool_loop(const PromptServer& prefill, const AnswerServer& decode, const PoolLoad& load) {
  SL_CHECK(load.users >= 1 - 1e-9, "somebody asks");
  const PromptQueue queue(prefill, load.users);
  const double room = decode.room * load.users / decode.users;
  const double path = load.path.value, token = decode.step.value;
  const double answer = decode.steps * token, handoff = load.handoff.value;
  // Who comes while a step decodes waits for its end, half of it on average; others of its replica decode but
  // for a part of the time.
  const double alone = path + prefill.prompt(1).value + handoff + answer;
  const double idle = std::pow(1 - answer / alone, std::max(0.0, std::min(decode.room, decode.users) - 1));
  const double held = handoff + token / 2 * (1 - idle) + answer;
  // As many ask as are answered: users = rate x (path + response + what they are held), Little's law.
  double low = 0, high = std::min(queue.most_per_s(), load.users / (path + held));
  for (int i = 0; i < 40 && high - low > 1e-9 * high; ++i) {
    const double rate = (low + high) / 2;
    (rate * (path + queue.at(rate).response + held) > load.users ? high : low) = rate;
  }
  double rate = high, waits = 0;
  PromptQueue::Means means = queue.at(rate);
  const double left = load.users / rate - path - held;
  if (left > means.response * (1 + 1e-6)) {  // it cannot compute as many as are asked: its steps are full
    means = {left, queue.most(), 1};
  }
  if (decode.users > decode.room && rate > room / held) {
    rate = room / held;
    means = queue.at(rate);
    waits = std::max(0.0, load.users / rate - path - means.response - held);
  }
  PoolLoop out;
  out.requests_per_s = rate;
  out.response = Seconds(means.response);
  out.room = Seconds(waits);
  out.together = means.together;
  out.prefill_busy = means.busy;
  out.decode_busy = rate * answer / room;
  const double ttft = path + means.response + waits + held - answer + token;
  const double burst = path + burst_of(queue, load.users, room, handoff + answer) + handoff + token;
  out.burst = Seconds(burst);
  out.ttft = Seconds(load.rounds > 0 ? ttft + (burst - ttft) / load.rounds : ttft);
  return out;
}

}  // namespace shardline
