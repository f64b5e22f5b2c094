#include "planner/studies/service_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "planner/engines/deploy.hpp"
#include "planner/studies/knob_text.hpp"
#include "planner/studies/plan_launches.hpp"

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
  if (number) return put(out.options, dashed(knob.name), knob.value);
  put(out.options, dashed((knob.value == "true" ? "" : "no_") + knob.name));
}

// What is a variable and no option: srt/environ.py@21ff4b08a196, "new token ratio hyperparameters".
constexpr std::array kSglangVariables{"init_new_token_ratio", "min_new_token_ratio_factor",
                                      "new_token_ratio_decay_steps", "clip_max_new_tokens_estimation",
                                      "retract_decode_steps"};

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
  if (none && knob.name == "prefill_max_requests") return;
  put(out.options, dashed(knob.name), none && knob.name == "chunked_prefill_size" ? "-1" : knob.value);
}

// Sections of llmapi/llm_args.py: SchedulerConfig, KvCacheConfig.
void put_knob(ServedOptions& out, const KnobParts& knob, const TrtllmKnobs& knobs) {
  if (knob.name == "blocks")
    return put(out.options, "kv_cache_config.max_tokens",
               static_cast<long long>(knobs.blocks) * knobs.tokens_per_block);
  const bool schedules = knob.name.ends_with("_policy");
  const bool caches = knob.name == "tokens_per_block" || knob.name == "enable_block_reuse";
  put(out.options,
      (schedules ? "scheduler_config."
       : caches  ? "kv_cache_config."
                 : "") +
          knob.name,
      knob.value);
}

// A request of the load fits, and one of the question; no more than the scheduler takes.
long long longest_of(const Case& c, const ServiceAnswer& a) {
  return std::min<long long>(a.knobs.longest(), std::max(a.longest, c.served.total()));
}

void put_caps(ServedOptions& out, const VllmKnobs& k, const Plan& /*plan*/, long long longest) {
  put(out.options, "--max-num-batched-tokens", k.max_num_batched_tokens);
  put(out.options, "--max-num-seqs", k.max_num_seqs);
  put(out.options, "--max-model-len", longest);
}

// The engine divides requests among its attention groups (server_args.py, _handle_data_parallelism), and
// chunks: these are its default's, which its own files say.
void put_caps(ServedOptions& out, const SglangKnobs& k, const Plan& plan, long long longest) {
  put(out.options, "--max-running-requests", static_cast<long long>(k.max_running_requests) * plan.dp);
  put(out.options, "--context-length", longest);
}

void put_caps(ServedOptions& out, const TrtllmKnobs& k, const Plan& /*plan*/, long long longest) {
  put(out.options, "max_batch_size", k.max_batch_size);
  put(out.options, "max_num_tokens", k.max_num_tokens);
  put(out.options, "max_seq_len", longest);
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

}  // namespace

ServedOptions served_options(const Case& c, const ServiceAnswer& a) {
  ServedOptions out;
  const Plan& plan = a.question.plan;
  // Of a knob that was turned twice the last one was played.
  std::map<std::string, KnobParts> turned;
  for (const std::string& text : a.question.knobs) {
    const KnobParts knob = knob_parts(text);
    turned[knob.name] = knob;
  }
  const auto put_all = [&](const auto& knobs) {
    put_caps(out, knobs, plan, longest_of(c, a));
    for (const auto& of_name : turned) put_knob(out, of_name.second, knobs);
  };
  std::visit(put_all, a.knobs.of);
  const long long largest = c.engine->graphs.empty() ? 0 : c.engine->graphs.back();
  out.graphs = std::min<long long>(largest, a.knobs.requests());
  put_routing(out, a.question, std::holds_alternative<SglangKnobs>(a.knobs.of));
  return out;
}

Launch launch_of_service(const Case& c, const ServiceAnswer& a, const std::string& stem) {
  if (a.load.pair) {
    Launch out{c.engine->title + " " + c.engine->version, {}, {}, {}};
    out.refused =
        "those of a pair of pools say the steps that a sweep prices, not a scheduler's options: a "
        "sweep of the same question writes them";
    return out;
  }
  Plan plan = a.question.plan;
  plan.batch = 1;  // of no step that was played
  const ServedOptions served = served_options(c, a);
  return launch_under_rules(c, plan, *c.engine, stem, a.question.replicas, &served);
}

}  // namespace shardline
