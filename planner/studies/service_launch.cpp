#include "planner/studies/service_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "planner/engines/deploy.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/studies/knob_tables.hpp"
#include "planner/studies/knob_text.hpp"
#include "planner/studies/plan_launches.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

// --x or --no-x (engine/arg_utils.py, BooleanOptionalAction).
void put_knob(ServedOptions& out, const KnobParts& knob, const VllmKnobs& /*knobs*/) {
  const bool number = knob.value != "true" && knob.value != "false";
  if (knob.name == "num_gpu_blocks") return put(out.options, "--num-gpu-blocks-override", knob.value);
  if (knob.name == kLoadFailurePolicy) {  // a word of --kv-transfer-config
    out.load_failures = knob.value;
    return;
  }
  if (number) return put(out.options, dashed(knob.name), knob.value);
  put(out.options, dashed((knob.value == "true" ? "" : "no_") + knob.name));
}

// What is a variable and no option: srt/environ.py@21ff4b08a196, "new token ratio hyperparameters".
constexpr std::array kSglangVariables{"init_new_token_ratio",        "min_new_token_ratio_factor",
                                      "new_token_ratio_decay_steps", "clip_max_new_tokens_estimation",
                                      "retract_decode_steps",        "swa_eviction_interval"};

void put_knob(ServedOptions& out, const KnobParts& knob, const SglangKnobs& /*knobs*/) {
  if (std::find(kSglangVariables.begin(), kSglangVariables.end(), knob.name) != kSglangVariables.end()) {
    std::string name = "SGLANG_" + knob.name;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    return put(out.environment, name, knob.value);
  }
  if (knob.value == "false") return;  // the flags' own default
  if (knob.value == "true") return put(out.options, dashed(knob.name));
  // No number of its own is none at all: -1 of chunks (server_args.py:680), nothing of others.
  const bool none = knob.value == "0";
  constexpr std::array kUnsaid{"prefill_max_requests", kMicroBatchSize, kLowWatermark, kQueueRatio};
  if (none && std::find(kUnsaid.begin(), kUnsaid.end(), knob.name) != kUnsaid.end()) return;
  put(out.options, dashed(knob.name), none && knob.name == "chunked_prefill_size" ? "-1" : knob.value);
}

// Sections of llmapi/llm_args.py: SchedulerConfig, KvCacheConfig.
void put_knob(ServedOptions& out, const KnobParts& knob, const TrtllmKnobs& knobs) {
  if (knob.name == "blocks")
    return put(out.options, "kv_cache_config.max_tokens",
               static_cast<long long>(knobs.blocks) * knobs.tokens_per_block);
  if (knob.name == kBufferTokens) return;  // in put_caps
  const bool schedules = knob.name.ends_with("_policy");
  const bool caches = knob.name == "tokens_per_block" || knob.name == "enable_block_reuse";
  put(out.options,
      (schedules ? "scheduler_config."
       : caches  ? "kv_cache_config."
                 : "") +
          knob.name,
      knob.value);
}

// A server whose scheduler was played.
struct PlayedServer {
  const Case& on;
  const Plan& plan;
  const ServiceKnobs& knobs;
  const std::vector<std::string>& turned;
  PairRole role = PairRole::none;
};

// A request of the load fits, and one of the question; no more than the scheduler takes.
long long longest_of(const PlayedServer& s, const ServiceAnswer& a) {
  return std::min<long long>(s.knobs.longest(), std::max(a.longest, s.on.served.total()));
}

void put_caps(ServedOptions& out, const VllmKnobs& k, const PlayedServer& /*server*/, long long longest) {
  put(out.options, "--max-num-batched-tokens", k.max_num_batched_tokens);
  put(out.options, "--max-num-seqs", k.max_num_seqs);
  put(out.options, "--max-model-len", longest);
}

// The engine divides requests among its attention groups (server_args.py, _handle_data_parallelism), and
// chunks: those of servers that do both are its default's, which their own files say.
void put_caps(ServedOptions& out, const SglangKnobs& k, const PlayedServer& s, long long longest) {
  const long long groups = s.plan.dp;
  put(out.options, "--max-running-requests", k.max_running_requests * groups);
  put(out.options, "--context-length", longest);
  if (k.sliding_window > 0)
    put(out.options, "--swa-full-tokens-ratio", fmt::format("{:.3f}", k.swa_full_tokens_ratio));
  if (s.role != PairRole::prefills) return;
  const bool cuts = k.chunked_prefill_size > 0;
  put(out.options, "--chunked-prefill-size", cuts ? k.chunked_prefill_size * groups : -1LL);
  if (k.prefill_max_requests > 0) put(out.options, "--prefill-max-requests", k.prefill_max_requests);
}

void put_caps(ServedOptions& out, const TrtllmKnobs& k, const PlayedServer& s, long long longest) {
  put(out.options, "max_batch_size", k.max_batch_size);
  put(out.options, "max_num_tokens", k.max_num_tokens);
  put(out.options, "max_seq_len", longest);
  if (s.role == PairRole::none) return;
  if (k.max_tokens_in_buffer > 0)
    put(out.options, "cache_transceiver_config.max_tokens_in_buffer", k.max_tokens_in_buffer);
  put(out.options, "disable_overlap_scheduler", k.disable_overlap_scheduler ? "true" : "false");
}

// What stands in front of several servers: nginx, which deals in turn or to the one with the fewest
// connections, and SGLang's router, whose cache_aware is another rule than ours and which goes in turn else.
void put_routing(ServedOptions& out, const ServiceQuestion& q, bool sglang) {
  out.in_turn = q.router == Router::round_robin;
  if (q.replicas == 1 || out.in_turn) return;
  out.notes.push_back(fmt::format(
      "Requests were played with router {}; what stands in front of these servers {}.", to_string(q.router),
      sglang ? "gives each of them one in its turn" : "sends each to the one with the fewest connections"));
}

// Of a pair: its front goes in turn in both pools, and hands every request over.
void put_pair_routing(ServedOptions& out, const ServiceQuestion& q) {
  out.in_turn = true;
  if (q.router != Router::round_robin && std::max(q.replicas, q.prefill->replicas) > 1)
    out.notes.push_back(
        fmt::format("Requests were played with router {}; what stands in front of these servers gives each "
                    "of them one in its turn.",
                    to_string(q.router)));
  if (q.prefill->max_local > 0)
    out.notes.push_back(
        fmt::format("Prompts of at most {} tokens were played as computed by the servers for answers, as "
                    "Dynamo has it; what stands in front of these servers sends each prompt to one for "
                    "prompts.",
                    q.prefill->max_local));
}

ServedOptions options_of(const PlayedServer& s, const ServiceAnswer& a) {
  ServedOptions out;
  // Of a knob that was turned twice the last one was played.
  std::map<std::string, KnobParts> turned;
  for (const std::string& text : s.turned) {
    const KnobParts knob = knob_parts(text);
    turned[knob.name] = knob;
  }
  const auto put_all = [&](const auto& knobs) {
    put_caps(out, knobs, s, longest_of(s, a));
    for (const auto& of_name : turned) put_knob(out, of_name.second, knobs);
  };
  std::visit(put_all, s.knobs.of);
  const long long largest = s.on.engine->graphs.empty() ? 0 : s.on.engine->graphs.back();
  // Of a step; [R38] as many again are active in each stage more.
  const auto* trtllm = std::get_if<TrtllmKnobs>(&s.knobs.of);
  out.graphs = std::min<long long>(largest, trtllm != nullptr ? trtllm->max_batch_size : s.knobs.requests());
  if (a.question.prefill)
    put_pair_routing(out, a.question);
  else
    put_routing(out, a.question, std::holds_alternative<SglangKnobs>(s.knobs.of));
  return out;
}

// Of no step that was played.
Plan without_batch(Plan plan) {
  plan.batch = 1;
  return plan;
}

// Buffers of hand-offs, which the cache's part of memory leaves room for, are those that were played.
Case with_buffers(Case c, const ServiceKnobs& knobs) {
  const auto* trtllm = std::get_if<TrtllmKnobs>(&knobs.of);
  if (trtllm != nullptr && trtllm->max_tokens_in_buffer > 0)
    c.served = {trtllm->max_tokens_in_buffer, std::max(1LL, c.served.output)};
  return c;
}

Launch launch_of_pair(const Study& study, const ServiceAnswer& a, const std::string& stem) {
  const PrefillQuestion& q = *a.question.prefill;
  const Case &answers = study.study, &on = q.study(study).study;
  const EngineProfile& engine = *answers.engine;
  const Plan prompts = without_batch(q.plan), plan = without_batch(a.question.plan);
  // A step of its prompts is what memory is reckoned with.
  const ContextServer context =
      context_server(on, *on.engine, prompts, std::max(1LL, a.longest - a.question.output));
  const ServedOptions of_prompts = prefill_options(on, a), of_answers = served_options(answers, a);
  const Case prefills = with_buffers(context.study, *a.prefill_knobs),
             decodes = with_buffers(answers, a.knobs);
  return launch_pair_under_rules({prefills, context.plan, q.replicas, &of_prompts},
                                 {decodes, plan, a.question.replicas, &of_answers}, engine, stem);
}

}  // namespace

ServedOptions served_options(const Case& c, const ServiceAnswer& a) {
  return options_of({c, a.question.plan, a.knobs, a.question.knobs,
                     a.question.prefill ? PairRole::decodes : PairRole::none},
                    a);
}

ServedOptions prefill_options(const Case& c, const ServiceAnswer& a) {
  SL_CHECK(a.question.prefill && a.prefill_knobs, "a pool prefills");
  return options_of(
      {c, a.question.prefill->plan, *a.prefill_knobs, a.question.prefill->knobs, PairRole::prefills}, a);
}

Launch launch_of_service(const Study& study, const ServiceAnswer& a, const std::string& stem) {
  if (a.question.prefill) return launch_of_pair(study, a, stem);
  const Case& c = study.study;
  const ServedOptions served = served_options(c, a);
  return launch_under_rules(c, without_batch(a.question.plan), *c.engine, stem, a.question.replicas, &served);
}

}  // namespace shardline
