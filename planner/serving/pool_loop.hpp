// A closed loop of users over a server that prefills and others that decode. planner/README.md [P22].
#pragma once

#include <utility>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// One replica of a pool that prefills.
struct PromptServer {
  /// All steps of so many prompts of an attention group that share them, the engine's host in it: of one, of
  /// powers of two, and last of as many as a step has the budget for; ascending. Between them times lie on
  /// straight lines.
  std::vector<std::pair<double, Seconds>> times;
  int groups = 1;        // attention groups, whose prompts are in the same steps
  int microbatches = 1;  // that its stages have under way: as many steps begin in the time of one

  /// Most prompts that begin together.
  double most() const { return times.back().first * groups; }
  /// From the first step to the last of so many prompts, shared evenly by the groups.
  Seconds prompt(double prompts) const;
  /// Until the next ones can begin.
  Seconds step(double prompts) const { return prompt(prompts) / microbatches; }
  /// Requests per second when it never waits for any.
  double most_per_s() const;
};

/// One replica of a pool that decodes.
struct AnswerServer {
  double room = 1;   // users that it decodes at once
  double users = 1;  // that it has, those who wait for room among them
  Seconds step;      // in which each user that decodes gets a token, or with drafts several
  double steps = 2;  // of an answer
};

/// Users who send the next request when the last one is answered.
struct PoolLoad {
  double users = 1;   // of one replica that prefills, at least one
  Seconds path;       // a request's mean way to the engine, which varies
  Seconds handoff;    // of its KV from one pool to the other
  double rounds = 0;  // requests of a user in all, who all send the first one at once; 0: without end
};

struct PoolLoop {
  Seconds ttft;               // mean of all rounds
  Seconds burst;              // mean of users who all come at once to pools that serve nobody
  Seconds response;           // of the pool that prefills, its queue in it, in a loop that goes on
  Seconds room;               // wait for room among those that decode, likewise
  double requests_per_s = 0;  // of the replica that prefills, and of those that decode for it
  double together = 1;        // prompts of a step of it, on average
  double prefill_busy = 0;    // part of the time in which its steps run
  double decode_busy = 0;     // part of the room of the others that is decoded
};

/// [P22] `load.users` of one replica that prefills, beside as many replicas that decode as have so many: not
/// a whole number of them.
PoolLoop pool_loop(const PromptServer& prefill, const AnswerServer& decode, const PoolLoad& load);

}  // namespace shardline
