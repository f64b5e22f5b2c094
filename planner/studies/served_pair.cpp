#include "planner/studies/served_pair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "planner/engines/deploy.hpp"
#include "planner/engines/profile.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/engines/transfer_buffers.hpp"
#include "planner/handoff/transfer.hpp"
#include "planner/requests/vllm_drafts.hpp"
#include "planner/studies/knob_text.hpp"
#include "planner/studies/replica_failures.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline {

namespace {

PairPart part_of(const RunQuantiles& of) {
  if (of.count() == 0) return {};
  return {of.mean(), of.quantile(0.5), of.quantile(0.99)};
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

bool says(const std::vector<std::string>& overrides, const char* name) {
  return std::any_of(overrides.begin(), overrides.end(),
                     [&](const std::string& text) { return knob_parts(text).name == name; });
}

// One size of pages, or blocks, on both sides, and one longest request.
template <class Knobs>
void same(Knobs& mine, Knobs& other, std::uint32_t Knobs::*block, std::uint32_t Knobs::*longest,
          const Plan& prefill, const char* name) {
  if (mine.*block != other.*block)
    throw UserError(fmt::format(
        "{} {}: its KV blocks have {} tokens and those of the plan that decodes {}: a hand-off between "
        "blocks of one size is played, see {} and {} {}",
        argument_name("prefill"), to_string(prefill), mine.*block, other.*block,
        argument_name("prefill-knob"), argument_name("knob"), name));
  mine.*longest = other.*longest = std::min(mine.*longest, other.*longest);
}

}  // namespace

bool halves_apart(const Case& c) {
  return c.engine && (same_engine(c.engine->name, "sglang") || same_engine(c.engine->name, "trtllm"));
}

Case half_of_pair(const Case& c) {
  Case half = c;
  half.disaggregated = half.disaggregated || halves_apart(c);
  return half;
}

ReplicaGroups pair_groups(const ServiceKnobs& knobs, const Plan& plan, PairRole role) {
  const auto count = static_cast<std::size_t>(plan.dp);
  if (std::holds_alternative<VllmKnobs>(knobs.of))
    return {count, GroupRouting::fewest, 0, count > 1 ? VllmConnected::kWave : 0};
  if (std::holds_alternative<TrtllmKnobs>(knobs.of)) return groups_of(knobs, plan);
  SL_CHECK(std::holds_alternative<SglangKnobs>(knobs.of), "the groups of every engine's pairs are known");
  return {count, role == PairRole::prefills && count > 1 ? GroupRouting::by_room : GroupRouting::in_turn};
}

std::vector<std::string> knobs_of_prefill(const std::vector<std::string>& of_both) {
  std::vector<std::string> out;
  std::copy_if(of_both.begin(), of_both.end(), std::back_inserter(out), [](const std::string& text) {
    const std::string name = knob_parts(text).name;
    return name != kReservedTokens && name != kExtraSlots && name != kLoadFailurePolicy &&
           name != kBufferTokens;
  });
  return out;
}

namespace {

ServiceKnobs sglang_half(const Case& half, const Plan& plan, PairRole role,
                         const std::vector<std::string>& overrides, long long mean_tokens,
                         const char* option) {
  std::vector<std::string> all{fmt::format("page_size={}", kPromptPage)};
  if (plan.cp > 1 && half.engine->context.one_prompt) all.emplace_back("prefill_max_requests=1");
  all.insert(all.end(), overrides.begin(), overrides.end());
  ServiceKnobs out = service_knobs(half, plan, all, mean_tokens, role, option);
  if (role != PairRole::decodes) return out;
  auto& knobs = std::get<SglangKnobs>(out.of);
  knobs.disable_radix_cache = true;
  // arg_groups/pd_disaggregation_hook.py: twice as many as run in a group, of at most 32; where nobody says
  // how many run, none. Those that drafts say are said before.
  constexpr std::uint32_t kFew = 32;
  const bool said = says(overrides, "max_running_requests") || plan[kDrafts] > 0;
  if (!says(overrides, kExtraSlots) && said && knobs.max_running_requests <= kFew)
    knobs.disaggregation_decode_extra_slots = 2 * knobs.max_running_requests;
  return out;
}

// Blocks and buffers as launch files say them (put_half of launch_trtllm.cpp). A buffer holds the longest
// prompt of the load, beside which there are as many blocks as memory has room for.
ServiceKnobs trtllm_half(Case half, const Plan& plan, PairRole role,
                         const std::vector<std::string>& overrides, const LoadLengths& load,
                         const char* option) {
  half.served = {std::max(1LL, load.longest), std::max(1LL, half.served.output)};
  std::vector<std::string> all{fmt::format("tokens_per_block={}", tensorrt_llm_block(half))};
  if (role == PairRole::prefills) all.emplace_back("disable_overlap_scheduler=true");
  all.insert(all.end(), overrides.begin(), overrides.end());
  ServiceKnobs out = service_knobs(half, plan, all, load.mean, role, option);
  const auto buffer = static_cast<std::uint32_t>(transfer_tokens(half, plan));
  const std::uint32_t asked = std::get<TrtllmKnobs>(out.of).max_tokens_in_buffer;
  if (!says(overrides, kBufferTokens)) {
    std::get<TrtllmKnobs>(out.of).max_tokens_in_buffer = buffer;
  } else if (asked > buffer) {
    half.served.input = asked;
    out = service_knobs(half, plan, all, load.mean, role, option);
  } else if (asked > 0 && asked < buffer) {
    // NIXL writes into buffers that are there from the beginning (batch_manager/cacheFormatter.cpp).
    throw UserError(
        {Diagnostic{{},
                    fmt::format("{} {}={}: a prompt of the load has {} tokens, which a buffer has to hold",
                                argument_name(option), kBufferTokens, asked, load.longest),
                    {fmt::format("expected {} or more, in whole blocks, or leave it out", buffer)}}});
  }
  return out;
}

}  // namespace

ServiceKnobs pair_knobs(const Case& c, const Plan& plan, PairRole role,
                        const std::vector<std::string>& overrides, const LoadLengths& load,
                        const char* option) {
  if (!halves_apart(c)) return service_knobs(c, plan, overrides, load.mean, role, option);
  const Case half = half_of_pair(c);
  return same_engine(c.engine->name, "trtllm") ? trtllm_half(half, plan, role, overrides, load, option)
                                               : sglang_half(half, plan, role, overrides, load.mean, option);
}

// From two lengths: a hand-off's descriptors and bytes grow with its tokens.
TransferRates handoff_rates(const PairServer& prefill, const PairServer& decode, long long prompt,
                            ReplicaPlaces places) {
  const auto one_request = [&](const Case& on) {
    Case c = on;
    c.disaggregated = true;
    c.batch = decode_batch(prompt + 1);
    return c;
  };
  const Case source = one_request(prefill.on), target = one_request(decode.on);
  Plan from = prefill.plan, to = decode.plan;
  from.batch = to.batch = 1;
  const long long most = std::max(64LL, prompt), half = most / 2;
  TransferRates out;
  struct Halves {
    Seconds submission, bytes;
  };
  const auto parts_of = [&](long long tokens) {
    HandoffTimes times = &prefill.on == &decode.on
                             ? HandoffTimes(source, std::max(from.gpus(), to.gpus()), tokens, places)
                             : HandoffTimes(source, from.gpus(), target, to.gpus(), tokens);
    out.receiver_submits = times.receiver_submits();
    const Seconds bytes = times.of_bytes(from, to);
    return Halves{std::max(Seconds(0), times.of(from, to) - bytes), bytes};
  };
  const Halves whole = parts_of(most), part = parts_of(half);
  const auto line = [&](Seconds far, Seconds near, Seconds& fixed, Seconds& token) {
    token = std::max(Seconds(0), (far - near) * (1.0 / static_cast<double>(most - half)));
    fixed = std::max(Seconds(0), far - token * static_cast<double>(most));
  };
  line(whole.bytes, part.bytes, out.fixed, out.token);
  line(whole.submission, part.submission, out.submit, out.submit_token);
  // A request's cache is on the GPUs of one attention group, whose links are its own.
  const double senders = from.gpus() / from.dp, receivers = to.gpus() / to.dp;
  const double smaller = std::min(senders, receivers);
  out.senders = senders / smaller;
  out.receivers = receivers / smaller;
  return out;
}

std::optional<std::string> no_pair(const PairServer& from, const PairServer& to) {
  const Case& c = to.on;
  const Plan &prefill = from.plan, &decode = to.plan;
  if (&from.on != &to.on) {
    if (auto reason = no_way_between(from.on, to.on)) return reason;
  }
  if (!c.engine || (!halves_apart(c) && !same_engine(c.engine->name, "vllm")))
    return "pairs of pools are played under the rules of vLLM's connector, of SGLang's disaggregation and of "
           "TensorRT-LLM's: " +
           argument_given("engine", "vllm") + ", sglang or trtllm";
  if (prefill.pp > 1 || decode.pp > 1)
    return "steps of a pipeline are played in servers that do both, not in pairs of pools yet: without " +
           argument_name("prefill") + " both are served by one pool";
  if (prefill[kDrafts] != decode[kDrafts])
    return "the caches of modules that draft are handed over, so that both plans say as many drafts";
  if (has_recurrence(c.model))
    return "recurrent states are handed over whole and kept apart from blocks, which is not played yet: "
           "without " +
           argument_name("prefill") + " both are served by one pool";
  for (const Attention& a : c.model.attentions)
    if (a.reach.local())
      return "of layers with windows only the end of a prompt is handed over, which is not played yet: "
             "without " +
             argument_name("prefill") + " both are served by one pool";
  if (const auto reason = no_handoff(prefill, CacheSide::prefilled)) return reason;
  return no_handoff(decode, CacheSide::to_decode);
}

void require_noticed(const Case& c, const ServiceKnobs& decode, const std::vector<ReplicaFailure>& failures) {
  const auto* vllm = std::get_if<VllmKnobs>(&decode.of);
  const bool loses = std::any_of(failures.begin(), failures.end(),
                                 [](const auto& f) { return f.pool == ReplicaPool::prefill; });
  if (vllm != nullptr && vllm->recompute_failed_loads && !loses)
    throw UserError({Diagnostic{{},
                                fmt::format("{} {}: no replica that prefills dies, so that no load fails",
                                            argument_name("knob"), kLoadFailurePolicy),
                                {"expected it beside " + argument_name("failure") + " \"prefill 0 at 60 s\"" +
                                 ", or leave it out"}}});
  if (!failures.empty() && same_engine(c.engine->name, "trtllm"))
    throw UserError(
        {Diagnostic{{},
                    fmt::format("{} \"{}\": TensorRT-LLM has no rule for what a server of a pair that "
                                "dies leaves behind: its front asks the same server again and then "
                                "answers with an error, and a hand-off under way cannot be cancelled "
                                "on the other side, so that those behind it may wait for ever "
                                "([R21])",
                                argument_name("failure"), to_string(failures.front())),
                    {argument_given("engine", "vllm") + " and " + argument_given("engine", "sglang") +
                     " have one, and so has one pool"}}});
  constexpr double kLeast = PairRun::kHealthMisses * PairRun::kHealthBeat;
  for (const ReplicaFailure& f : failures) {
    if (!halves_apart(c) || f.pool != ReplicaPool::prefill || (f.up - f.down).value >= kLeast) continue;
    throw UserError({Diagnostic{
        {},
        fmt::format(
            "{} \"{}\": SGLang's servers that decode ask the others for their health every {:.0f} s "
            "and miss one after {} times; that one is back before keeps requests waiting for {:.0f} s, "
            "which is not played",
            argument_name("failure"), to_string(f), PairRun::kHealthBeat, PairRun::kHealthMisses,
            PairRun::kSent),
        {fmt::format("expected for {:.0f} s at least", kLeast)}}});
  }
}

// One size of blocks, one longest request, and what only both know together.
void PairPools::agree(const Plan& prefill, ServiceKnobs& other) {
  if (auto* k = std::get_if<SglangKnobs>(&knobs_.of)) {
    same(*k, std::get<SglangKnobs>(other.of), &SglangKnobs::page_size, &SglangKnobs::context_length, prefill,
         "page_size");
  } else if (auto* t = std::get_if<TrtllmKnobs>(&knobs_.of)) {
    auto& decode = std::get<TrtllmKnobs>(other.of);
    same(*t, decode, &TrtllmKnobs::tokens_per_block, &TrtllmKnobs::max_seq_len, prefill, "tokens_per_block");
    decode.reads_found = !t->enable_block_reuse;
    t->max_tokens_in_buffer = decode.max_tokens_in_buffer;
  } else {
    same(std::get<VllmKnobs>(knobs_.of), std::get<VllmKnobs>(other.of), &VllmKnobs::block_size,
         &VllmKnobs::max_model_len, prefill, "block_size");
  }
}

PairPools::PairPools(const Study& study, const PrefillQuestion& question, const Plan& decode, int replicas,
                     ServiceKnobs& knobs, const LoadLengths& load, long long prompt, const Known& known)
    : question_(question), decode_plan_(decode), times_(known.times) {
  const Study& prompts = question.study(study);
  const Case& c = prompts.study;
  const PairServer from{c, question.plan}, to{study.study, decode};
  if (const auto reason = no_pair(from, to))
    throw UserError(fmt::format("{} {}: {}", argument_name("prefill"), to_string(question.plan), *reason));
  const bool apart = halves_apart(c);
  require_play(c, question.plan, apart);
  if (apart && question.max_local > 0)
    throw UserError(
        fmt::format("{}: {}: leave it out, or {}", argument_name("max-local-prefill"),
                    std::holds_alternative<TrtllmKnobs>(knobs.of)
                        ? "TensorRT-LLM's front keeps a prompt on a server for answers only where text of it "
                          "is cached there, by a router that is not played (serve/openai_disagg_service.py)"
                        : "a server of SGLang's that decodes for another computes no prompt",
                    argument_given("engine", "vllm")));
  knobs_ = pair_knobs(c, question.plan, PairRole::prefills, question.knobs, load, question.knobs_option);
  agree(question.plan, knobs);
  decode_ = knobs;
  if (times_ != nullptr) {
    rates_ = known.rates;
    return;
  }
  rates_ =
      handoff_rates(from, to, prompt,
                    places_of(c.system, question.replicas * question.plan.gpus(), replicas * decode.gpus()));
  own_times_ =
      std::make_unique<PlanStepTimes>(half_of_pair(c), question.plan, prompts.sweep().search.all_reduce);
  times_ = own_times_.get();
}

std::unique_ptr<Scheduler> PairPools::scheduler(PairRole role, const DraftLaw& law) const {
  const ServiceKnobs& knobs = role == PairRole::prefills ? knobs_ : decode_;
  if (const auto* k = std::get_if<SglangKnobs>(&knobs.of))
    return std::make_unique<SglangScheduler>(*k, role, law);
  if (const auto* k = std::get_if<TrtllmKnobs>(&knobs.of))
    return std::make_unique<TrtllmScheduler>(*k, role, law);
  const auto& vllm = std::get<VllmKnobs>(knobs.of);
  if (law.drafts() > 0) return std::make_unique<VllmDraftScheduler>(vllm, role, law);
  return std::make_unique<VllmScheduler>(vllm, role);
}

PairRun PairPools::play(const Answering& answering, const ClusterLoad& load, std::uint64_t requests,
                        const PlayedEngine::Answered& answered,
                        const std::function<void(std::uint64_t)>& step,
                        const std::vector<ReplicaFailure>& failures, ServedTimeline* timeline) const {
  if (own_times_) own_times_->begin_play();
  PlayedPool prefill, decode;
  prefill.groups = pair_groups(knobs_, question_.plan, PairRole::prefills);
  decode.groups = pair_groups(knobs_, decode_plan_, PairRole::decodes);
  for (int i = 0; i < question_.replicas * question_.plan.dp; ++i)
    prefill.schedulers.push_back(scheduler(PairRole::prefills, answering.law));
  for (int i = 0; i < answering.replicas * decode_plan_.dp; ++i)
    decode.schedulers.push_back(scheduler(PairRole::decodes, answering.law));
  prefill.times = times_;
  decode.times = &answering.times;
  prefill.router = decode.router = answering.router;
  decode.max_local_prefill = question_.max_local;
  const PairFailures fail{failures, [&](ReplicaPool pool) {
                            return scheduler(
                                pool == ReplicaPool::prefill ? PairRole::prefills : PairRole::decodes,
                                answering.law);
                          }};
  return play_pair(prefill, decode, rates_, load, requests, answered, step, fail, timeline);
}

ServedPair PairPools::told(const PairRun& run, int decode_gpus, double seconds) const {
  ServedPair out;
  out.prefill_gpus = question_.gpus();
  out.decode_gpus = decode_gpus;
  const auto part = [&](const std::vector<ServedRequests>& pool, Seconds ServedRequests::*of) {
    double sum = 0;
    for (const ServedRequests& r : pool) sum += (r.*of).value;
    return seconds > 0 ? sum / seconds / static_cast<double>(pool.size()) : 0;
  };
  out.prefill_busy = part(run.prefill, &ServedRequests::busy);
  out.decode_busy = part(run.decode, &ServedRequests::busy);
  out.prefill_dummies = part(run.prefill, &ServedRequests::dummy_time);
  out.decode_dummies = part(run.decode, &ServedRequests::dummy_time);
  for (const ServedRequests& r : run.prefill) {
    out.prefill_kv = std::max(out.prefill_kv, r.most_held);
    out.preemptions += r.preemptions;
    out.prefill_series.merge(r.series);
  }
  if (seconds > 0) {
    out.sending = mean_of(run.sending) / seconds;
    out.reading = mean_of(run.reading) / seconds;
  }
  out.prompt = part_of(run.prompt);
  out.room = part_of(run.room);
  out.transfer = part_of(run.transfer);
  out.begin = part_of(run.begin);
  const auto reads = static_cast<double>(run.transfer.count());
  out.tokens_read = reads > 0 ? static_cast<double>(run.tokens_read) / reads : 0;
  out.given_up = run.given_up;
  out.way = run.way;
  out.local_prefills = run.local_prefills;
  if (seconds > 0) out.prefill_down = run.prefill_down.value / seconds / question_.replicas;
  out.cut_transfers = run.cut_transfers;
  out.failed_loads = run.failed_loads;
  out.recomputed = run.recomputed;
  out.lost_tokens = run.lost_tokens;
  return out;
}

}  // namespace shardline
