// One request handed over from a plan that prefills to one that decodes: pieces, and how long they take.
// planner/handoff/README.md.
#pragma once

#include "planner/handoff/transfer.hpp"
#include "planner/scenario/scenario.hpp"

namespace shardline {

struct HandoffQuestion {
  std::string prefill, decode;  // texts of plans
  long long tokens = 0;         // of the prompt; 0: those of the study's workload, or its longest request
  int at_once = 1;              // requests that are handed over together, between the same two replicas
};

struct HandoffStudy {
  Plan prefill, decode;
  long long tokens = 0;
  int at_once = 1;
  EngineTransfer engine;
  Handoff handoff;
  std::vector<RankPair> pairs;
  Seconds prefill_time, step_time;         // of the prompt alone; of a step of the plan that decodes
  ErrorTerms prefill_errors, step_errors;  // of the prices of these two
  Bytes step_messages;                     // that leave a rank of it in one step
  // From the end of the prefill (each of them, at once) until the last rank has its cache:
  Seconds alone, together;  // one request; `at_once` of them
  Seconds beside_steps;     // one, while the plan that decodes does its steps
  Seconds by_layer;         // one, each layer as soon as it has been computed
  Seconds by_links;         // its bytes over the links of the side with fewer GPUs, and nothing else

  /// Of ranks that send, and that receive: bytes and descriptors by rank.
  std::vector<RankPair> sent() const;      // `to` is the number of receivers
  std::vector<RankPair> received() const;  // `from` is the number of senders
};

/// [H65] How far times of hand-offs may be off: as all that rests on a system file's parameters. Descriptors
/// [D7] and bytes over links are told by their makers; no transfer between two servers was measured.
ErrorRange handoff_error();

/// Throws UserError where a plan is impossible for the study, cannot hand over or take over, or both have not
/// GPUs enough.
HandoffStudy study_handoff(const Study& study, const HandoffQuestion& question);

/// Bytes of a prompt's cache, each once however many ranks have copies, over the links of the side with fewer
/// GPUs: a bound of every hand-off but for what links share.
Seconds time_by_links(const Case& c, const Plan& prefill, const Plan& decode, Bytes bytes);

}  // namespace shardline
