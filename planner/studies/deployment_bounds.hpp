// What no play of a load on a plan can be better than. planner/README.md [P35].
#pragma once

#include <optional>
#include <vector>

#include "planner/requests/step_times.hpp"
#include "planner/studies/deployment.hpp"

namespace shardline {

/// What a server does of a load.
enum class BoundedWork : std::uint8_t { all, prompts, answers };

/// What is in a step beside some of it may make it shorter by so much, as fitted prices of kernels need not
/// rise with tokens: bounds leave this part of a step's time.
inline constexpr double kNoShorter = 0.95;

/// Of a plan under one setting of its knobs, for any number of replicas.
class DeploymentBounds {
 public:
  DeploymentBounds(const RequestService& service, const ServiceKnobs& knobs, const OfferedLoad& load,
                   const ServiceQuestion& question, Seconds path, BoundedWork work = BoundedWork::all);

  /// The first bound that shows so many replicas to miss a target; nothing: they are to be played.
  std::optional<RuledOut> rules_out(int replicas) const;
  /// Of replicas that compute prompts alone for others: nothing of answers counts, nor of the other pool.
  std::optional<RuledOut> rules_out_prompts(int replicas) const;
  /// Of those others: nothing of prompts counts.
  std::optional<RuledOut> rules_out_answers(int replicas) const;

  /// No request's TTFT, the path to the engine included, nor its TPOT is shorter than that of the shortest
  /// prompts' part that a target may leave out.
  Seconds least_ttft(double quantile) const;
  Seconds least_tpot(double quantile) const;

 private:
  Seconds step(const StepBatch& batch) const;
  Seconds pass(const StepBatch& batch) const;
  Seconds prompt_alone(std::int64_t tokens) const;
  void look_at_work(BoundedWork work);
  void look_at_targets();
  bool late_prompts(int replicas) const;
  bool late_answers(int replicas) const;
  std::optional<RuledOut> late_alone(bool prompts, bool answers) const;

  const RequestService& service_;
  const ServiceQuestion& question_;
  int groups_ = 1;            // of attention, each with a scheduler, in a replica
  double yields_ = 1;         // tokens of a request in a step that decodes, at most: all drafts accepted
  std::int64_t budget_ = 1;   // tokens of prompts in a step
  std::int64_t at_once_ = 1;  // requests that decode in a step, at most
  bool found_ = false;        // text of prompts may be found in a prefix cache
  Seconds path_;
  double last_ = 0;                        // arrival of the last request
  std::vector<std::int64_t> prompts_;      // lengths, ascending
  std::vector<std::int64_t> with_answer_;  // prompts' lengths of answers of two tokens or more, ascending
  std::vector<std::int64_t> answers_;      // tokens after the first, ascending
  double per_prompt_token_ = 0;            // seconds of a group, at least; 0: not known
  double per_answer_token_ = 0;
  // Seconds of a group that all prompts and all answers take at least, of requests that keep the targets, and
  // by when: 0: not known.
  double prompt_work_ = 0, prompts_by_ = 0, answer_work_ = 0, answers_by_ = 0;
};

}  // namespace shardline
