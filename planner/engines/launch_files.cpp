#include "planner/engines/launch_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/engines/checkpoints.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/engines/launch_server.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/search/memory.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/error.hpp"

namespace shardline {

using launch::Role, launch::Server;

namespace {

struct Engine {
  const char* profile;
  std::vector<std::string> (*lines)(const Server&);
  std::vector<LaunchFile> (*server)(const Server&);
  std::vector<LaunchFile> (*front)(const Server& context, const Server& generation, const std::string& stem);
  std::vector<LaunchFile> (*router)(const Server&, const std::string& stem);
  const char* cache;  // the option of its type
};

constexpr std::array kEngines{
    Engine{"vllm", launch::vllm_lines, launch::vllm_server, launch::vllm_front, launch::vllm_router,
           "--kv-cache-dtype"},
    Engine{"sglang", launch::sglang_lines, launch::sglang_server, launch::sglang_front, launch::sglang_router,
           "--kv-cache-dtype"},
    Engine{"trtllm", launch::tensorrt_llm_lines, launch::tensorrt_llm_server, launch::tensorrt_llm_front,
           launch::tensorrt_llm_router, "kv_cache_config.dtype"},
};

const Engine* engine_of(const EngineProfile& profile) {
  const auto same = [&](const Engine& e) { return e.profile == profile.name; };
  const auto at = std::find_if(kEngines.begin(), kEngines.end(), same);
  return at == kEngines.end() ? nullptr : &*at;
}

// The deployment of an engine for a plan, or why there is none.
std::string find_deployment(const Case& c, const Plan& p, const EngineProfile& engine, Deployment& out) {
  for (Deployment& d : deployments(c, p)) {
    if (d.profile != engine.name) continue;
    out = std::move(d);
    return "";
  }
  return fmt::format("{} documents no way to run {} of {}", engine.title, to_string(p.strategy),
                     c.model.name);
}

void append(std::vector<LaunchFile>& to, std::vector<LaunchFile> files) {
  for (LaunchFile& f : files) to.push_back(std::move(f));
}

// The server is told what was played.
void play(Server& s, const ServedOptions* served) {
  if (served == nullptr) return;
  s.served = served;
  for (const LaunchOption& e : served->environment) put(s.deployment.environment, e.name, e.value);
  for (const std::string& note : served->notes) s.deployment.notes.push_back(note);
}

Launch refused(Launch launch, std::string why) {
  launch.refused = std::move(why);
  launch.servers.clear();
  launch.files.clear();
  return launch;
}

std::string title_of(const Server& s) {
  const char* role = s.role == Role::context      ? "for prompts, "
                     : s.role == Role::generation ? "for answers, "
                                                  : "";
  const int n = launch::machines(s), gpus = s.plan.gpus(), servers = s.replicas.count;
  const std::string each = servers > 1 ? fmt::format("{}{} servers, each ", role, servers) : role;
  if (n > 1) return fmt::format("{}{} GPUs on {} machines", each, gpus, n);
  return fmt::format("{}{} GPU{} of one machine", each, gpus, gpus == 1 ? "" : "s");
}

LaunchedServer typed(const Engine& engine, const Server& s) {
  LaunchedServer out{title_of(s), engine.lines(s), {}};
  if (checkpoint_of(s.study).empty())
    out.notes.push_back(
        fmt::format("MODEL: a checkpoint of {} with {}", s.study.model.name, stored_types(s.study)));
  out.notes.insert(out.notes.end(), s.deployment.notes.begin(), s.deployment.notes.end());
  return out;
}

// What a server's prompts were taken for, of those who read its files alone.
std::vector<std::string> notes_on_prompts(const Server& s) {
  std::vector<std::string> out;
  const bool serves = s.role == Role::whole && s.study.served.total() > 0;
  if (s.role == Role::context && s.served == nullptr) {
    const Segment& prompt = s.study.batch.prefill.front();
    const char* group = s.plan.dp > 1 ? " of each attention group" : "";
    out.push_back(s.plan[kPrefillChunk] > 0 && s.plan[kPrefillChunk] < prompt.length()
                      ? fmt::format("Steps of {} tokens of one prompt{}.", s.plan[kPrefillChunk], group)
                      : fmt::format("Steps of at most {} prompt{} of {} tokens{}.",
                                    sequences_of_step(s.study, s.plan), prompt.count == 1 ? "" : "s",
                                    prompt.length(), group));
  }
  // Buffers of DeepEP's kernels of few tokens have places for no more.
  const long long budget = launch::token_budget(s), usual = s.engine.tokens_of_step(s.study.system.device),
                  length = s.study.longest();
  if (s.role == Role::whole && s.study.batch.kind() == StepKind::decode && !serves && budget < usual)
    out.push_back(fmt::format(
        "Prompts are in none of its times: its steps hold {} tokens, those of answers among them, "
        "so that a prompt of {} takes {} steps or more ({} of the engine's own {} tokens). A "
        "workload (input, output) prices prompts, too.",
        budget, length, (length + budget - 1) / budget, (length + usual - 1) / usual, usual));
  if (serves && holds_prompts(s.study, s.plan))
    out.push_back(fmt::format(
        "The {} attention groups hold prompts back for each other (--enable-prefill-delayer).", s.plan.dp));
  else if (s.plan.dp > 1 && serves)
    out.push_back(fmt::format(
        "The {} attention groups step together, each with prompts of its own: the tokens of a group "
        "take as long as the prompts of any other.",
        s.plan.dp));
  else if (s.plan.dp > 1 && s.study.batch.prefills())
    out.push_back(
        fmt::format("The {} attention groups are taken to prefill in the same steps: where one has no "
                    "prompt, it waits for those that have.",
                    s.plan.dp));
  return out;
}

// The files of one server, or why there are none.
std::string write_server(Launch& out, const Engine& engine, Server s) {
  for (std::string& note : notes_on_prompts(s)) s.deployment.notes.push_back(std::move(note));
  out.servers.push_back(typed(engine, s));
  std::string why = launch::refusal(s);
  if (why.empty()) append(out.files, engine.server(s));
  return why;
}

Launch write_pair(Launch out, const Engine& engine, Server context, Server generation,
                  const std::string& stem) {
  context.role = Role::context;
  context.stem = stem + "_context";
  generation.role = Role::generation;
  generation.stem = stem + "_generation";
  context.with_helix = generation.with_helix =
      strategy(generation.plan.strategy).launched_as == LaunchedAs::helix;
  launch::place({&context, &generation});
  for (const Server* s : {&generation, &context}) {
    if (const std::string why = write_server(out, engine, *s); !why.empty())
      return refused(std::move(out), why);
  }
  append(out.files, engine.front(context, generation, stem + "_front"));
  return out;
}

// The first row of the table that is an engine's feature.
StrategyId first_launched_as(LaunchedAs feature) {
  for (const Strategy* s : strategies()) {
    if (s->launched_as == feature) return id_of(*s);
  }
  SL_CHECK(false, "every feature of a server has a strategy");
  return {};
}

// A prompt's server beside generation servers of Helix: tensor parallelism over as many GPUs, which splits
// the FFN as they do; attention DP where they have it.
Plan context_plan(const Plan& generation) {
  Plan p = generation;
  p.strategy = first_launched_as(p.dp > 1   ? LaunchedAs::attention_dp
                                 : p.pp > 1 ? LaunchedAs::pipeline
                                            : LaunchedAs::tensor);
  p.options = {};
  p.kvp = 1;
  p.tpa = generation.dp > 1 ? 1 : generation.kvp * generation.tpa;
  p.dp = generation.dp > 1 ? generation.ranks_per_stage() : 1;
  p.in_flight = p.pp;
  p.batch = 1;
  return p;
}

}  // namespace

Case started_by(const EngineProfile& profile, const Case& c) {
  Case out = c;
  if (!out.engine) out.engine = std::make_shared<const EngineProfile>(profile);
  return out;
}

Launch launch_files(const Case& study, const Plan& p, const EngineProfile& profile, const std::string& stem,
                    int copies, const ServedOptions* served) {
  Launch out{profile.title + " " + profile.version, {}, {}, {}};
  const Engine* engine = engine_of(profile);
  if (engine == nullptr) return refused(std::move(out), "no launch files are known of it");
  const Case c = started_by(profile, study);
  Server server{c, p, profile, Role::whole, {}, stem};
  server.replicas.count = copies;
  if (const std::string why = find_deployment(c, p, profile, server.deployment); !why.empty())
    return refused(std::move(out), why);
  SL_CHECK(served == nullptr || !server.deployment.generation_only,
           "requests are played on servers that do both");
  play(server, served);
  if (server.deployment.generation_only) {
    const long long input = c.served.total() > 0 ? c.served.input : c.longest();
    const ContextServer prompts = context_server(c, profile, context_plan(p), input);
    Server context{prompts.study, prompts.plan, profile, Role::context, {}, stem};
    context.replicas.count = copies;
    if (const std::string why = find_deployment(prompts.study, prompts.plan, profile, context.deployment);
        !why.empty())
      return refused(std::move(out), why);
    if (const auto why = does_not_fit(prompts.study, memory_use(prompts.study, prompts.plan)))
      context.deployment.notes.push_back(
          fmt::format("On these GPUs it does not fit ({}): give it more, or other ones.", *why));
    context.deployment.notes.emplace_back(
        "Its own sharding is no part of the answer: a sweep with phase: prefill finds the best.");
    return write_pair(std::move(out), *engine, std::move(context), std::move(server), stem);
  }
  launch::place({&server});
  if (const std::string why = write_server(out, *engine, server); !why.empty())
    return refused(std::move(out), why);
  if (copies > 1) append(out.files, engine->router(server, stem + "_front"));
  return out;
}

std::string cache_option(const EngineProfile& profile, Dtype kv) {
  const Engine* engine = engine_of(profile);
  const std::string name = engine == nullptr ? "" : launch::kv_name(profile, kv);
  return name.empty() ? "" : engine->cache + (" " + name);
}

Launch launch_pair(const ServedHalf& context, const ServedHalf& generation, const EngineProfile& profile,
                   const std::string& stem) {
  Launch out{profile.title + " " + profile.version, {}, {}, {}};
  const Engine* engine = engine_of(profile);
  if (engine == nullptr) return refused(std::move(out), "no launch files are known of it");
  Case of_prompts = started_by(profile, context.study), of_answers = started_by(profile, generation.study);
  of_prompts.disaggregated = of_answers.disaggregated = true;
  Server prompts{of_prompts, context.plan, profile, Role::context, {}, stem};
  Server answers{of_answers, generation.plan, profile, Role::generation, {}, stem};
  prompts.replicas.count = context.servers;
  answers.replicas.count = generation.servers;
  for (Server* s : {&prompts, &answers}) {
    if (const std::string why = find_deployment(s->study, s->plan, profile, s->deployment); !why.empty())
      return refused(std::move(out), why);
  }
  play(prompts, context.served);
  play(answers, generation.served);
  if (const auto why = does_not_pair(profile, context.study, context.plan, generation.plan))
    return refused(std::move(out), fmt::format("{}: {} ({})", why->says, why->text, why->source));
  return write_pair(std::move(out), *engine, std::move(prompts), std::move(answers), stem);
}

}  // namespace shardline
