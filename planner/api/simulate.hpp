// simulate: one plan, its time and what that consists of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/noise.hpp"
#include "planner/api/plan_point.hpp"
#include "planner/api/setting.hpp"

namespace shardline::api {

struct SimulateQuestion {
  std::string scenario;
  std::string scenario_text;
  std::string model;
  std::string plan;
  std::optional<long long> noise_seed;
  int copies = 1;
};
template <>
struct Fields<SimulateQuestion> {
  static constexpr const char* name = "SimulateQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Which plan is simulated.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using Q = SimulateQuestion;
    field("scenario", &Q::scenario, "name of a shipped scenario, or a file");
    field("scenario_text", &Q::scenario_text, "the scenario itself, in YAML, in place of a file");
    field("model", &Q::model, "which one of the scenario; empty: the first");
    field("plan", &Q::plan, "its text");
    field("noise_seed", &Q::noise_seed, "first seed of the traffic of others; null: the scenario's");
    field("copies", &Q::copies, "servers of the plan that launch files start");
  }
};

struct TimePart {
  std::string name;
  double time_s = 0;
  double share = 0;
};
template <>
struct Fields<TimePart> {
  static constexpr const char* name = "TimePart";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Part of a time along its critical path.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("name", &TimePart::name, "of the part");
    field("time_s", &TimePart::time_s, "its time");
    field("share", &TimePart::share, "of the whole time, 0 to 1");
  }
};

struct BasisPart {
  std::string basis;
  double time_s = 0;
  double share = 0;
  std::vector<TimePart> parts;
};
template <>
struct Fields<BasisPart> {
  static constexpr const char* name = "BasisPart";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Time that rests on one basis.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("basis", &BasisPart::basis, "`measured`, `fitted`, `extrapolated` or `assumed`, as in Shares");
    field("time_s", &BasisPart::time_s, "the time");
    field("share", &BasisPart::share, "of the whole time, 0 to 1");
    field("parts", &BasisPart::parts, "of which parts of a layer");
  }
};

struct ErrorSource {
  std::string source;
  double low = 0;
  double high = 0;
};
template <>
struct Fields<ErrorSource> {
  static constexpr const char* name = "ErrorSource";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What one price that may be off does to the time.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("source", &ErrorSource::source, "the kernel whose price it is");
    field("low", &ErrorSource::low, "change of the time at the low end of its band, as a part of it");
    field("high", &ErrorSource::high, "likewise at the high end");
  }
};

struct Breakdown {
  double time_s = 0;
  std::vector<TimePart> parts;
  std::vector<TimePart> kinds;
  std::vector<BasisPart> bases;
  double waiting_s = 0;
  double exposed_communication_s = 0;
  double hidden_communication_s = 0;
  std::vector<ErrorSource> errors;
};
template <>
struct Fields<Breakdown> {
  static constexpr const char* name = "Breakdown";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What the time of a step consists of.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using B = Breakdown;
    field("time_s", &B::time_s, "of a token (steps that decode), or of the whole prefill");
    field("parts", &B::parts, "by part of a layer; with `waiting_s` they add up to `time_s`");
    field("kinds", &B::kinds, "the same by kind of operation");
    field("bases", &B::bases, "the same by what the time rests on");
    field("waiting_s", &B::waiting_s, "a microbatch waits for the slowest stage");
    field("exposed_communication_s", &B::exposed_communication_s, "on the critical path");
    field("hidden_communication_s", &B::hidden_communication_s, "beside other work");
    field("errors", &B::errors, "by whose price the time may be off, the widest first");
  }
};

struct MemoryUse {
  double weights_bytes = 0;
  double kv_cache_bytes = 0;
  double activations_bytes = 0;
  double buffers_bytes = 0;
  double total_bytes = 0;
  double capacity_bytes = 0;
};
template <>
struct Fields<MemoryUse> {
  static constexpr const char* name = "MemoryUse";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Memory of the fullest GPU, counted exactly.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using M = MemoryUse;
    field("weights_bytes", &M::weights_bytes, "scales of narrow types included");
    field("kv_cache_bytes", &M::kv_cache_bytes, "of all requests at once");
    field("activations_bytes", &M::activations_bytes, "of the largest step");
    field("buffers_bytes", &M::buffers_bytes, "for messages");
    field("total_bytes", &M::total_bytes, "of the above");
    field("capacity_bytes", &M::capacity_bytes, "HBM of a GPU");
  }
};

struct Collective {
  std::string name;
  std::string kind;
  int ranks = 0;
  int stride = 0;
  double message_bytes = 0;
  std::string message_is;
  std::string algorithm;
  double time_s = 0;
  std::string basis;
  std::string fit;
  std::optional<double> fit_median_error;
  std::optional<double> fit_p90_error;
};
template <>
struct Fields<Collective> {
  static constexpr const char* name = "Collective";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One kind of message of the step, by itself.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using C = Collective;
    field("name", &C::name, "what is sent");
    field("kind", &C::kind, "`all_reduce`, `all_to_all`, ...");
    field("ranks", &C::ranks, "of the group");
    field("stride", &C::stride, "between its ranks");
    field("message_bytes", &C::message_bytes, "its size");
    field("message_is", &C::message_is, "what that size is of");
    field("algorithm", &C::algorithm, "by which it is priced");
    field("time_s", &C::time_s, "with the links to itself");
    field("basis", &C::basis, "of that time, as in BasisPart; `none`: nothing is charged");
    field("fit", &C::fit, "whose price it is; empty: of the system file's parameters");
    field("fit_median_error", &C::fit_median_error,
          "of the fit, on shapes that it has not seen; 0.01 is 1 %");
    field("fit_p90_error", &C::fit_p90_error, "likewise, 90th percentile");
  }
};

struct Served {
  long long users = 0;
  bool serves = false;
  std::string what;
  std::optional<Estimate> tpot_s;
  std::optional<Estimate> ttft_s;
  std::optional<double> ttft_burst_s;
  std::optional<bool> memory_capped;
  double prefill_share = 0;
  double host_share = 0;
  std::optional<Estimate> tokens_per_s_gpu;
  std::optional<Estimate> prompt_tokens_per_s_gpu;
  double decoding_users = 0;
  double waiting_users = 0;
};
template <>
struct Fields<Served> {
  static constexpr const char* name = "Served";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What users get of the plan, prompts on the same GPUs included.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using S = Served;
    field("users", &S::users, "of the deployment");
    field("serves", &S::serves, "whether a request of this length fits; else the rest is null or 0");
    field("what", &S::what, "what the numbers are of");
    field("tpot_s", &S::tpot_s, "time per output token");
    field("ttft_s", &S::ttft_s, "mean time to first token");
    field("ttft_burst_s", &S::ttft_burst_s, "the same if all users come at once");
    field(
        "memory_capped", &S::memory_capped,
        "memory does not hold the caches of all users with whole answers: the engine preempts some, which no "
        "price has");
    field("prefill_share", &S::prefill_share, "part of TPOT that prompts of others add");
    field("host_share", &S::host_share, "part of TPOT that the engine's host takes");
    field("tokens_per_s_gpu", &S::tokens_per_s_gpu, "tokens of answers per second and GPU");
    field("prompt_tokens_per_s_gpu", &S::prompt_tokens_per_s_gpu, "tokens of prompts, likewise");
    field("decoding_users", &S::decoding_users, "users of an attention group that decode, on average");
    field("waiting_users", &S::waiting_users, "that wait for room, likewise");
  }
};

struct FrameworkTime {
  std::string framework;
  std::string version;
  double time_s = 0;
};
template <>
struct Fields<FrameworkTime> {
  static constexpr const char* name = "FrameworkTime";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "The same plan by another library's kernels.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("framework", &FrameworkTime::framework, "whose kernels");
    field("version", &FrameworkTime::version, "of which version");
    field("time_s", &FrameworkTime::time_s, "as `time_s` of the Breakdown");
  }
};

struct Refusal {
  std::string rule;
  std::string says;
  std::string text;
  std::string source;
};
template <>
struct Fields<Refusal> {
  static constexpr const char* name = "Refusal";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Why the engine does not start the plan.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("rule", &Refusal::rule, "its name");
    field("says", &Refusal::says, "the rule in a sentence");
    field("text", &Refusal::text, "what it has against this plan");
    field("source", &Refusal::source, "where the engine's source says so");
  }
};

struct Deployment {
  std::string engine;
  std::string server;
  std::vector<std::string> lines;
  std::vector<std::string> notes;
  std::string refused;
};
template <>
struct Fields<Deployment> {
  static constexpr const char* name = "Deployment";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "How a server of an engine is told the plan.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("engine", &Deployment::engine, "its name and version");
    field("server", &Deployment::server, "which server of it: how many machines, or which half of a pair");
    field("lines", &Deployment::lines, "a command line, or a command and the YAML file that it reads");
    field("notes", &Deployment::notes, "what it lacks for this plan, or does differently");
    field("refused", &Deployment::refused, "why it does not start the plan; then there is no server");
  }
};

struct SimulateResult {
  std::string version;
  std::string command;
  std::string scenario;
  SimulateQuestion question;
  Setting setting;
  std::string plan;
  bool fits = false;
  std::string misfit;
  std::optional<bool> met;
  std::optional<Refusal> refusal;
  MemoryUse memory;
  std::optional<PlanPoint> outcome;
  std::optional<Served> served;
  std::optional<Breakdown> breakdown;
  std::vector<Collective> collectives;
  std::vector<FrameworkTime> frameworks;
  std::optional<NoiseSpec> noise;
  std::optional<NoisyPlan> noisy;
  std::vector<Deployment> deployments;
  std::vector<Diagnostic> warnings;
};
template <>
struct Fields<SimulateResult> {
  static constexpr const char* name = "SimulateResult";
  static constexpr const char* schema = "shardline.simulate/2";
  static constexpr const char* about = "What `shardline simulate` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using R = SimulateResult;
    field("version", &R::version, "of shardline");
    field("command", &R::command, "that gives the same, quoted for the shell; empty: the library was asked");
    field("scenario", &R::scenario, "its name");
    field("question", &R::question, "what was asked");
    field("setting", &R::setting, "what all numbers are of");
    field("plan", &R::plan, "its text, with the partition that was searched for where it takes one");
    field("fits", &R::fits, "whether it fits memory; else what comes after `memory` is null or empty");
    field("misfit", &R::misfit, "why not");
    field("met", &R::met, "whether it keeps constraints.ttl and .ttft of the scenario; null: it has none");
    field("refusal", &R::refusal, "why the engine does not start it, though it is priced");
    field("memory", &R::memory, "per GPU");
    field("outcome", &R::outcome, "its step: of a served workload the one that decodes between prompts");
    field("served", &R::served,
          "what users get of it; null: no workload, or prompts need a pool of their own");
    field("breakdown", &R::breakdown, "what the time of the step consists of");
    field("collectives", &R::collectives, "each kind of message once, in the order of the step");
    field("frameworks", &R::frameworks,
          "bare kernels, where the scenario leaves open whose: by each library's");
    field("noise", &R::noise, "traffic of others, of scenarios that have it");
    field("noisy", &R::noisy, "the plan beside that traffic");
    field("deployments", &R::deployments, "servers of the engines that run it, and refusals");
    field("warnings", &R::warnings, "as on standard error");
  }
};

std::string to_json(const SimulateResult& result);

}  // namespace shardline::api
