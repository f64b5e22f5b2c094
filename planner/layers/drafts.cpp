#include "planner/layers/drafts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/layers/cache_attention.hpp"
#include "planner/layers/recurrent.hpp"
#include "planner/layers/row_ops.hpp"
#include "planner/layers/share.hpp"
#include "planner/layers/two_batches.hpp"
#include "planner/serving/acceptance.hpp"

namespace shardline {

std::optional<DraftLayer> draft_layer(const Model& m) {
  if (!m.drafts) return std::nullopt;
  const auto attention = std::find(m.attentions.begin(), m.attentions.end(), m.drafts->attention);
  const auto ffn = std::find(m.ffns.begin(), m.ffns.end(), m.drafts->ffn);
  if (attention == m.attentions.end() || ffn == m.ffns.end()) return std::nullopt;
  return DraftLayer{static_cast<int>(attention - m.attentions.begin()),
                    static_cast<int>(ffn - m.ffns.begin())};
}

bool accepts_states(const Case& c, const Plan& p) {
  return p[kDrafts] > 0 && c.batch.decodes() && has_recurrence(c.model) && copies_states(c);
}

namespace {

// States are rolled back to the last draft that is accepted: what an engine keeps for that has to be known.
std::optional<std::string> no_drafts_of_states(const Case& c, const Plan& p) {
  if (!has_recurrence(c.model)) return std::nullopt;
  if (c.model.attentions[static_cast<std::size_t>(draft_layer(c.model)->attention)].recurrent())
    return fmt::format("the module that drafts for {} keeps a state, which no engine rolls back",
                       c.model.name);
  if (c.engine && c.engine->drafts.told && c.engine->drafts.states == DraftSteps::States::unsaid)
    return fmt::format("the profile of {} does not say how it rolls back states where a draft is rejected",
                       c.engine->title);
  if (copies_states(c) && p.pp > 1)
    return fmt::format(
        "{} copies accepted states in one stage: drafts over layers with a state are with pp=1",
        c.engine->title);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> no_drafts(const Case& c, const Plan& p) {
  if (p[kDrafts] == 0) return std::nullopt;
  if (!c.model.drafts)
    return fmt::format("{} has no module of multi-token prediction: drafts need one", c.model.name);
  if (!draft_layer(c.model))
    return fmt::format("the module that drafts for {} is of a kind that none of its layers has",
                       c.model.name);
  if (auto reason = no_drafts_of_states(c, p)) return reason;
  if (c.model.residual.block > 0)
    return fmt::format("drafts are not for {}: what a module reads of its sums of layers is not published",
                       c.model.name);
  if (!c.acceptance) return "drafts need an acceptance: how many of them a step keeps (key speculative)";
  if (c.engine && !c.engine->drafts.told)
    return fmt::format("the profile of {} says nothing of steps with drafts", c.engine->title);
  if (c.batch.kind() == StepKind::prefill && p[kPrefillChunk] > 0)
    return "drafts are not with prompts in several chunks of one step (prefill_chunk)";
  if (overlaps_batches(p)) return "overlap=two_batch is not with drafts";
  return std::nullopt;
}

double tokens_per_step(const Case& c, const Plan& p) {
  if (p[kDrafts] == 0 || !c.batch.decodes()) return 1;
  SL_CHECK(c.acceptance, "a plan with drafts has passed no_drafts()");
  return c.acceptance->mean_at(p[kDrafts]).mean;
}

ErrorTerms acceptance_errors(const Case& c, const Plan& p) {
  if (p[kDrafts] == 0 || !c.batch.decodes()) return {};
  const ErrorBand tokens = c.acceptance->mean_at(p[kDrafts]).band;
  if (tokens.low == 0 && tokens.high == 0) return {};
  return {kAcceptanceSource, ErrorBand{-tokens.high, -tokens.low}};  // of more tokens each takes less time
}

std::vector<std::string> assumed_of_engine(const Case& c) {
  std::vector<std::string> out{c.acceptance ? c.engine->drafts.assumes : "no speculative decoding"};
  out.insert(out.end(), c.engine->assumes.begin(), c.engine->assumes.end());
  return out;
}

int later_passes(const Case& c, const Plan& p) {
  if (c.engine && !c.engine->drafts.all_beside_prompts && c.batch.prefills()) return 0;
  return std::max(0, p[kDrafts] - 1);
}

namespace {

// Prices, which no lowering reads, are left out: a copy of them takes longer than the rest.
Case without_prices(const Case& c) {
  Case out;
  copy_but_system(c, out);
  out.system.name = c.system.name;
  out.system.device = c.system.device;
  out.system.fabric = c.system.fabric;
  out.system.runtime = c.system.runtime;
  out.system.host = c.system.host;
  return out;
}

}  // namespace

Case module_case(const Case& c) {
  Case out = without_prices(c);
  out.precision = c.precision.of_drafts();
  return out;
}

Case drafting_case(const Case& c) {
  Case out = without_prices(c);
  for (const Segment& s : c.batch.prefill) out.batch.decode.push_back({s.length(), 1, s.count});
  out.batch.prefill.clear();
  if (c.groups) {
    const Count all = c.groups->decodes + c.groups->prompts;
    out.groups = GroupRows{all, c.groups->busiest, all, 0, c.groups->busiest};
  }
  return out;
}

bool takes_first_choice(const Case& c) {
  return c.model.drafts && c.model.drafts->one_choice && (!c.engine || c.engine->drafts.one_choice);
}

Case choice_taking_case(const Case& c) {
  Case out = without_prices(c);
  out.model.attentions[static_cast<std::size_t>(draft_layer(c.model)->attention)].index->shared = true;
  return out;
}

namespace {

// vllm/models/deepseek_v4/nvidia/mtp.py at 0050eb86aeec, DeepSeekV4MultiTokenPredictorLayer.forward: streams
// of the hidden state, before they are weighed, each by h_proj; the embedding by e_proj, added to all of
// them.
void add_stream_input(ScheduleBuilder& b, const Case& c, Count rows) {
  const Count h = c.model.hidden, n = c.model.residual.streams;
  const double row = static_cast<double>(h) * activation_size(c);
  const auto moved = [&](Count of_token) { return Bytes(static_cast<double>(rows * of_token) * row); };
  const ModuleType t = draft_input_type(c);
  b.elementwise("norms of draft input", Part::head, OpKind::elementwise,
                {rows, (1 + n) * h, moved(2 * (1 + n))});
  b.gemm("draft projection of embeddings", Part::head, t.weights, t.math, GemmShape{rows, h, h});
  b.gemm("draft projection of streams", Part::head, t.weights, t.math, GemmShape{rows * n, h, h});
  b.elementwise("streams of draft input", Part::head, OpKind::elementwise, {rows, n * h, moved(2 * n + 1)});
}

}  // namespace

ModuleType draft_input_type(const Case& c) {
  if (c.model.residual.streams > 1) return c.precision.of_drafts().of(Module::attention);
  return {c.precision.activations, c.precision.activations};
}

void add_draft_input(ScheduleBuilder& b, const Case& c, const Plan& v) {
  const Count rows = decode_rows(c, v) + prefill_tokens(c, v), h = c.model.hidden;
  b.begin_block("draft input");
  if (c.model.residual.streams > 1) {
    add_stream_input(b, c, rows);
  } else {
    const ModuleType t = draft_input_type(c);
    const double row = static_cast<double>(h) * activation_size(c);
    b.elementwise("norms of draft input", Part::head, OpKind::elementwise,
                  {rows, 2 * h, Bytes(static_cast<double>(rows) * 4 * row)});
    b.gemm("draft projection", Part::head, t.weights, t.math, GemmShape{rows, 2 * h, h});
  }
  b.end_block();
}

double draft_input_weights(const Model& m) { return 2.0 * m.hidden * m.hidden; }

}  // namespace shardline
