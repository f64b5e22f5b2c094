// The choice between pass-KV and pass-Q where it is made: in prefills of recorded requests, with cache hits,
// chunks and a queue. planner/README.md [P36].
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hardware/cost/error_terms.hpp"
#include "planner/scenario/scenario.hpp"
#include "planner/serving/trace.hpp"
#include "planner/studies/threshold_study.hpp"

namespace shardline {

/// vLLM's max_num_batched_tokens on GPUs of 70 GiB and more (engine/arg_utils.py, see engines/vllm.yaml).
inline constexpr long long kContextChunk = 8192;
/// The part of the time that a replica computes, unless a rate is asked for.
inline constexpr double kContextLoad = 0.7;

struct ContextQuestion {
  std::string trace;           // a file
  double rate = 0;             // requests per second to each replica; 0: as `load` says
  double load = kContextLoad;  // in (0, 1): the part of the time that prefills by the faster variant take
  long long chunk = kContextChunk;  // tokens that a step computes, at most
  std::uint64_t requests = 0;       // at most; 0: all of the trace
};

/// Who asks a rule how often.
enum class RuleAsked : std::uint8_t { each_step, once };

/// A rule on the judged half of the requests, against the faster variant in each step.
struct ContextRegret {
  std::string rule;
  RuleAsked asked =
      RuleAsked::each_step;  // with a step's new and cached tokens, or once with the whole prompt's
  std::size_t right = 0;     // of their steps: the faster variant
  double computing = 0;      // time of prefills over that of the faster variants, less 1
  double mean = 0, p99 = 0;  // of TTFT, likewise
  ErrorRange mean_range;     // of `mean`, as prices may be off [P13]
};

struct ContextRing {
  int ranks = 1;
  long long room = 0;  // cached tokens that a replica holds beside a step
  double rate = 0;     // requests per second that came to it
  double load = 0;     // the part of the time that prefills by the faster variant took
  double found = 0;    // of the tokens of all prompts, those found in the cache
  std::size_t steps = 0, judged_steps = 0,
              open_steps = 0;         // open: of those judged, the variants not told apart
  TokenSplit typical;                 // the median judged step by new tokens, of which errors are
  Seconds mean, p99;                  // TTFT of judged requests by the faster variants
  ErrorRange mean_range, p99_range;   // in parts, as prices may be off; a queue makes them wider than prices'
  EmpiricalRule in_context{0, 0, 0};  // fitted to the other half
  std::vector<ContextRegret> rules;
};

struct ContextStudy {
  std::size_t requests = 0, judged = 0;
  double input = 0;  // tokens, mean
  std::vector<ContextRing> rings;
};

/// The requests of the question's trace, two at least. Throws UserError for its faults, and where `threads`
/// with all of them need more memory than they may.
std::vector<TraceRequest> read_prompts(const ContextQuestion& question, int threads);

/// Plays prompts on a replica of each ring size of `found`. `progress` as study_thresholds'. Results do not
/// depend on the threads (0: all cores). Throws UserError for a prompt that a replica cannot hold, and a
/// model that does not fit.
ContextStudy study_in_context(const Study& study, const ThresholdStudy& found,
                              const ContextQuestion& question, std::span<const TraceRequest> prompts,
                              int threads,
                              const std::function<void(std::size_t done, std::size_t total)>& progress);

// ---- The parts of it, for tests.

/// A prompt's steps are [first, first + count) of all.
struct ContextRequest {
  double arrival = 0;  // s, of the first 0
  std::size_t first = 0, count = 0;
  TokenSplit whole;  // its new and cached tokens
};
struct ContextSteps {
  std::vector<ContextRequest> requests;
  std::vector<TokenSplit> steps;
  double found = 0;  // as ContextRing's
};

/// Steps of prompts that are computed in the order of arrival, one at a time, on a replica whose cache holds
/// `room` tokens: what was computed before is found in blocks of kTraceBlock tokens until the least recently
/// used is lost; at least a token of each prompt is computed. New tokens of a step are rounded up to
/// multiples of 2 `ranks`, so that sharding is even, and cached ones down. Throws UserError for a prompt
/// beyond `room`.
ContextSteps context_steps(std::span<const TraceRequest> trace, long long chunk, long long room, int ranks);

/// TTFT of each request, in seconds: `spent` on each in the order of arrival, one at a time.
std::vector<double> times_to_first(std::span<const ContextRequest> requests, double stretch,
                                   std::span<const double> spent);
/// By how much all TTFTs together change if that of one request's prefill does, to first order: the requests
/// from it to the end of its busy period.
std::vector<double> who_waits(std::span<const ContextRequest> requests, double stretch,
                              std::span<const double> spent);

}  // namespace shardline
