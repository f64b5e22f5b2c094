#include "planner/studies/trtllm_knobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "planner/layers/host_work.hpp"
#include "planner/studies/draft_caps.hpp"
#include "planner/studies/knob_tables.hpp"
#include "planner/studies/service_room.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline {

namespace {

// [R23] A state of each of max_batch_size requests is set aside, whether it runs or not, and blocks have the
// rest. Where nobody says how many, as many requests of the mean length as have room with theirs.
void set_state_slots(TrtllmKnobs& knobs, const Case& c, const Plan& plan, long long mean) {
  const std::uint32_t asked = knobs.max_batch_size, most = TrtllmKnobs{}.max_batch_size;
  const CacheRoom r = cache_room(c, plan, asked > 0 ? asked : most, mean);
  const std::uint32_t fit = blocks_that_fit(c, plan, 1, asked > 0 ? asked : most, mean) > 0
                                ? static_cast<std::uint32_t>(std::min(r.room / r.each, double{most}))
                                : 0;
  if (asked == 0) knobs.max_batch_size = fit;
  knobs.state_slots = knobs.max_batch_size + 1;
  if (knobs.blocks > 0) return;
  knobs.blocks = blocks_beside(r, knobs.tokens_per_block, knobs.max_batch_size);
  if (std::uint64_t{knobs.blocks} * knobs.tokens_per_block < static_cast<std::uint64_t>(mean))
    throw UserError({Diagnostic{
        {},
        fmt::format(
            "states of max_batch_size {} requests take {} of the {} that each GPU has for caches, and "
            "no request of {} tokens has blocks beside them",
            asked, to_string(Bytes(asked * r.fixed)), to_string(Bytes(r.room)), mean),
        {argument_given("knob", fmt::format("max_batch_size={}", fit)) + " has room for as many requests"}}});
}

// [R38] What a plan with stages is not played with.
void require_stages(const TrtllmKnobs& knobs, const Plan& plan, const KnobsGiven& given) {
  if (plan.pp == 1 || knobs.capacity_scheduler_policy != TrtllmPolicy::max_utilization) return;
  throw UserError({Diagnostic{
      {},
      fmt::format("{} capacity_scheduler_policy=MAX_UTILIZATION: TensorRT-LLM pauses nobody where there are "
                  "stages, as in {}, so that blocks that it counts on are not there (its issue 18115)",
                  argument_name(given.option), to_string(plan)),
      {"GUARANTEED_NO_EVICT, the engine's default, or STATIC_BATCH"}}});
}

}  // namespace

TrtllmKnobs trtllm_knobs(const Case& c, const Plan& plan, const std::vector<std::string>& overrides,
                         long long mean_tokens, const KnobsGiven& given) {
  TrtllmKnobs knobs;
  knobs.max_num_tokens = static_cast<std::uint32_t>(c.engine->tokens_of_step(c.system.device));
  knobs.disable_overlap_scheduler = waits_for_host(c, plan);
  knobs.enable_chunked_prefill = true;  // as launch files say it, the engine's own default being false
  knobs.blocks = knobs.max_seq_len = 0;
  const bool states = has_recurrence(c.model);
  if (states) {
    knobs.enable_block_reuse = false;  // as launch files say it
    knobs.max_batch_size = 0;
  }
  knobs.pipeline_parallel_size = static_cast<std::uint32_t>(plan.pp);
  set_knobs(knobs, overrides, given);
  require_stages(knobs, plan, given);
  knobs.max_batch_size = std::min(knobs.max_batch_size, verified_at_once(knobs, plan));
  knobs.tokens_per_block = on_sharers(knobs.tokens_per_block, sharers_of(c, plan));
  if (states)
    set_state_slots(knobs, c, plan, mean_tokens);
  else if (knobs.blocks == 0)
    knobs.blocks = blocks_that_fit(c, plan, knobs.tokens_per_block, knobs.max_batch_size, mean_tokens);
  if (knobs.max_seq_len == 0)
    knobs.max_seq_len = longest_of(c, std::uint64_t{knobs.blocks} * knobs.tokens_per_block, mean_tokens);
  return knobs;
}

void note_states(const Case& c, const Plan& asked, const TrtllmKnobs& knobs, std::vector<Diagnostic>& out) {
  if (knobs.state_slots == 0) return;
  Plan plan = asked;
  plan.batch = 1;
  const double each = cache_room(c, plan, knobs.max_batch_size, 1).fixed;
  out.push_back(
      {{},
       fmt::format("{} sets states of max_batch_size {} requests aside, whether they run or not: {} "
                   "of each GPU, {} a request",
                   c.engine->title, knobs.max_batch_size, to_string(Bytes(each * knobs.max_batch_size)),
                   to_string(Bytes(each))),
       {argument_given("knob", fmt::format("max_batch_size={}", (knobs.max_batch_size + 1) / 2)) +
        " leaves half of that to blocks"}});
}

}  // namespace shardline
