#include "planner/api/convert_studies.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/api/convert.hpp"
#include "planner/api/convert_plan.hpp"
#include "sim/base/argument_names.hpp"

namespace shardline::api {

namespace {

constexpr long long kMostChunk = 1LL << 30;

std::size_t count_of(const std::vector<RingPoint>& tests,
                     const std::function<bool(const RingPoint&)>& holds) {
  return static_cast<std::size_t>(std::count_if(tests.begin(), tests.end(), holds));
}

AnalyticRule analytic_of(const char* rates, const shardline::AnalyticRule& a) {
  return {rates, a.kv_hidden_tokens * a.ranks, a.message_ratio, a.all_to_all_tokens * a.ranks};
}

Crossing crossing_of(const shardline::RingThresholds& ring) {
  const RingCrossing& c = *ring.crossing;
  const auto range = [&](const RingCrossing::Open& o) {
    return OpenRange{o.lowest, o.most, count_of(ring.tests, [&](const RingPoint& p) { return o.holds(p); })};
  };
  return {c.total, c.miss, range(c.shared), range(c.unrelated)};
}

Regret regret_of(const std::string& rule, const shardline::Regret& r) {
  Regret out{rule, r.points, r.right, r.mean, r.p99, r.worst, {}, {}};
  if (r.worst > 0) {
    out.worst_new_tokens = r.worst_at.fresh;
    out.worst_cached_tokens = r.worst_at.cached;
  }
  return out;
}

RingThresholds ring_of(const ThresholdStudy& d, const shardline::RingThresholds& ring) {
  RingThresholds out;
  out.ranks = ring.ranks;
  out.requests = ring.tests.size();
  out.pass_kv_faster = count_of(ring.tests, [](const RingPoint& p) { return p.kv_wins(); });
  out.table_bytes = ring.refined.table.bytes();
  out.alpha = ring.empirical.alpha();
  out.beta = ring.empirical.beta();
  out.gamma = ring.empirical.gamma();
  out.analytic = {analytic_of("peak", ring.at_peak), analytic_of("achieved", ring.at_rate)};
  out.rated_requests = ring.rated;
  out.shares = shares_of(ring.shares);
  if (ring.crossing) out.crossing = crossing_of(ring);
  for (std::size_t i = 0; i < d.rules.size(); ++i)
    out.regrets.push_back(regret_of(d.rules[i].name, ring.regrets[i]));
  return out;
}

PartitionRow row_of(const PartitionCell& c, const ErrorsByContext& errors) {
  const shardline::PartitionResult& best = c.searched.best;
  PartitionRow out;
  out.context_tokens = c.context;
  out.asked = c.asked;
  out.in_table = c.in_table;
  out.tokens_per_rank = best.tokens;
  out.ttft_s.value = best.ttft.value;
  out.even_ttft_s = c.even.value;
  out.bound_s = c.searched.bound.ttft.value;
  out.alone_s = c.searched.bound.alone.value;
  out.proven = best.proven;
  out.chains_priced = best.evaluations;
  out.interpolated_tokens_per_rank = c.interpolated;
  out.interpolated_ttft_s = c.interpolated_ttft.value;
  if (c.grid) {
    out.grid_search_ttft_s = c.grid->ttft.value;
    out.grid_search_chains_priced = c.grid->evaluations;
  }
  const auto known = errors.find(c.context);
  if (known == errors.end()) return out;
  out.ttft_s = estimate(best.ttft.value, time_error(known->second.best));
  out.told_apart_from_even = known->second.ahead_of_even;
  return out;
}

Turn turn_of(int number, const TurnTime& t) {
  Turn out;
  out.turn = number;
  out.new_tokens = t.fresh;
  out.cached_tokens = t.cached;
  out.kv_hit_rate = t.hit_rate();
  out.variant = t.kv_chosen ? "pass_kv" : "pass_q";
  out.ttft_s = estimate(t.ttft().value, time_error(t.ttft_errors()));
  out.pass_kv_s = t.pass_kv.value;
  out.pass_q_s = t.pass_q.value;
  out.variants_told_apart = t.variants_told_apart();
  out.output_tokens = t.output;
  out.ttl_first_s = t.first_ttl.value;
  out.ttl_last_s = estimate(t.last_ttl.value, time_error(t.ttl_errors));
  out.turn_s = estimate(t.answer.value, time_error(t.errors));
  out.kv_bytes_per_gpu = t.kv_per_gpu.value;
  out.tokens_fullest_rank = t.fullest;
  out.tokens_emptiest_rank = t.emptiest;
  out.shares = shares_of(t.shares);
  return out;
}

}  // namespace

std::optional<ContextQuestion> context_question(const ThresholdsQuestion& q) {
  if (!q.trace) {
    for (const auto& [given, name] : {std::pair{q.requests_per_s.has_value(), "rate"},
                                      {q.load.has_value(), "load"},
                                      {q.chunk_tokens != 0, "chunk"},
                                      {q.requests != 0, "requests"}})
      if (given)
        throw UserError(fmt::format("{} is of recorded requests: name them with {}", argument_name(name),
                                    argument_name("trace")));
    return std::nullopt;
  }
  if (q.requests_per_s && q.load)
    throw UserError(fmt::format("{} and {} both say how often requests come: give one", argument_name("rate"),
                                argument_name("load")));
  const auto refuse = [](bool wrong, const char* name, const std::string& value, const char* expected) {
    if (wrong) throw UserError(fmt::format("{} {}: expected {}", argument_name(name), value, expected));
  };
  ContextQuestion out;
  out.trace = *q.trace;
  out.rate = q.requests_per_s.value_or(0);
  out.load = q.load.value_or(kContextLoad);
  refuse(q.requests_per_s && !(out.rate > 0 && out.rate <= kMostRate), "rate", fmt::format("{}", out.rate),
         "more than 0 and at most 1e9 requests per second");
  refuse(!(out.load > 0 && out.load < 1), "load", fmt::format("{}", out.load),
         "a part of the time, more than 0 and less than 1");
  refuse(q.chunk_tokens < 0 || q.chunk_tokens > kMostChunk, "chunk", std::to_string(q.chunk_tokens),
         "from 1 to 1,073,741,824 tokens");
  refuse(q.requests < 0, "requests", std::to_string(q.requests), "0 or more");
  if (q.chunk_tokens != 0) out.chunk = q.chunk_tokens;
  out.requests = static_cast<std::uint64_t>(q.requests);
  return out;
}

ThresholdsInContext in_context(const Study& study, const ContextStudy& found) {
  // All prices are off alike where none was measured.
  const bool calibrated = !study.study.system.calibration.empty();
  const auto with = [&](double value, const ErrorRange& error) {
    Estimate out;
    out.value = value;
    return calibrated ? estimate(value, error) : out;
  };
  ThresholdsInContext out{found.requests, found.judged, found.input, {}};
  for (const shardline::ContextRing& r : found.rings) {
    ContextRing ring;
    ring.ranks = r.ranks;
    ring.held_tokens = r.room;
    ring.requests_per_s = r.rate;
    ring.load = r.load;
    ring.found = r.found;
    ring.steps = r.steps;
    ring.judged_steps = r.judged_steps;
    if (calibrated) ring.open_steps = r.open_steps;
    ring.typical_new_tokens = r.typical.fresh;
    ring.typical_cached_tokens = r.typical.cached;
    ring.mean_ttft_s = with(r.mean.value, r.mean_range);
    ring.p99_ttft_s = with(r.p99.value, r.p99_range);
    ring.alpha = r.in_context.alpha();
    ring.beta = r.in_context.beta();
    ring.gamma = r.in_context.gamma();
    for (const shardline::ContextRegret& rule : r.rules) {
      Estimate mean;
      mean.value = rule.mean;
      if (calibrated) mean = {rule.mean, rule.mean_range.low, rule.mean_range.high};
      ring.rules.push_back({rule.rule, rule.asked == RuleAsked::once ? "once" : "each step", rule.right,
                            rule.computing, mean, rule.p99});
    }
    out.rings.push_back(std::move(ring));
  }
  return out;
}

ModelThresholds model_thresholds(const Study& study, const ThresholdStudy& found) {
  ModelThresholds out;
  out.setting = setting_of(study);
  out.gpus_per_rank = study.thresholds().tpa;
  out.timed_requests = found.timed();
  for (const shardline::RingThresholds& ring : found.rings) out.rings.push_back(ring_of(found, ring));
  return out;
}

void ask_partitions(Study& study, const PartitionQuestion& asked) {
  require_partitions(study.study.model);
  PartitionGrid& grid = std::get<PartitionGrid>(study.question);
  if (asked.granularity_tokens) {
    if (*asked.granularity_tokens < 1) throw UserError("granularity_tokens: expected 1 or more");
    grid.granularity = *asked.granularity_tokens;
  }
  if (asked.spacing_tokens) {
    const long long least = least_spacing(grid);
    if (*asked.spacing_tokens < least)
      throw UserError(
          fmt::format("spacing_tokens: expected at least {}, so that the table has no more than {} rows",
                      least, kMostPartitionRows));
    grid.spacing = *asked.spacing_tokens;
  }
  if (asked.max_loss) {
    if (!(*asked.max_loss >= 0 && *asked.max_loss <= 1)) throw UserError("max_loss: expected 0 to 1");
    grid.max_loss = asked.max_loss;
  }
  require_room(grid, grid.processes.back());
}

ChainPartitions chain_partitions(const PartitionStudy& found, const ErrorsByContext& errors) {
  ChainPartitions out;
  out.ranks = found.table.ranks();
  for (const PartitionCell& c : found.cells) out.rows.push_back(row_of(c, errors));
  out.table_rows = static_cast<int>(found.table.rows().size());
  const PartitionStudy::Loss loss = found.loss();
  out.interpolated_lengths = loss.lengths;
  out.mean_loss = loss.mean;
  out.worst_loss = loss.worst;
  out.worst_at_tokens = loss.worst_at;
  return out;
}

ModelPartitions model_partitions(const Study& study, std::vector<ChainPartitions> chains) {
  const PartitionGrid& grid = study.partition();
  return {setting_of(study), grid.tpa, grid.granularity, grid.spacing, std::move(chains)};
}

ModelConversation model_conversation(const Study& study, const std::vector<TurnTime>& turns) {
  ModelConversation out;
  out.setting = setting_of(study);
  out.cp = study.conversation().cp;
  out.tpa = study.conversation().tpa;
  for (std::size_t i = 0; i < turns.size(); ++i)
    out.turns.push_back(turn_of(static_cast<int>(i) + 1, turns[i]));
  const TtftTotals all = ttft_totals(turns);
  out.all_ttft_s = all.chosen.value;
  out.all_pass_kv_s = all.pass_kv.value;
  out.all_pass_q_s = all.pass_q.value;
  return out;
}

}  // namespace shardline::api
