#include "planner/studies/handoff_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "planner/layers/drafts.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/search/memory_need.hpp"
#include "planner/studies/searched_partition.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/memory_limit.hpp"

namespace shardline {

namespace {

// The plan of a text for a step of this batch.
Plan plan_for(const Study& study, Case& c, const std::string& text, CacheSide side,
              const std::string& option) {
  Plan plan = parse_plan(text);
  if (const auto reason = no_handoff(plan, side)) throw UserError(fmt::format("{}: {}", option, *reason));
  plan = plan_of(c, study.sweep().search.space, text);
  if (const auto reason = check_plan(c, plan))
    throw UserError(
        fmt::format("{}: plan {} is impossible for {}: {}", option, to_string(plan), c.model.name, *reason));
  return plan;
}

// What leaves a rank of a stage in one step, of the schedule that was timed last.
Bytes step_messages(const Schedule& s) {
  const std::vector<double> runs = executions(s);
  Bytes sum;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    Bytes of_block;
    for (OpIndex op = s.blocks[b].first; op < s.blocks[b].last; ++op) {
      if (is_communication(s.ops[op].kind)) of_block += message_bytes(s.ops[op]);
    }
    sum += of_block * runs[b];
  }
  return sum;
}

Transfer transfer_of(const HandoffStudy& s, int target_gpu, Seconds prefill) {
  return {&s.handoff, 0, target_gpu, Seconds(0), prefill, Seconds(0)};
}

// `between`: what a step of the plan that decodes takes beside its messages.
void time_transfers(const Study& study, Seconds between, HandoffStudy& s) {
  const FabricSpec& spec = study.study.system.fabric;
  const int first = gpu_beside(spec, s.prefill.gpus(), s.decode.gpus());
  if (s.prefill.gpus() + s.decode.gpus() > study.study.system.gpus())
    throw UserError(fmt::format("{} and {} GPUs for both plans: {} has {}", s.prefill.gpus(), s.decode.gpus(),
                                study.study.system.name, study.study.system.gpus()));
  const TransferFabric fabric(spec, first + s.decode.gpus());
  const Transfer whole = transfer_of(s, first, Seconds(0));
  s.alone = fabric.play({whole}, s.engine.costs).front().exposed;
  for (const TransferTime& t :
       fabric.play(std::vector<Transfer>(static_cast<std::size_t>(s.at_once), whole), s.engine.costs))
    s.together = std::max(s.together, t.exposed);
  std::vector<OwnMessages> own;
  for (int stage = 0; stage < s.decode.pp; ++stage)
    own.push_back({first + stage * s.decode.ranks_per_stage(),
                   {s.decode.ranks_per_stage(), 1},
                   s.step_messages / s.decode.pp,
                   between});
  if (s.decode.ranks_per_stage() == 1) own.clear();
  s.beside_steps = fabric.play({whole}, s.engine.costs, own).front().exposed;
  TransferCosts layers = s.engine.costs;
  layers.by_layer = true;
  s.by_layer = fabric.play({transfer_of(s, first, s.prefill_time)}, layers).front().exposed;
}

std::vector<RankPair> by_rank(const std::vector<RankPair>& pairs, bool senders) {
  std::map<int, RankPair> ranks;
  for (const RankPair& p : pairs) {
    const int rank = senders ? p.from : p.to;
    RankPair& r = ranks[rank];
    (senders ? r.from : r.to) = rank;
    ++(senders ? r.to : r.from);
    r.pieces += p.pieces;
    r.descriptors += p.descriptors;
    r.bytes += p.bytes;
  }
  std::vector<RankPair> out;
  for (const auto& [rank, r] : ranks) out.push_back(r);
  return out;
}

}  // namespace

std::vector<RankPair> HandoffStudy::sent() const { return by_rank(pairs, true); }
std::vector<RankPair> HandoffStudy::received() const { return by_rank(pairs, false); }

Seconds time_by_links(const Case& c, const Plan& prefill, const Plan& decode, Bytes bytes) {
  const FabricSpec& f = c.system.fabric;
  const double ranks = std::min(prefill.gpus(), decode.gpus());
  const bool inside = !f.network.present || prefill.gpus() + decode.gpus() <= f.gpus_per_node;
  if (inside) return f.nvlink.latency + bytes / (f.nvlink.bandwidth * (f.nvlink.efficiency * ranks));
  const double share = f.network.efficiency * f.network.send_recv_share / f.network.gpus_per_nic;
  return f.network.latency + f.network.send_recv_extra + bytes / (f.network.bandwidth * (share * ranks));
}

ErrorRange handoff_error() { return time_error(ErrorTerms(kAssumedSource, kAssumedBand)); }

HandoffStudy study_handoff(const Study& study, const HandoffQuestion& q) {
  const Case& c = study.study;
  HandoffStudy out;
  const auto& workload = study.sweep().search.workload;
  out.tokens = q.tokens > 0 ? q.tokens : workload ? workload->input : c.longest();
  out.at_once = q.at_once;
  Case prompt = c, answers = c;
  prompt.batch = prefill_batch({{0, out.tokens}});
  prompt.placement = nullptr;
  answers.batch = decode_batch(out.tokens + 1);
  prompt.disaggregated = answers.disaggregated = true;
  out.prefill = plan_for(study, prompt, q.prefill, CacheSide::prefilled, argument_name("prefill"));
  out.decode = plan_for(study, answers, q.decode, CacheSide::to_decode, argument_name("decode"));
  if ((out.prefill[kDrafts] > 0) != (out.decode[kDrafts] > 0))
    throw UserError(
        fmt::format("{} and {}: {}", to_string(out.prefill), to_string(out.decode), kDraftsOfBoth));
  // Two plans, their layouts and the pieces between them: 71 to 75 MB in all were had where a plan's estimate
  // is 60.
  constexpr double kBoth = 25e6;
  for (MemoryNeed need : {need_of_step(prompt, out.prefill), need_of_step(answers, out.decode)}) {
    need.bytes += Bytes(kBoth);
    require_memory(need);
  }
  const AllReduceRule rule = study.sweep().search.all_reduce;
  Evaluator of_prompt(prompt, rule), of_answers(answers, rule);
  if (takes_partition(prompt, out.prefill))
    list_parts(out.prefill, searched_partition(of_prompt, out.prefill).tokens);
  const Breakdown of_prefill = break_down(of_prompt, out.prefill);
  out.prefill_time = of_prefill.time;
  out.prefill_errors = of_prefill.errors;
  const Breakdown step = break_down(of_answers, out.decode);
  const double yields = tokens_per_step(answers, out.decode);  // times are per token [P29]
  out.step_time = step.time * yields;
  out.step_errors = step.errors;
  out.step_messages = step_messages(of_answers.schedule());
  out.engine = engine_transfer(c);
  out.handoff =
      hand_over(cache_layout(prompt, out.prefill, CacheSide::prefilled, out.tokens),
                cache_layout(answers, out.decode, CacheSide::to_decode, out.tokens), out.engine.pages);
  out.pairs = rank_pairs(out.handoff);
  time_transfers(study, (step.time - step.exposed_communication) * yields, out);
  Bytes once;
  const std::vector<int>& kinds = out.handoff.target.kind_of;
  for (const PartShape& part : out.handoff.target.parts) {
    const Attention& a = c.model.attentions[static_cast<std::size_t>(part.kind)];
    const auto [first, end] = part_rows(a, part.part, CacheSide::to_decode, out.tokens);
    const auto rows = static_cast<double>(end - first);
    const int layers = out.handoff.target.layers(part.kind, {0, static_cast<int>(kinds.size())});
    once += Bytes(rows * part.units * part.row_bytes * layers);
  }
  out.by_links = time_by_links(c, out.prefill, out.decode, once);
  return out;
}

}  // namespace shardline
