#include "planner/studies/service_knobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "planner/engines/architectures.hpp"
#include "planner/engines/deploy.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/layers/two_batches.hpp"
#include "planner/requests/vllm_drafts.hpp"
#include "planner/requests/vllm_pipeline.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/serving/served_plan.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/draft_caps.hpp"
#include "planner/studies/knob_tables.hpp"
#include "planner/studies/service_room.hpp"
#include "planner/studies/stage_notes.hpp"
#include "planner/studies/trtllm_knobs.hpp"
#include "planner/studies/window_pools.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// What the server's options are to one of its attention groups (sgl-project/sglang at 49e384ce9d,
// server_args.py, `_handle_data_parallelism`: tokens and conservativeness; model_executor/
// model_runner_kv_cache_mixin.py, `_resolve_max_num_reqs`).
void of_one_group(SglangKnobs& knobs, std::uint32_t groups) {
  const auto part = [&](std::uint32_t& of) {
    if (of > 0) of = std::max(1U, of / groups);
  };
  part(knobs.chunked_prefill_size);
  part(knobs.max_running_requests);
  knobs.schedule_conservativeness *= 0.3;
}

// Options of a pool that the model does not have.
void require_windows(const Case& c, const std::vector<std::string>& overrides, const KnobsGiven& given) {
  for (const std::string& text : overrides) {
    if (!knob_parts(text).name.starts_with("swa_")) continue;
    throw UserError(fmt::format("{} {}: {} has no layers with windows that {} keeps in a pool of their own",
                                argument_name(given.option), text, c.model.name, c.engine->title));
  }
}

// Options of micro-batches, of which a plan without stages has one, and those that stages do not start with.
void require_stages(const SglangKnobs& knobs, const Plan& plan, const std::vector<std::string>& overrides,
                    const KnobsGiven& given) {
  if (plan.pp > 1 && knobs.enable_mixed_chunk)
    throw UserError(fmt::format(
        "{} enable_mixed_chunk=true: SGLang does not start with it where there are stages, as in {}",
        argument_name(given.option), to_string(plan)));
  if (plan.pp > 1) return;
  for (const std::string& text : overrides) {
    const std::string name = knob_parts(text).name;
    if (name != kMicroBatchSize && name != kBatchDepth) continue;
    throw UserError(fmt::format("{} {}: {} has no stages: name a plan that has, as {}",
                                argument_name(given.option), text, to_string(plan),
                                argument_given("plan", "pipeline:pp=2,tpa=4,tpf=4,in_flight=2")));
  }
}

// server_args.py and managers/prefill_delayer.py: "To use PrefillDelayer, disable_overlap_schedule must be
// False", which stages set themselves.
void require_delayer(const SglangKnobs& knobs, const Case& c, const Plan& plan, PairRole role,
                     const KnobsGiven& given) {
  if (!knobs.enable_prefill_delayer && role == PairRole::none && holds_prompts(c, plan))
    throw UserError(fmt::format("{} {}=false contradicts engine.prefill_delayer: true",
                                argument_name(given.option), kDelayer));
  if (!knobs.enable_prefill_delayer) return;
  const std::string text = fmt::format("{} {}=true", argument_name(given.option), kDelayer);
  if (knobs.disable_overlap_schedule)
    throw UserError(text + ": SGLang does not start with it and disable_overlap_schedule=true");
  if (plan.pp > 1)
    throw UserError(fmt::format("{}: SGLang does not start with it where there are stages, as in {}", text,
                                to_string(plan)));
  if (role == PairRole::prefills)
    throw UserError(text + ": on a server that computes prompts for another it is not played yet");
}

// Both pools of a model with windows, but for what is said of them.
void split_pools(SglangKnobs& knobs, const Case& c, const Plan& plan, std::uint32_t requests,
                 long long mean_tokens) {
  const WindowPools pools = window_pools(c, plan, requests, mean_tokens, knobs.swa_full_tokens_ratio);
  if (pools.tokens < knobs.page_size) no_room(c, plan, mean_tokens);
  knobs.swa_full_tokens_ratio = pools.ratio;
  if (knobs.max_total_tokens == 0)
    knobs.max_total_tokens = static_cast<std::uint32_t>(pools.tokens / knobs.page_size * knobs.page_size);
}

SglangKnobs sglang_knobs(const Case& c, const Plan& plan, const std::vector<std::string>& overrides,
                         long long mean_tokens, PairRole role, const KnobsGiven& given) {
  SglangKnobs knobs;
  const Device& device = c.system.device;
  knobs.chunked_prefill_size = static_cast<std::uint32_t>(c.engine->tokens_of_step(device));
  // trtllm_mha and trtllm_mla, its backends there, have pages of 64, and FlashAttention 3 of 1
  // (sgl-project/sglang, server_args.py: "TensorRT-LLM MHA only supports page_size of 16, 32 or 64").
  knobs.page_size = architecture_of(device) == Architecture::blackwell ? 64 : 1;
  knobs.max_running_requests = knobs.context_length = knobs.max_total_tokens = 0;
  const bool windows = has_window_pool(c);
  if (windows) knobs.swa_full_tokens_ratio = 0;
  knobs.pp_size = static_cast<std::uint32_t>(plan.pp);
  knobs.enable_prefill_delayer = role == PairRole::none && holds_prompts(c, plan);
  set_knobs(knobs, overrides, given);
  require_stages(knobs, plan, overrides, given);
  require_delayer(knobs, c, plan, role, given);
  if (windows)
    knobs.sliding_window = sliding_window(c);
  else
    require_windows(c, overrides, given);
  if (plan[kDrafts] > 0 && knobs.max_running_requests == 0) knobs.max_running_requests = kSglangDrafting;
  if (plan.dp > 1) of_one_group(knobs, static_cast<std::uint32_t>(plan.dp));
  knobs.page_size = on_sharers(knobs.page_size, sharers_of(c, plan));
  const std::uint32_t most =
      knobs.max_running_requests > 0 ? knobs.max_running_requests : std::numeric_limits<std::uint32_t>::max();
  if (windows) split_pools(knobs, c, plan, most, mean_tokens);
  if (knobs.max_total_tokens == 0) {
    knobs.max_total_tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        1U << 31,
        std::uint64_t{blocks_that_fit(c, plan, knobs.page_size, most, mean_tokens)} * knobs.page_size));
  }
  if (knobs.context_length == 0) knobs.context_length = longest_of(c, knobs.max_total_tokens, mean_tokens);
  // model_runner.py, init_memory_pool: max_num_reqs.
  if (knobs.max_running_requests == 0) {
    knobs.max_running_requests = static_cast<std::uint32_t>(
        std::clamp(static_cast<double>(knobs.max_total_tokens) / knobs.context_length * 512, 2048.0, 4096.0));
  }
  return knobs;
}

// Caches of several kinds have pages of their own for each in these engines, and rules of their own.
std::optional<std::string> several_caches(const Case& c, const Plan& plan) {
  if (same_engine(c.engine->name, "vllm")) return std::nullopt;
  for (const Attention& a : c.model.attentions) {
    if (a.recurrent() && !same_engine(c.engine->name, "trtllm"))
      return fmt::format("{} keeps states of requests in a pool of their own, which is not played yet",
                         c.engine->title);
  }
  if (has_window_pool(c)) return no_play_of_windows(c, plan);
  for (const Attention& a : c.model.attentions) {
    if (a.reach.local() && !c.engine->pools.keeps_windows_whole(c.model.architecture))
      return fmt::format("{} keeps windows in a pool of their own, which is not played yet", c.engine->title);
  }
  return std::nullopt;
}

// A plan of as many GPUs that is played; nothing where no plan of one attention group is.
std::optional<Plan> nearest_play(const Case& c, const Plan& plan) {
  for (const Strategy* s : strategies()) {
    if (s->launched_as != LaunchedAs::tensor) continue;
    Plan other;
    other.strategy = id_of(*s);
    other.tpa = plan.gpus();
    for (const bool experts : {true, false}) {
      other.ep = experts ? plan.gpus() : 1;
      other.tpf = experts ? 1 : plan.gpus();
      if (!check_plan(c, other) && !does_not_start(c, other) && !no_play(c, other)) return other;
    }
  }
  return std::nullopt;
}

// Schedulers that are without drafts.
std::optional<std::string> no_play_of_drafts(const Case& c) {
  if (!has_recurrence(c.model)) return std::nullopt;
  return "its states are rolled back where a draft is rejected, and take 1 + drafts places each, which is "
         "not played yet: sweep and plan have such drafts on average";
}

// [R36] Several steps on their way at once.
std::optional<std::string> no_play_of_steps(const Case& c, const Plan& plan, bool prompts) {
  if (plan.pp == 1 && plan.in_flight == 1) return std::nullopt;
  if (plan.pp == 1)
    return fmt::format("its {} microbatches are as many steps on their way at once, which is not played yet",
                       plan.in_flight);
  if (prompts) return "a pipeline of a pool of prompts is not played yet";
  if (plan.dp > 1) return "its attention groups would meet in every stage, which is not played yet";
  const bool trtllm = same_engine(c.engine->name, "trtllm");
  if (plan.in_flight != plan.pp)
    return fmt::format(
        "the engine {}: in_flight={}",
        trtllm ? "launches steps as long as somebody is in none" : "has a step on its way for each stage",
        plan.pp);
  if (plan[kDrafts] > 0) return "drafts in stages are not played yet";
  if (trtllm && has_recurrence(c.model)) return "states of requests in stages are not played yet";
  if (same_engine(c.engine->name, "sglang") && has_window_pool(c))
    return "windows in stages, each micro-batch of which drops its own, are not played yet";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> no_play(const Case& c, const Plan& plan, bool prompts) {
  if (!c.engine)
    return "bare kernels have no scheduler: name an engine that has, as " + argument_given("engine", "vllm");
  if (!same_engine(c.engine->name, "vllm") && !same_engine(c.engine->name, "sglang") &&
      !same_engine(c.engine->name, "trtllm"))
    return fmt::format("the scheduler of {} is not played, those of vllm, sglang and trtllm are",
                       c.engine->title);
  if (plan[kDrafts] > 0) {
    if (auto reason = no_play_of_drafts(c)) return reason;
  }
  if (plan.dp > 1 && overlaps_batches(plan))
    return "its attention groups agree in every step whether they halve their batches, which is not played "
           "yet";
  if (auto reason = no_play_of_steps(c, plan, prompts)) return reason;
  if (!prompts && !serves_prompts(c, plan.strategy)) return "it needs a pool of its own for prompts";
  for (const Attention& a : c.model.attentions) {
    if (a.compression && c.engine->pools.compressed_block == 0)
      return "its layers keep rows of several tokens in pools of their own, which are not played yet";
    if (a.reach.local() && !a.reach.slides())
      return "its layers attend to chunks, so that a step depends on where in its chunk each request is";
  }
  return several_caches(c, plan);
}

void require_play(const Case& c, const Plan& plan, bool prompts) {
  const auto reason = no_play(c, plan, prompts);
  if (!reason) return;
  const std::string text =
      fmt::format("{} cannot be served request by request: {}", to_string(plan), *reason);
  const auto other = plan.dp > 1 && c.engine ? nearest_play(c, plan) : std::nullopt;
  if (!other) throw UserError(text);
  throw UserError(
      {Diagnostic{{}, text, {fmt::format("a plan of as many GPUs that can: {}", to_string(*other))}}});
}

ReplicaGroups groups_of(const ServiceKnobs& knobs, const Plan& plan) {
  const auto count = static_cast<std::size_t>(plan.dp);
  if (std::holds_alternative<VllmKnobs>(knobs.of)) return {count, GroupRouting::fewest};
  if (const auto* k = std::get_if<SglangKnobs>(&knobs.of))
    return {count, GroupRouting::in_turn, 0, 0, delayer_of(*k)};
  SL_CHECK(std::holds_alternative<TrtllmKnobs>(knobs.of), "every scheduler's groups have a router");
  // One group has a queue of its own.
  return {count, count > 1 ? GroupRouting::from_queue : GroupRouting::in_turn, knobs.requests()};
}

VllmKnobs vllm_knobs(const Case& c, const Plan& asked, const std::vector<std::string>& overrides,
                     long long mean_tokens, const KnobsGiven& given) {
  Plan plan = asked;
  plan.batch = 1;
  VllmKnobs knobs;
  const Device& device = c.system.device;
  knobs.max_num_batched_tokens = static_cast<std::uint32_t>(c.engine->tokens_of_step(device));
  // Of an API server: vllm/engine/arg_utils.py:2404-2423 at v0.24.0, as the profile's steps.tokens.
  const bool small =
      device.memory < Bytes(70.0 * (1 << 30)) || architecture_of(device) == Architecture::ampere;
  knobs.max_num_seqs = small ? 256 : 1024;
  knobs.num_gpu_blocks = 0;
  knobs.max_model_len = 0;
  // vllm/config/model.py:1832, is_prefix_caching_supported, which engine/arg_utils.py:2492 takes where nobody
  // says another (@68afd7889723): not of hybrid models.
  knobs.enable_prefix_caching = !has_recurrence(c.model);
  if (has_compression(c.model))
    knobs.block_size = static_cast<std::uint32_t>(c.engine->pools.compressed_block);
  knobs.pipeline_parallel_size = static_cast<std::uint32_t>(plan.pp);
  set_knobs(knobs, overrides, given);
  knobs.block_size = on_sharers(knobs.block_size, sharers_of(c, plan));
  if (knobs.num_gpu_blocks == 0)
    knobs.num_gpu_blocks = blocks_that_fit(c, plan, knobs.block_size, knobs.max_num_seqs, mean_tokens);
  if (knobs.max_model_len == 0)
    knobs.max_model_len = longest_of(c, std::uint64_t{knobs.num_gpu_blocks} * knobs.block_size, mean_tokens);
  return knobs;
}

ServiceKnobs service_knobs(const Case& c, const Plan& asked, const std::vector<std::string>& overrides,
                           long long mean_tokens, PairRole role, const char* option) {
  Plan plan = asked;
  plan.batch = 1;
  const KnobsGiven given{role == PairRole::decodes, option};
  if (same_engine(c.engine->name, "sglang"))
    return {sglang_knobs(c, plan, overrides, mean_tokens, role, given)};
  if (same_engine(c.engine->name, "trtllm")) return {trtllm_knobs(c, plan, overrides, mean_tokens, given)};
  SL_CHECK(same_engine(c.engine->name, "vllm"), "an engine whose requests are played has a scheduler");
  return {vllm_knobs(c, plan, overrides, mean_tokens, given)};
}

DraftLaw draft_law(const Case& c, const Plan& plan, std::uint64_t seed) {
  if (plan[kDrafts] == 0) return {};
  SL_CHECK(c.acceptance, "a plan with drafts has an acceptance");
  return {c.acceptance->at(plan[kDrafts]).survival, seed};
}

std::unique_ptr<Scheduler> scheduler_of(const ServiceKnobs& knobs, const DraftLaw& law) {
  if (const auto* k = std::get_if<SglangKnobs>(&knobs.of))
    return std::make_unique<SglangScheduler>(*k, PairRole::none, law);
  if (const auto* k = std::get_if<TrtllmKnobs>(&knobs.of)) return std::make_unique<TrtllmScheduler>(*k, law);
  const auto& vllm = std::get<VllmKnobs>(knobs.of);
  if (law.drafts() > 0) return std::make_unique<VllmDraftScheduler>(vllm, law);
  if (vllm.pipeline_parallel_size > 1) return std::make_unique<VllmPipelineScheduler>(vllm);
  return std::make_unique<VllmScheduler>(vllm);
}

namespace {

// Of each engine's knobs.
struct Alike {
  std::uint32_t step_tokens, requests, block, blocks, longest;
  bool finds;
  const char* cap;      // the option that caps requests
  bool of_all = false;  // it is of all attention groups together
};

Alike alike(const VllmKnobs& k) {
  return {k.max_num_batched_tokens, k.max_num_seqs,          k.block_size,  k.num_gpu_blocks,
          k.max_model_len,          k.enable_prefix_caching, "max_num_seqs"};
}

Alike alike(const SglangKnobs& k) {
  return {k.chunked_prefill_size > 0 ? k.chunked_prefill_size : k.max_prefill_tokens,
          k.max_running_requests,
          k.page_size,
          k.max_total_tokens / k.page_size,
          k.context_length,
          !k.disable_radix_cache,
          "max_running_requests",
          true};
}

Alike alike(const TrtllmKnobs& k) {
  return {k.max_num_tokens,   k.max_batch_size * k.pipeline_parallel_size,
          k.tokens_per_block, k.blocks,
          k.max_seq_len,      k.enable_block_reuse,
          "max_batch_size"};
}

Alike alike(const ServiceKnobs& knobs) {
  return std::visit([](const auto& k) { return alike(k); }, knobs.of);
}

}  // namespace

std::uint32_t ServiceKnobs::step_tokens() const { return alike(*this).step_tokens; }
std::uint32_t ServiceKnobs::requests() const { return alike(*this).requests; }
std::uint32_t ServiceKnobs::block() const { return alike(*this).block; }
std::uint32_t ServiceKnobs::blocks() const { return alike(*this).blocks; }
std::uint32_t ServiceKnobs::window_blocks() const {
  const auto* k = std::get_if<SglangKnobs>(&of);
  return k == nullptr ? 0 : static_cast<std::uint32_t>(window_pages(*k));
}
std::uint32_t ServiceKnobs::longest() const { return alike(*this).longest; }
bool ServiceKnobs::finds() const { return alike(*this).finds; }

namespace {

// The knob that turns it off, as it is set; empty: the engine works ahead.
std::string not_ahead(const ServiceKnobs& knobs) {
  if (const auto* k = std::get_if<VllmKnobs>(&knobs.of))
    return k->async_scheduling ? "" : "async_scheduling=false";
  if (const auto* k = std::get_if<SglangKnobs>(&knobs.of))
    return k->disable_overlap_schedule ? "disable_overlap_schedule=true" : "";
  const auto& trtllm = std::get<TrtllmKnobs>(knobs.of);
  const bool off = trtllm.disable_overlap_scheduler && trtllm.pipeline_parallel_size == 1;
  return off ? "disable_overlap_scheduler=true" : "";
}

Diagnostic unplayed_batch(const Plan& plan, const ServiceKnobs& knobs) {
  const Alike k = alike(knobs);
  return Diagnostic{
      {},
      fmt::format("batch={} of the plan is not kept: requests are batched as they come, up to {} at once{}",
                  plan.batch, k.requests, plan.dp > 1 ? " in each attention group" : ""),
      {argument_given("knob", fmt::format("{}={}", k.cap,
                                          static_cast<long long>(plan.batch) * (k.of_all ? plan.dp : 1))) +
       " is such a cap"}};
}

}  // namespace

std::vector<Diagnostic> play_notes(const Case& c, const Plan& plan, const ServiceKnobs& knobs) {
  std::vector<Diagnostic> out;
  if (plan.batch != 1) out.push_back(unplayed_batch(plan, knobs));
  note_draft_caps(plan, knobs, out);
  if (const auto* k = std::get_if<TrtllmKnobs>(&knobs.of)) note_states(c, plan, *k, out);
  if (plan.pp > 1) out.push_back(stages_played(knobs));
  const std::string off = not_ahead(knobs);
  if (!off.empty() && !waits_for_host(c, plan)) {
    const StepHost& host = c.system.host;
    out.push_back({{},
                   fmt::format("{}: a step is decided when the one before has ended, but its price has the "
                               "host beside the kernels, as {} was measured",
                               off, c.engine->title),
                   {fmt::format("where the host works between steps they are longer, by at most {} and {} a "
                                "request",
                                to_string(host.step), to_string(host.request))}});
  }
  return out;
}

}  // namespace shardline
