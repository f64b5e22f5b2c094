// A strategy is a row of one explicit table (table.cpp): all that it is stands in its file. Nothing outside
// compares which row a plan is of.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/ir/schedule.hpp"
#include "planner/plan/case.hpp"
#include "planner/plan/plan.hpp"

namespace shardline {

/// The values that one degree of a plan may take.
struct DegreeRange {
  int Plan::*degree;
  std::vector<int> values;  // ascending
};

/// The values that an option may take in plans that set it.
struct OptionRange {
  const Option* option;
  std::vector<int> values;  // ascending; of an option of words, their indices
};

/// Which plans a sweep looks at, apart from GPU counts and batches.
struct SearchSpace {
  std::vector<int> stages;           // pipeline stages to try; empty: every divisor of the GPU count
  bool duplicate_kv = false;         // let TPA exceed the KV heads in sequence-sharded strategies
  std::vector<DegreeRange> degrees;  // plans outside any of them are left out
  std::vector<OptionRange> options;  // as degrees; and what strategies try of an option of numbers

  /// What is asked for of the option, or nullptr.
  const std::vector<int>* asked(const Option& option) const;
  /// The values of an option that a strategy tries: `own`, unless others are asked for.
  template <class T>
  std::vector<T> tried(const OptionOf<T>& option, std::vector<T> own) const {
    const std::vector<int>* values = asked(option);
    if (values == nullptr) return own;
    own.clear();
    for (const int v : *values) own.push_back(static_cast<T>(v));
    return own;
  }
};

/// Who holds the rows of an FFN and of the output projection. stage: all ranks of a pipeline stage regroup.
/// attention_tp: only the TPA ranks, so that the ranks that share a cache hold copies.
enum class WeightSharing : std::uint8_t { stage, attention_tp };

/// How KVP ranks bring their partial attention outputs together. none: the strategy has no KVP ranks.
enum class PartialOutputs : std::uint8_t { none, all_to_all, all_gather };

/// Which feature of serving engines runs a strategy. none: no engine has it, whatever its flags [P21].
enum class LaunchedAs : std::uint8_t { none, tensor, pipeline, attention_dp, dcp, helix, prefill_cp };
std::string_view to_string(LaunchedAs feature);

struct CacheShare;  // planner/layers/share.hpp
class ContextStep;  // planner/layers/context_step.hpp
struct Deployment;  // planner/engines/deploy.hpp

/// Attention in blocks of one document, one per host, for `verify` to compute in its own way: the first
/// `anchor` tokens (0: the first block) behind `query` tokens of the question go in front of every later
/// block, and with them the `passing` tokens of each earlier block that heads of width `retaining` score
/// best.
struct HostBlocks {
  int anchor = 0, passing = 0, query = 0, retaining = 0;
};

/// What `verify` tries of a strategy on one small case: plans that differ from `base`, whose degrees are set.
struct VerifyTrial {
  const Case& study;
  Plan base;
  int retaining = 16;  // width of retaining heads that the executors' sizes ask for
};

/// All that a strategy is. Rows are designated; what is left out is the default that stands here, and
/// check_row() says what is missing.
struct Strategy {
  const char* name;
  const char* summary;
  const char* source;
  bool decodes = false, prefills = false;  // steps it is for: of decoding requests alone, of prefills alone
  bool mixes = false;                      // and of both
  bool exact = true;                       // computes the same function as one device does
  Degrees degrees = {};                    // those that it may set; with cp it shards tokens over ranks
  std::span<const Option* const> options = {};  // keys beyond the degrees, at most kMostOptions
  WeightSharing weights = WeightSharing::stage;
  PartialOutputs partials = PartialOutputs::none;
  bool local_attention = false;  // runs layers with windows, chunks and sinks, and models that have layers
                                 // without attention or feed-forward network
  bool chosen_keys = false;      // runs layers whose keys an index chooses (DSA, MSA)
  bool compressed = false;       // runs layers with rows of several tokens (CSA, HCA)
  bool states = false;           // runs layers that keep a state in place of a cache
  bool eager = false;            // `verify` also runs it under eager attention
  LaunchedAs launched_as = LaunchedAs::none;
  const char* deployed_as = "";  // the strategy that engines run in its place, where they have none of it

  /// Appends all plans for exactly `gpus` GPUs, batch 1, in a fixed order. Every one passes check.
  void (*enumerate)(const Case& c, int gpus, const SearchSpace& space, std::vector<Plan>& out) = nullptr;
  /// Rules of this strategy beyond the common ones, if it has any: the reason why a plan is impossible.
  std::optional<std::string> (*check)(const Case& c, const Plan& plan) = nullptr;
  /// A step is made of the blocks of planner/layers [P7]. The attention of its decoding requests; by default
  /// that over KVP shards.
  void (*decode_attention)(ScheduleBuilder& b, const Case& c, const Attention& a, const Plan& plan) = nullptr;
  /// The attention of its prefills.
  void (*prefill_attention)(ContextStep& step) = nullptr;
  /// Whether prefill_attention declares and binds what it works on by itself.
  bool binds_prefill = false;
  bool pads_queries = false;  // the message of queries has equal rows on all ranks
  /// Deals the new tokens of a request out to the context-parallel ranks; by default as [C1] does.
  void (*deal)(Placement& to, const Plan& plan, int request, long long fresh) = nullptr;
  /// Where the tokens of prefills without cached ones lie, of strategies that do not deal them out.
  ContextLayout (*layout)(const Plan& plan, const std::vector<Segment>& requests) = nullptr;

  /// How ranks share caches, and what one does of the attention of decoding requests; by default its heads
  /// under TPA, over its KVP shard.
  CacheShare (*cache_share)(const Case& c, const Attention& a, const Plan& plan) = nullptr;
  /// [P5] The largest message of a decode_attention, all that arrives of a gather.
  Bytes (*decode_buffers)(const Case& c, const Attention& a, const Plan& plan) = nullptr;
  /// Context-parallel ranks over which the cache of one KV head is spread; by default all.
  double (*cache_shards)(const Attention& a, const Plan& plan) = nullptr;
  /// Consecutive context-parallel ranks that exchange tokens for heads, so that each keeps its heads of all
  /// their tokens; by default each keeps its own tokens.
  int (*head_ranks)(const Plan& plan) = nullptr;
  /// [P5] Send and receive buffers of a prefill, of the layer that needs most.
  Bytes (*prefill_buffers)(const Case& c, const Attention& a, const Plan& plan) = nullptr;
  /// Rows that a rank computes beside its share of the tokens of a request.
  long long (*extra_rows)(const Segment& request, const Plan& plan) = nullptr;
  /// Weights of one layer on one rank, in elements, that only this strategy has.
  double (*extra_weights)(const Case& c, const Attention& a, const Plan& plan) = nullptr;
  /// The smallest batch that a plan can have; by default 1.
  int (*least_batch)(const Case& c, const Plan& plan) = nullptr;
  /// Its option for the tokens of each context-parallel rank, where ranks may have unequal parts.
  const OptionOf<Parts>* parts = nullptr;
  /// Approximate strategies: part of the exact mask's (query, key) pairs that is computed.
  double (*computed)(const Case& c, const Plan& plan) = nullptr;
  /// Those of them that `verify` computes.
  HostBlocks (*blocks)(const Plan& plan) = nullptr;
  /// The engines that run it and their flags, where those of planner/engines/deploy.hpp do not say it.
  void (*launch)(const Case& c, const Plan& plan, std::vector<Deployment>& out) = nullptr;
  /// What `verify` runs; by default the base plan alone.
  void (*verify)(const VerifyTrial& trial, std::vector<Plan>& out) = nullptr;

  bool reads(const Option& option) const {
    return std::find(options.begin(), options.end(), &option) != options.end();
  }
  bool context_parallel() const { return degrees.has(Degree::cp); }
  /// Whether it is for steps of the kind.
  bool runs(StepKind kind) const {
    return kind == StepKind::decode ? decodes : kind == StepKind::prefill ? prefills : mixes;
  }
  /// Whether it has plans for such steps of such a model at all.
  bool takes(const Case& c) const {
    return runs(c.batch.kind()) &&
           (local_attention || (!has_local_attention(c.model) && !has_partial_layers(c.model))) &&
           (chosen_keys || !has_sparse(c.model)) && (compressed || !has_compression(c.model)) &&
           (states || !has_recurrence(c.model));
  }
};

std::span<const Strategy* const> strategies();
const Strategy& strategy(StrategyId id);
/// Throws UserError with did-you-mean.
const Strategy& strategy(const std::string& name);
std::optional<StrategyId> find_strategy(std::string_view name);
StrategyId id_of(const Strategy& row);
/// Of a name that is known to be in the table.
StrategyId strategy_id(std::string_view name);
std::vector<std::string> strategy_names();

/// What is wrong with a row: a kind of step without its attention, a prefill without buffers, options beyond
/// kMostOptions, two options or an option and a degree of one name. Empty: nothing.
std::vector<std::string> check_row(const Strategy& row);

/// Lowers a plan that passes check_plan().
void lower(Schedule& schedule, const Case& c, const Plan& plan);

/// Appends what the strategy enumerates, each with all numbers of drafts that the case has: those asked for,
/// or 0 to 8.
void enumerate_drafts(const Case& c, const Strategy& s, int gpus, const SearchSpace& space,
                      std::vector<Plan>& out);

/// Appends all plans of the strategy for exactly `gpus` GPUs, batch 1: those that it enumerates, where the
/// case has an acceptance each with the numbers of drafts that the space asks for, by itself 0 and
/// those that AcceptanceCurve::usual() has.
void enumerate_plans(const Case& c, const Strategy& s, int gpus, const SearchSpace& space,
                     std::vector<Plan>& out);

/// The option of the plan's strategy that has the key.
const Option& option_of(const Plan& plan, std::string_view key);
/// Sets it: to a number, or to what a text says.
void set_option(Plan& plan, std::string_view key, int value);
void set_option(Plan& plan, std::string_view key, std::string_view value);

/// "prefill_chunk is for tensor or pipeline, not ulysses".
std::string not_its_option(const Strategy& s, const Option& option);

/// Part of the exact attention's (query, key) pairs that the plan computes; 1 for exact strategies.
double attention_computed(const Case& c, const Plan& plan);

/// The smallest batch that the plan can have.
int least_batch(const Case& c, const Plan& plan);

/// Tokens of each rank as the plan lists them; empty: it lists none.
const std::vector<long long>& listed_parts(const Plan& plan);
/// Whether a plan that need not have them has equal parts.
bool even_parts(const Plan& plan);
/// Of a strategy whose ranks may have unequal parts.
void list_parts(Plan& plan, std::vector<long long> tokens);
void set_parts(Plan& plan, Parts parts);

/// The plan of a text (parse_plan), with what the space leaves no choice about where the text is silent: an
/// option with a meaning in the case, of which one value is asked for, and the smallest batch. Throws
/// UserError as parse_plan does.
Plan plan_of(const Case& c, const SearchSpace& space, std::string_view text);

/// Whether the option can mean something in a plan for the case: of its phase, and where it is of MLA alone,
/// its model's attention.
bool means(const Option& option, const Case& c);

/// Whether the degrees and the options that the plan sets are in the space.
bool within(const Plan& plan, const SearchSpace& space);

/// Why the plan cannot be run on the case (degrees that do not multiply out, more GPUs than there are, ...),
/// or nothing.
std::optional<std::string> check_plan(const Case& c, const Plan& plan);

/// Why the strategy has no plan for exactly `gpus` GPUs: what check_plan() says of one that spreads them all
/// by one degree (cp, kvp, tpa, or dp of whole experts), with options as asked for, else at their least.
std::string why_no_plan(const Case& c, const Strategy& s, int gpus, const SearchSpace& space);

/// Appends `plan` with each of these chunks that is shorter than the longest request, one microbatch in
/// flight.
void with_prefill_chunks(const Case& c, Plan plan, const SearchSpace& space, std::vector<Plan>& out);

/// What `verify` tries of strategies that prefill in chunks: the whole, and chunks of two sizes.
void verify_in_chunks(const VerifyTrial& trial, Plan plan, std::vector<Plan>& out);

/// Plans that differ in stages (pp, with as many microbatches in flight) and attention groups (dp), nothing
/// else set: every number of stages, or one stage and every number of groups over whose ranks whole experts
/// can be spread.
std::vector<Plan> groupings(const Case& c, int gpus, const SearchSpace& space);
/// Appends `plan`, whose attention is set, with every way for the ranks of its stage to share the FFN: EP x
/// TPF, or between groups whole experts over all ranks and a dense FFN over some.
void with_ffn_splits(const Case& c, Plan plan, std::vector<Plan>& out);

/// Divisors of n, ascending.
std::vector<int> divisors(int n);
/// Appends `plan`, of several attention groups, with every number of ranks that may share its dense FFN.
void with_dense_splits(const Case& c, Plan plan, std::vector<Plan>& out);
/// Appends `plan` with every (EP, TPF) that multiplies to `ranks`; EP is 1 for dense models.
void with_expert_splits(const Case& c, Plan plan, int ranks, std::vector<Plan>& out);

/// Plans of a context-parallel strategy: every pp, cp >= 2, tpa and split of the experts; none for a case of
/// a phase that it is not for. `with_options` appends the plan with each choice of what else a plan of the
/// strategy has.
void enumerate_context(const Case& c, int gpus, const SearchSpace& space, StrategyId id,
                       std::vector<Plan>& out,
                       const std::function<void(Plan, std::vector<Plan>&)>& with_options = nullptr);

}  // namespace shardline
