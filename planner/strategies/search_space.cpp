// Options of plans beside what is asked of them: which values a sweep tries, what a silent text means, why a
// strategy has no plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "planner/layers/drafts.hpp"
#include "planner/serving/acceptance.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

void enumerate_drafts(const Case& c, const Strategy& s, int gpus, const SearchSpace& space,
                      std::vector<Plan>& out) {
  if (!c.acceptance || !s.reads(kDrafts) || !means(kDrafts, c) || !draft_layer(c.model))
    return s.enumerate(c, gpus, space, out);
  std::vector<int> own = c.acceptance->usual();
  own.insert(own.begin(), 0);
  const std::vector<int> tried = space.tried(kDrafts, own);
  std::vector<Plan> plans;
  s.enumerate(c, gpus, space, plans);
  for (const Plan& p : plans) {
    for (const int k : tried) {
      Plan drafted = p;
      drafted.set(kDrafts, k);
      if (!no_drafts(c, drafted)) out.push_back(drafted);
    }
  }
}

// A strategy knows which degrees it may have, not every rule of the layers that they meet: heads of a state,
// or eager attention. What a user may not ask for is no answer either.
void enumerate_plans(const Case& c, const Strategy& s, int gpus, const SearchSpace& space,
                     std::vector<Plan>& out) {
  std::vector<Plan> plans;
  enumerate_drafts(c, s, gpus, space, plans);
  for (const Plan& p : plans) {
    Plan least = p;
    least.batch = std::max(p.batch, least_batch(c, p));
    if (!check_plan(c, least)) out.push_back(p);
  }
}

std::string not_its_option(const Strategy& s, const Option& option) {
  std::vector<const char*> names;
  for (const Strategy* other : strategies()) {
    if (other->reads(option)) names.push_back(other->name);
  }
  return fmt::format("{} is for {}, not {}", option.key, fmt::join(names, " or "), s.name);
}

const Option& option_of(const Plan& plan, std::string_view key) {
  const auto& options = strategy(plan.strategy).options;
  const auto at =
      std::find_if(options.begin(), options.end(), [&](const Option* o) { return key == o->key; });
  SL_CHECK(at != options.end(), "the strategy has the option");
  return **at;
}

void set_option(Plan& plan, std::string_view key, int value) {
  plan.options.set(option_of(plan, key), value);
}

void set_option(Plan& plan, std::string_view key, std::string_view value) {
  SL_CHECK(read_value(option_of(plan, key), value, plan.options), "the option has the value");
}

int least_batch(const Case& c, const Plan& plan) {
  const auto least = strategy(plan.strategy).least_batch;
  return least ? least(c, plan) : 1;
}

const std::vector<long long>& listed_parts(const Plan& plan) {
  static const std::vector<long long> none;
  const auto* parts = strategy(plan.strategy).parts;
  return parts == nullptr ? none : plan.options.list(*parts);
}

bool even_parts(const Plan& plan) {
  const auto* parts = strategy(plan.strategy).parts;
  return parts != nullptr && plan[*parts] == Parts::even;
}

void list_parts(Plan& plan, std::vector<long long> tokens) {
  const auto* parts = strategy(plan.strategy).parts;
  SL_CHECK(parts != nullptr, "the strategy's ranks may have unequal parts");
  plan.options.set_list(*parts, std::move(tokens));
}

void set_parts(Plan& plan, Parts value) {
  const auto* parts = strategy(plan.strategy).parts;
  SL_CHECK(parts != nullptr, "the strategy's ranks may have unequal parts");
  plan.set(*parts, value);
}

const std::vector<int>* SearchSpace::asked(const Option& option) const {
  const auto at = std::find_if(options.begin(), options.end(),
                               [&](const OptionRange& range) { return range.option == &option; });
  return at == options.end() ? nullptr : &at->values;
}

bool means(const Option& option, const Case& c) {
  if (option.of_mla && !has_latents(c.model)) return false;
  const StepKind kind = c.batch.kind();
  return option.means(kind) || (kind == StepKind::prefill && c.disaggregated && option.for_others);
}

Plan plan_of(const Case& c, const SearchSpace& space, std::string_view text) {
  Plan p = parse_plan(text);
  const auto silent = [&](const std::string& key) {
    return text.find(":" + key + "=") == text.npos && text.find("," + key + "=") == text.npos;
  };
  for (const OptionRange& range : space.options) {
    const Option& option = *range.option;
    if (&option == &kPrefillChunk) continue;  // tried beside whole prompts, which a silent text has
    if (range.values.size() == 1 && silent(option.key) && strategy(p.strategy).reads(option) &&
        means(option, c))
      p.options.set(option, range.values.front());
  }
  if (silent("batch")) p.batch = std::max(p.batch, least_batch(c, p));
  return p;
}

// What no text can set stands for none of the values: such a plan does without the option.
bool within(const Plan& plan, const SearchSpace& space) {
  const auto has = [](const std::vector<int>& values, int v) {
    return std::binary_search(values.begin(), values.end(), v);
  };
  for (const DegreeRange& range : space.degrees) {
    if (!has(range.values, plan.*(range.degree))) return false;
  }
  for (const OptionRange& range : space.options) {
    if (!strategy(plan.strategy).reads(*range.option)) continue;
    const int value = plan.options.of(*range.option);
    if (value >= (range.option->words.empty() ? range.option->least : 0) && !has(range.values, value))
      return false;
  }
  return true;
}

std::string why_no_plan(const Case& c, const Strategy& s, int gpus, const SearchSpace& space) {
  Plan p;
  p.strategy = id_of(s);
  // One whose experts cannot be cut spreads them over groups of attention.
  const bool whole_experts = !s.degrees.has(Degree::tpf);
  int Plan::*const degree = s.degrees.has(Degree::cp)    ? &Plan::cp
                            : s.degrees.has(Degree::kvp) ? &Plan::kvp
                            : whole_experts              ? &Plan::dp
                                                         : &Plan::tpa;
  p.*degree = gpus;
  (whole_experts ? p.ep : p.tpf) = s.weights == WeightSharing::attention_tp ? p.tpa : gpus;
  for (const Option* option : s.options) {
    if (!means(*option, c)) continue;
    if (const auto* asked = space.asked(*option); asked != nullptr && !asked->empty())
      p.options.set(*option, asked->front());
    else if (option->words.empty() && option->absent > 0)
      p.options.set(*option, option->least);
  }
  p.batch = least_batch(c, p);
  return check_plan(c, p).value_or(gpus == 1 ? "it takes several" : "no choice of its degrees makes them up");
}

}  // namespace shardline
