#include "planner/engines/launch_server.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/engines/checkpoints.hpp"
#include "planner/engines/dispatch_room.hpp"
#include "planner/engines/launch_rules.hpp"
#include "planner/layers/share.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline::launch {

Machines machines_of(const Server& s) {
  return rules_named(s.engine.name).machines(s.study, s.plan).value_or(filled_machines(s.study, s.plan));
}

int machines(const Server& s) { return machines_of(s).count; }

int gpus_on_each(const Server& s) { return machines_of(s).each; }

std::string gpus_text(const Machines& m) {
  return m.even() ? fmt::format("{} GPUs", m.each)
                  : fmt::format("{} GPUs and {} on the last", m.each, m.last);
}

long long graph_requests(const Server& s) {
  return s.served != nullptr ? s.served->graphs : sequences_of_step(s.study, s.plan);
}

KeptOf kept_of(const Server& s) {
  KeptOf of = shardline::kept_of(s.study, s.engine, s.plan);
  of.requests = graph_requests(s);
  return of;
}

void put_served(const Server& s, LaunchOptions& options) {
  if (s.served == nullptr) return;
  constexpr std::string_view kNo = "--no-";
  for (const LaunchOption& o : s.served->options) {
    if (o.name.starts_with(kNo))
      std::erase_if(
          options, [&](const LaunchOption& other) { return other.name == "--" + o.name.substr(kNo.size()); });
    put(options, o.name, o.value);
  }
}

long long token_budget(const Server& s) {
  const Case& c = s.study;
  // Of these kernels each token of the budget has a place in the buffers of every expert.
  if (const long long room = s.engine.name == "vllm" ? dispatch_room(c, s.plan) : 0; room > 0) return room;
  // A prompt that passes whole needs them all; beside steps that only decode prompts come as the engine cuts
  // them.
  const long long tokens =
      c.batch.prefills() ? step_tokens(c, s.plan) : s.engine.tokens_of_step(c.system.device);
  // vLLM refuses fewer (config/scheduler.py:286-291 at v0.24.0).
  return std::max(tokens, sequences(c, s.plan) * new_tokens(s.plan));
}

std::string kv_name(const EngineProfile& engine, Dtype cache) {
  const Dtype kv = kernel_type(cache);
  if (engine.name == "vllm") return vllm_kv(kv);
  return engine.name == "sglang" ? sglang_kv(kv) : tensorrt_llm_kv(kv);
}

std::string kv_name(const Server& s) { return kv_name(s.engine, s.study.precision.kv); }

std::string refusal(const Server& s) {
  if (!s.deployment.unsaid.empty()) return s.deployment.unsaid;
  if (const auto none = no_machines(s.study, s.plan, rules_named(s.engine.name).machines))
    return fmt::format("{}: {}", s.engine.title, *none);
  if (kv_name(s).empty())
    return fmt::format("{} has no KV cache in {}", s.engine.title, to_string(s.study.precision.kv));
  if (beyond_model(s.study) && !s.study.any_context)
    return fmt::format("{} tokens are beyond the {} that {} is for; {} lifts that", served_length(s.study),
                       s.study.model.max_context, s.study.model.name, argument_name("any-context"));
  return s.engine.name == "sglang" ? sglang_refusal(s) : "";
}

namespace {

std::string assignment(const Variable& v) {
  if (!v.required.empty()) return fmt::format("{}=${{{}:?{}}}\n", v.name, v.name, shell_message(v.required));
  return fmt::format("{}=${{{}:-{}}}\n", v.name, v.name, v.value);
}

}  // namespace

std::string plan_text(const Server& s) {
  if (s.served == nullptr) return to_string(s.plan);
  Plan plan = s.plan;
  plan.set(kPrefillChunk, 0);  // prompts are cut as the scheduler does
  return sharding_text(plan) + ", for requests as they come";
}

std::string script_head(const Server& s, const std::vector<std::string>& says,
                        const std::vector<Variable>& variables) {
  const Case& c = s.study;
  std::string out = fmt::format("#!/bin/bash\n# {} {}: {} on {}\n# {}\n", s.engine.title, s.engine.version,
                                c.model.name, c.system.name, plan_text(s));
  const std::string unread = types_not_read(c);
  out += fmt::format("# Its times are of {}; {}.\n", stored_types(c),
                     unread.empty() ? "a published checkpoint may keep some of them wider" : unread);
  for (const std::string& line : says) out += "# " + line + "\n";
  for (const std::string& line : says_of_replicas(s)) out += "# " + line + "\n";
  for (const std::string& note : s.deployment.notes) out += "# " + note + "\n";
  out += "# Further options of the engine may follow this script's name.\nset -euo pipefail\n";
  const std::string checkpoint = checkpoint_of(c);
  std::vector<Variable> all{{"MODEL", checkpoint, ""}};
  if (checkpoint.empty())
    all.front().required = fmt::format("a checkpoint of {} with {}", c.model.name, stored_types(c));
  all.insert(all.end(), variables.begin(), variables.end());
  for (const Variable& v : all) out += assignment(v);
  return out + replica_lines(s);
}

std::string exports(const Server& s) {
  std::string out;
  for (const LaunchOption& e : s.deployment.environment) out += "export " + e.name + "=" + e.value + "\n";
  return out;
}

std::string typed_command(const Server& s, const std::string& command, const LaunchOptions& options) {
  const std::string checkpoint = checkpoint_of(s.study);
  std::string out;
  for (const LaunchOption& e : s.deployment.environment) out += e.name + "=" + e.value + " ";
  out += fmt::format(fmt::runtime(command), checkpoint.empty() ? "MODEL" : checkpoint);
  for (const LaunchOption& o : options) out += " " + command_text(o);
  return out;
}

std::string run_on_each(const Server& s) {
  const Machines m = machines_of(s);
  return fmt::format("Run it on {} machines of {}, with NODE_RANK 0 to {}; node 0 answers.", m.count,
                     gpus_text(m), m.count - 1);
}

std::vector<Variable> variables_of_machine(const Server& s, const Ports& ports) {
  std::vector<Variable> out = replica_variables(s, ports);
  if (machines(s) == 1) return out;
  out.push_back({"NODE_RANK", "", "the number of this machine, from 0"});
  out.push_back({"HEAD_ADDR", "", "the address of machine 0"});
  return out;
}

std::string continued(const std::string& command, const LaunchOptions& options,
                      const std::vector<std::string>& last) {
  std::string out = command;
  for (const LaunchOption& o : options) out += " \\\n  " + command_text(o);
  for (const std::string& word : last) out += " \\\n  " + word;
  return out + " \\\n  \"$@\"\n";
}

}  // namespace shardline::launch
