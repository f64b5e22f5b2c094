// What users get of an engine that serves equal requests without end: the closed form of steady serving on
// steps that decode some requests and prefill others. planner/README.md [P19].
#pragma once

#include <algorithm>
#include <functional>
#include <optional>

#include "hardware/cost/error_terms.hpp"
#include "planner/engines/profile.hpp"
#include "planner/serving/held_prompts.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// A closed loop: each user sends the next request when the last one is answered.
struct ServedLoad {
  double input = 0, output = 0;  // tokens of a request, means
  double users = 0;              // of one attention group
  // Whether all answers are equally long. Then an engine that prefills first keeps its users in step for
  // ever; else they drift apart.
  bool equal_lengths = false;
  // Requests of a user in all. They all send the first one at once, and the mean TTFT is of all; 0: of a
  // loop that never ends.
  double rounds = 0;
};

/// Requests of a user in most of the loops that engines' TTFTs were measured of, who all begin at once: ten
/// where lengths are drawn (InferenceX 25506e87c, benchmarks/gptoss_fp4_h100_docker.sh: --num-prompts of ten
/// times the users), and ten or twenty of equal lengths (calibrate/validate/served_rows.cpp, rounds_of).
inline constexpr double kMeasuredRounds = 10;

/// What is served: tokens of a request, and users of the whole deployment.
struct ServedWorkload {
  long long input = 0, output = 0;
  long long users = 0;
  bool equal_lengths = false;
  double rounds = 0;  // as of a load
  /// Of an answer, of which the first token comes with the prompt: at most so many a step that decodes.
  double tokens_a_step() const {
    return static_cast<double>(output) / static_cast<double>(std::max(1LL, output - 1));
  }
  /// Tokens that a decoding request has on average.
  long long context() const { return input + std::max<long long>(1, output / 2); }
};

/// Times of one plan under a load.
struct ServedTimes {
  double room = 0;       // requests whose caches fit at once
  double steps = 1;      // of a prompt: its chunks
  double prompts = 1;    // that share them
  Seconds decode;        // a step in which all users that fit decode, the engine's host included
  Seconds prompt;        // the steps of a prompt, from its first to its last, with those that share them
  Seconds prompt_added;  // what one prompt adds to the steps of the others
  // The same steps of one prompt, and of as many as a step has the budget for.
  Seconds alone = Seconds(0), full = Seconds(0);
  double most = 1;
  // [P37] Of attention groups whose steps begin and end together, each with prompts of its own: `decode` and
  // `prompt` are of steps in which nobody else has prompts, and in which all groups have.
  double groups = 1;
  Seconds prompt_one = Seconds(0);  // `prompt` where no other group has prompts in these steps
  bool rides = false;               // prompts ride on steps that decode
  // Of times that were spread: steps that decode while no group has prompts, and by how much those of prompts
  // are longer where all groups have them at once.
  Seconds undisturbed = Seconds(0);
  double at_once = 1;
  // [P38] Of times whose prompts are held back: of a token, prompts of others included, and how long a prompt
  // waits until its step.
  Seconds token = Seconds(0), held = Seconds(0);
  /// Of so many prompts, between the numbers that are known; of one where there is less.
  Seconds prompt_of(double prompts) const;
  /// [P37] What a user of one group sees while each other group has prompts in a part `share` of its steps,
  /// whatever the others do: the means of its steps. Steps of k groups with prompts are taken to rise evenly
  /// with k, from prompt_one to prompt. Of one group nothing changes.
  ServedTimes spread(double share) const;
  /// [P38] The same where prompts of all groups are held back for each other.
  ServedTimes held_back(const HeldPrompts& hold) const;
  /// A step that decodes while nobody has prompts.
  Seconds between() const { return undisturbed > Seconds(0) ? undisturbed : decode; }
};

struct Served {
  Seconds tpot, ttft;   // means
  Seconds burst;        // mean TTFT of users who all come at once to an engine that serves nobody
  double decoding = 0;  // users that decode, on average
  double waiting = 0;   // that wait for room, on average
  double requests_per_s = 0;
  double prefill_part = 0;  // of TPOT: what the prompts of others add
};

/// [P19] The same where prompts that wait together share a step: `times` of so many prompts a step, at most
/// `most`, `prompt` of all of them and `prompt_added` of each. As many share one as come in while a token
/// takes, on average: `used` are the times of that number, which need not be whole.
struct PackedServing {
  Served served;
  ServedTimes used;
};
PackedServing packed_serving(const EngineProfile& engine, const ServedLoad& load, long long most,
                             const std::function<ServedTimes(long long prompts)>& times);

/// [P19] Of served numbers, in parts of them: what kernels' prices say and what models left out of the
/// engine's fit were off, its host included, added by squares. A rate's is that of its time, inverted.
ErrorRange served_time_error(const EngineProfile& engine, const ErrorTerms& step);
ErrorRange served_rate_error(const EngineProfile& engine, const ErrorTerms& step);
/// Of a TTFT; nothing where none was measured of such a loop under the engine, with about as many users of
/// the deployment.
std::optional<ErrorRange> served_ttft_error(const EngineProfile& engine, bool equal_lengths, double users,
                                            const ErrorTerms& step);

/// [P19] Of at least one user; of none where no request fits.
Served steady_serving(const EngineProfile& engine, const ServedLoad& load, const ServedTimes& times);

}  // namespace shardline
