// One thing about a study changed by a factor: a rate of its machine, its fixed times, its requests.
// planner/README.md [P24].
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/scenario/scenario.hpp"
#include "planner/serving/served_plan.hpp"

namespace shardline {

/// What can be changed. hbm, flops and links are rates; latency, kernels and host are times that no rate
/// changes: of messages, of what is no message, and of an engine's host.
enum class Knob : std::uint8_t { hbm, flops, links, latency, kernels, host, context, batch };
inline constexpr std::size_t kKnobs = 8;
/// "HBM bandwidth", "FLOP/s", ...
std::string_view to_string(Knob knob);
/// What of a system file, a fit or a scenario it changes, in a few words.
std::string_view meaning(Knob knob);

/// Whose measurements price the changed machine. own: its figures still count as those that were measured, as
/// of a derivative; another: they are borrowed for another machine, as a system file with these figures is.
enum class ChangedMachine : std::uint8_t { own, another };

/// A study and a plan of it, one thing changed.
struct ChangedStudy {
  Study study;
  Plan plan;
  double factor = 1;  // by which it changed in truth: tokens and requests are whole
  double times = 1;   // every time of the study counts so many times
};

/// Nothing where there is nothing to change: no network and no NVLink, no host times, a batch of one that is
/// to be smaller, a partition that is of one context alone.
std::optional<ChangedStudy> changed(const Study& study, const Plan& plan, Knob knob, double factor,
                                    ChangedMachine machine = ChangedMachine::own);

/// The study with prices that know no power management. A long kernel of a prefill is slowed after a time
/// constant (`throttle` of its fit): where all times but the rates' are stretched, so would be that one, and
/// kernels that end before it would seem faster for longer launches.
Study without_throttling(Study study);

/// What a plan does, with what errors of prices do to it.
struct PlanTimes {
  Seconds step;                 // TTL of a step that decodes, TTFT of a prefill, bare of prompts beside it
  Seconds tpot, ttft;           // of a served workload; 0: none is served
  double tokens_per_s_gpu = 0;  // decoded, of answers, or new tokens of a prefill
  double users = 0;             // at once, those who wait too; of a prefill its requests
  double waiting = 0;           // of these, for whom memory has no room
  ErrorTerms errors;            // of the step, of TPOT and of the rate; in parts of each
  ErrorTerms ttft_errors;       // of a served TTFT
  bool preempts = false;        // memory does not hold all caches of a served workload with whole answers
  double extrapolated = 0;      // part of the step that is extrapolated or assumed

  bool served() const { return tpot > Seconds(0); }
  /// What plans are compared by: TPOT where a workload is served, else the step.
  Seconds time() const { return served() ? tpot : step; }
};
/// [H65] How far the rate may be off, and the TTFT of a served workload: nothing where that was not measured,
/// as of a plan whose engine preempts.
ErrorRange rate_error(const Study& study, const PlanTimes& times);
std::optional<ErrorRange> ttft_error(const Study& study, const PlanTimes& times);
/// The plan that runs of one that is asked for: under an engine that serves a workload the largest batch that
/// memory has room for, whose other users wait; itself where all run, where nobody would, and where nothing
/// is served.
Plan running(const Study& study, Plan asked);
/// Of a served workload with the wait of users that memory has no room for. The plan must pass check, and
/// running() of it must fit; of a chain its parts are listed.
PlanTimes times_of(const Study& study, const Plan& plan, double times = 1);
/// PlanTimes::time() alone, which is much faster.
Seconds time_of(const Study& study, const Plan& plan, double times = 1);
/// Why the plan cannot run there with all of its users: impossible, or it does not fit.
std::optional<std::string> cannot_run(const Study& study, const Plan& plan);

}  // namespace shardline
