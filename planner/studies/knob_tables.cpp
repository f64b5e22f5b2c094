#include "planner/studies/knob_tables.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/studies/knob_text.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

const std::vector<KnobText<VllmKnobs>>& texts_of(const VllmKnobs& /*unused*/) {
  using K = VllmKnobs;
  static const std::vector<KnobText<K>> known{
      {.name = "max_num_batched_tokens", .number = &K::max_num_batched_tokens},
      {.name = "max_num_seqs", .number = &K::max_num_seqs},
      {.name = "long_prefill_token_threshold",
       .number = &K::long_prefill_token_threshold,
       .may_be_none = true},
      {.name = "block_size", .number = &K::block_size},
      {.name = "max_model_len", .number = &K::max_model_len},
      {.name = "num_gpu_blocks", .number = &K::num_gpu_blocks},
      {.name = "async_scheduling", .flag = &K::async_scheduling},
      {.name = "enable_chunked_prefill", .flag = &K::enable_chunked_prefill},
      {.name = "enable_prefix_caching", .flag = &K::enable_prefix_caching},
      {.name = "scheduler_reserve_full_isl", .flag = &K::scheduler_reserve_full_isl},
      {.name = kLoadFailurePolicy,
       .of_decoder = true,
       .words = {"fail", "recompute"},
       .choose = [](K& k, std::size_t i) { k.recompute_failed_loads = i == 1; }},
  };
  return known;
}

const std::vector<KnobText<SglangKnobs>>& texts_of(const SglangKnobs& /*unused*/) {
  using K = SglangKnobs;
  const auto part_of_both = [](const char* name, double K::*part) {  // nothing reads it in pairs
    return KnobText<K>{.name = name, .idle_in_prefill = true, .idle_in_decode = true, .part = part};
  };
  static const std::vector<KnobText<K>> known{
      {.name = "chunked_prefill_size",
       .number = &K::chunked_prefill_size,
       .may_be_none = true,
       .idle_in_decode = true},
      {.name = "max_prefill_tokens", .number = &K::max_prefill_tokens, .idle_in_decode = true},
      {.name = "prefill_max_requests",
       .number = &K::prefill_max_requests,
       .may_be_none = true,
       .idle_in_decode = true},
      {.name = "max_running_requests", .number = &K::max_running_requests},
      {.name = "page_size", .number = &K::page_size},
      {.name = "context_length", .number = &K::context_length},
      {.name = "max_total_tokens", .number = &K::max_total_tokens},
      part_of_both("schedule_conservativeness", &K::schedule_conservativeness),
      part_of_both("init_new_token_ratio", &K::init_new_token_ratio),
      part_of_both("min_new_token_ratio_factor", &K::min_new_token_ratio_factor),
      {.name = "new_token_ratio_decay_steps",
       .number = &K::new_token_ratio_decay_steps,
       .idle_in_prefill = true,
       .idle_in_decode = true},
      {.name = "clip_max_new_tokens_estimation",
       .number = &K::clip_max_new_tokens_estimation,
       .idle_in_prefill = true},
      {.name = "retract_decode_steps",
       .number = &K::retract_decode_steps,
       .may_be_none = true,
       .idle_in_prefill = true,
       .idle_in_decode = true},
      {.name = "swa_full_tokens_ratio", .part = &K::swa_full_tokens_ratio},
      {.name = "swa_eviction_interval", .number = &K::swa_eviction_interval},
      {.name = kDelayer, .idle_in_decode = true, .flag = &K::enable_prefill_delayer},
      {.name = kDelayPasses, .number = &K::max_delay_passes, .idle_in_decode = true},
      {.name = kLowWatermark, .idle_in_decode = true, .part = &K::token_usage_low_watermark},
      {.name = kQueueRatio, .idle_in_decode = true, .part = &K::queue_min_ratio},
      {.name = kDelayTime, .number = &K::max_delay_ms, .idle_in_decode = true},
      {.name = kMicroBatchSize, .number = &K::pp_max_micro_batch_size, .may_be_none = true},
      {.name = kBatchDepth, .number = &K::pp_async_batch_depth, .may_be_none = true},
      {.name = "disable_overlap_schedule", .flag = &K::disable_overlap_schedule},
      {.name = "enable_mixed_chunk",
       .idle_in_prefill = true,
       .idle_in_decode = true,
       .flag = &K::enable_mixed_chunk},
      {.name = kReservedTokens,
       .number = &K::num_reserved_decode_tokens,
       .may_be_none = true,
       .of_decoder = true},
      {.name = kExtraSlots,
       .number = &K::disaggregation_decode_extra_slots,
       .may_be_none = true,
       .of_decoder = true},
      {.name = "disable_radix_cache", .idle_in_decode = true, .flag = &K::disable_radix_cache},
  };
  return known;
}

const std::vector<KnobText<TrtllmKnobs>>& texts_of(const TrtllmKnobs& /*unused*/) {
  using K = TrtllmKnobs;
  static const std::vector<KnobText<K>> known{
      {.name = "capacity_scheduler_policy",
       .words = {"GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"},
       .choose = [](K& k, std::size_t i) { k.capacity_scheduler_policy = static_cast<TrtllmPolicy>(i); }},
      {.name = "context_chunking_policy",
       .words = {"FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"},
       .choose = [](K& k, std::size_t i) { k.context_chunking_policy = static_cast<TrtllmChunking>(i); }},
      {.name = "max_batch_size", .number = &K::max_batch_size},
      {.name = "max_num_tokens", .number = &K::max_num_tokens},
      {.name = "batch_wait_timeout_iters",
       .number = &K::batch_wait_timeout_iters,
       .may_be_none = true,
       .idle_in_prefill = true},
      {.name = "batch_wait_max_tokens_ratio",
       .idle_in_prefill = true,
       .part = &K::batch_wait_max_tokens_ratio},
      {.name = "tokens_per_block", .number = &K::tokens_per_block},
      {.name = "max_seq_len", .number = &K::max_seq_len},
      {.name = "blocks", .number = &K::blocks},
      {.name = "disable_overlap_scheduler", .flag = &K::disable_overlap_scheduler},
      {.name = "enable_chunked_prefill", .flag = &K::enable_chunked_prefill},
      {.name = "enable_block_reuse", .flag = &K::enable_block_reuse},
      {.name = kBufferTokens, .number = &K::max_tokens_in_buffer, .may_be_none = true, .of_decoder = true},
  };
  return known;
}

template <class Knobs>
std::vector<std::string> names_of(const Knobs& knobs) {
  std::vector<std::string> out;
  for (const KnobText<Knobs>& k : texts_of(knobs)) out.emplace_back(k.name);
  return out;
}

struct EngineKnobs {
  const char* engine;
  std::vector<std::string> names;

  bool has(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
  }
};
const std::vector<EngineKnobs>& engines_knobs() {
  static const std::vector<EngineKnobs> all{{"vllm", names_of(VllmKnobs{})},
                                            {"sglang", names_of(SglangKnobs{})},
                                            {"trtllm", names_of(TrtllmKnobs{})}};
  return all;
}

// On a server of a pair.
template <class Knobs>
std::vector<IdleKnob> idle_of(const Knobs& knobs, const std::vector<std::string>& given, PairRole role) {
  std::vector<IdleKnob> out;
  for (const std::string& text : given) {
    const std::string name = knob_parts(text).name;
    for (const KnobText<Knobs>& k : texts_of(knobs)) {
      const bool idle = (k.idle_in_prefill && role == PairRole::prefills) ||
                        (k.idle_in_decode && role == PairRole::decodes);
      if (name == k.name && idle) out.push_back({name, ""});
    }
  }
  return out;
}

template <class Knobs>
void set_all(Knobs& knobs, const std::vector<std::string>& overrides, const KnobsGiven& given) {
  for (const std::string& text : overrides) set_knob(knobs, texts_of(knobs), text, given);
}

}  // namespace

std::string engine_of_knobs(const std::vector<std::string>& overrides) {
  std::string only;
  for (const EngineKnobs& e : engines_knobs()) {
    const bool all = !overrides.empty() &&
                     std::all_of(overrides.begin(), overrides.end(),
                                 [&](const std::string& text) { return e.has(knob_parts(text).name); });
    if (!all) continue;
    if (!only.empty()) return "";
    only = e.engine;
  }
  return only;
}

std::string other_engines_knob(const std::string& name, const std::vector<std::string>& own) {
  for (const EngineKnobs& e : engines_knobs()) {
    if (e.has(name))
      return fmt::format("it is an option of {}: {}", e.engine, argument_given("engine", e.engine));
  }
  if (!nearest_name(name, own).empty()) return "";
  for (const EngineKnobs& e : engines_knobs()) {
    if (const std::string near = nearest_name(name, e.names); !near.empty())
      return fmt::format("did you mean {} of {}, with {}?", near, e.engine,
                         argument_given("engine", e.engine));
  }
  return "";
}

void set_knobs(VllmKnobs& knobs, const std::vector<std::string>& overrides, const KnobsGiven& given) {
  set_all(knobs, overrides, given);
}
void set_knobs(SglangKnobs& knobs, const std::vector<std::string>& overrides, const KnobsGiven& given) {
  set_all(knobs, overrides, given);
}
void set_knobs(TrtllmKnobs& knobs, const std::vector<std::string>& overrides, const KnobsGiven& given) {
  set_all(knobs, overrides, given);
}

std::vector<IdleKnob> idle_knobs(const VllmKnobs& knobs, const std::vector<std::string>& given,
                                 PairRole role) {
  return idle_of(knobs, given, role);
}
std::vector<IdleKnob> idle_knobs(const SglangKnobs& knobs, const std::vector<std::string>& given,
                                 PairRole role) {
  std::vector<IdleKnob> out = idle_of(knobs, given, role);
  for (const std::string& text : given) {
    const std::string name = knob_parts(text).name;
    const auto same = [&](const IdleKnob& k) { return k.name == name; };
    if (std::any_of(out.begin(), out.end(), same)) continue;
    const bool more =
        name == kDelayPasses || name == kLowWatermark || name == kQueueRatio || name == kDelayTime;
    if (more && !knobs.enable_prefill_delayer)
      out.push_back({name, fmt::format("{}=true", kDelayer)});
    else if (name == kDelayTime && knobs.queue_min_ratio <= 0)
      out.push_back({name, kQueueRatio});
  }
  return out;
}
std::vector<IdleKnob> idle_knobs(const TrtllmKnobs& knobs, const std::vector<std::string>& given,
                                 PairRole role) {
  std::vector<IdleKnob> out = idle_of(knobs, given, role);
  const auto without = [&](const char* name, const char* needs) {
    const auto same = [&](const IdleKnob& k) { return k.name == name; };
    for (const std::string& text : given) {
      if (knob_parts(text).name == name && std::none_of(out.begin(), out.end(), same))
        out.push_back({name, needs});
    }
  };
  // Prompts wait for so many steps and so many tokens at most: where one of them is 0, not at all.
  if (knobs.batch_wait_max_tokens_ratio <= 0)
    without("batch_wait_timeout_iters", "batch_wait_max_tokens_ratio");
  if (knobs.batch_wait_timeout_iters == 0) without("batch_wait_max_tokens_ratio", "batch_wait_timeout_iters");
  if (!knobs.enable_chunked_prefill) without("context_chunking_policy", "enable_chunked_prefill=true");
  return out;
}

}  // namespace shardline
