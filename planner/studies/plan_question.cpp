#include "planner/studies/plan_question.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "models/model/catalog.hpp"
#include "planner/engines/checkpoints.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/engines/model_names.hpp"
#include "planner/scenario/titles.hpp"
#include "planner/strategies/strategy.hpp"
#include "planner/studies/line_settings.hpp"
#include "planner/studies/sweep.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/shell_word.hpp"
#include "sim/base/yaml_scalar.hpp"

namespace shardline {

using scenario_parts::grouped;

namespace {

constexpr int kNode = 8;          // GPUs of a question that names no number, if a node has more
constexpr int kMostBatch = 1024;  // of bare kernels

// Of "TPOT of llama-3.1-70b fp8 on h200-hgx": the model and the system of a table of a profile.
struct MeasuredTable {
  std::string model, system, weights;  // its type where they are quantised
};
std::optional<MeasuredTable> table_of(const ServedError& e) {
  constexpr std::string_view kBefore = "TPOT of ", kOn = " on ";
  const auto on = e.of.find(kOn);
  if (!e.of.starts_with(kBefore) || on == std::string::npos) return std::nullopt;
  std::string model = e.of.substr(kBefore.size(), on - kBefore.size());
  const auto blank = model.find(' ');  // behind it the type of its weights, if it is quantised
  return MeasuredTable{model.substr(0, blank), e.of.substr(on + kOn.size()),
                       blank == std::string::npos ? "" : model.substr(blank + 1)};
}

// What fits into the model's positions of a request that does not.
std::string shorter_request(const PlanQuestion& q, long long most) {
  if (q.output >= most) return fmt::format("expected an answer of less than {} tokens", grouped(most));
  return fmt::format("expected an input of at most {} tokens", grouped(most - q.output));
}

// Of a name with a tag or a revision, which no name has here; what it is meant to be, if that is known.
UserError tagged(const std::string& name, const std::string& untagged, const Catalogs& catalogs) {
  Diagnostic d;
  d.what = fmt::format("unknown model {}: names have no tags and no revisions here", name);
  const std::vector<std::string> known = catalog_names(catalogs.models);
  const std::string near = nearest_name(untagged, known);
  if (looks_like_repository(untagged))
    d.details = {fmt::format("did you mean {}?", untagged)};
  else if (!near.empty())
    d.details = {fmt::format("did you mean {}?", near)};
  else
    d.details = expected_one_of(untagged, known);
  d.details.emplace_back(
      "types of weights are those of the checkpoint that is named, for instance "
      "nvidia/Llama-3.1-8B-Instruct-FP8");
  return UserError({std::move(d)});
}

// Of "llama-3.1-8b-fp8", a model of the catalogue with a type behind its name: the checkpoint of that type,
// or where none is known the setting; empty: it is none.
std::string quantised_model(const std::string& asked, const Catalogs& catalogs) {
  const auto quantised = quantised_name(asked);
  if (!quantised) return "";
  const auto name = name_in_any_case(quantised->base, catalog_names(catalogs.models));
  if (!name) return "";
  const auto known = published_checkpoints(load_model(*name, catalogs.models));
  const auto of_type = std::find_if(known.begin(), known.end(), [&](const PublishedCheckpoint& p) {
    return p.whole && std::string_view(to_string(p.type)).starts_with(quantised->here);
  });
  if (of_type != known.end()) return fmt::format("did you mean {}?", of_type->repository);
  return fmt::format("did you mean {} {}?", *name,
                     argument_given("set", "precision.weights=" + quantised->here));
}

Model model_of(const PlanQuestion& q, const Catalogs& catalogs) {
  if (q.as.empty() && looks_like_repository(q.model)) return published_model(q.model, catalogs.models);
  try {
    return load_model(q.model, catalogs.models, q.as);
  } catch (const UserError& e) {
    std::error_code error;
    const std::string untagged = without_tag(q.model);
    if (!untagged.empty() && !std::filesystem::exists(q.model, error))
      throw tagged(q.model, untagged, catalogs);
    // The name of a repository without its owner is nearer than any name of the catalogue.
    const std::vector<std::string> meant = repositories_begun_by(q.model);
    const std::string typed = meant.empty() ? quantised_model(q.model, catalogs) : "";
    if ((meant.empty() && typed.empty()) || e.diagnostics().size() != 1) throw;
    const auto said = [](const std::string& line) { return line.starts_with("did you mean"); };
    const auto& known = e.diagnostics().front().details;
    if (meant.size() > 1 && std::any_of(known.begin(), known.end(), said)) throw;
    Diagnostic fault = e.diagnostics().front();
    std::erase_if(fault.details, [&](const std::string& line) {
      return said(line) || line.starts_with("the catalogue has none");
    });
    fault.details.insert(fault.details.end() - (fault.details.empty() ? 0 : 1),
                         !typed.empty() ? typed
                                        : fmt::format("did you mean {}{}?", meant.size() > 1 ? "one of " : "",
                                                      fmt::join(meant, ", ")));
    throw UserError({fault});
  }
}

// Steps of the question, to ask strategies whether they have plans for them.
Case case_of(const PlanQuestion& q, const PlanDefaults& d) {
  Case c = make_case(d.model, d.system, Precision{}, q.input + std::max(1LL, q.output / 2), 16, Routing{});
  if (q.prefill()) c.batch = prefill_batch({{0, q.input}});
  return c;
}

bool has_plans(const Strategy& s, const Case& c, const std::vector<int>& gpus) {
  if (!s.takes(c)) return false;
  std::vector<Plan> plans;
  for (const int n : gpus) s.enumerate(c, n, SearchSpace{}, plans);
  return !plans.empty();
}

// Users of one copy, for every number of copies that there may be.
std::string users_key(const PlanQuestion& q, const PlanDefaults& d) {
  std::set<long long> users;
  for (const int gpus : d.gpus) users.insert(d.users_of_copy(q.users, gpus));
  return fmt::format(", users: [{}]", fmt::join(users, ", "));
}

std::string workload_line(const PlanQuestion& q, const PlanDefaults& d) {
  const bool served = d.engine.has_value();
  if (q.prefill()) return fmt::format("phase: prefill\nrequests: [{{new: {} tokens}}]\n", q.input);
  if (!served)
    return fmt::format("context: {} tokens  # the input and half of the output\n",
                       q.input + std::max(1LL, q.output / 2));
  const std::string users = q.users > 0 ? users_key(q, d) : "";
  const std::string why = users.find(", ", 2) != std::string::npos
                              ? fmt::format("  # of one copy: {} on all {} GPUs", q.users, d.most_gpus)
                              : "";
  return fmt::format("workload: {{input: {} tokens, output: {} tokens{}}}{}\n", q.input, q.output, users,
                     why);
}

// Engines load a checkpoint, that of the model's maker where none is named; bare kernels are told to.
std::string models_lines(const PlanQuestion& q, const PlanDefaults& d) {
  const std::string as_asked =
      q.as.empty() ? fmt::format("models: [{}]\n", yaml_word(q.model))
                   : fmt::format("models: [{{file: {}, as: {}}}]\n", yaml_word(q.model), yaml_word(q.as));
  if (d.engine || d.model.checkpoint) return as_asked;
  const std::string own = checkpoint_by_default(d.model).assumed;
  if (looks_like_repository(own)) return fmt::format("models: [{}]  # the checkpoint of its maker\n", own);
  return as_asked + "precision: {weights: bf16, kv: bf16, math: bf16}\n";
}

}  // namespace

std::string MeasuredEngine::why(const std::string& model, const std::string& system) const {
  const auto points = [](int n) { return fmt::format("{} measured point{}", grouped(n), n == 1 ? "" : "s"); };
  const std::string with = types.empty() ? "" : fmt::format(" in {}", fmt::join(types, ", "));
  if (of_both > 0) return fmt::format("{} of {}{} on {}", points(of_both), model, with, system);
  if (of_model > 0)
    return fmt::format("{} of {}{}, none of them on {}", points(of_model), model, with, system);
  if (of_system > 0) return fmt::format("{} on {}, none of them of {}", points(of_system), system, model);
  return fmt::format("{}, none of them of {} or on {}", points(profile.error.rows), model, system);
}

std::vector<MeasuredEngine> best_measured(const std::string& model, const std::string& system,
                                          const std::filesystem::path& engines) {
  std::vector<MeasuredEngine> out;
  for (EngineProfile& profile : load_engines(engines)) {
    MeasuredEngine e{std::move(profile)};
    for (const ServedError& rows : e.profile.error.tables) {
      const auto table = table_of(rows);
      if (!table) continue;
      if (table->model == model) e.of_model += rows.rows;
      if (table->system == system) e.of_system += rows.rows;
      if (table->model == model && table->system == system) e.of_both += rows.rows;
      if (table->model == model && !table->weights.empty()) e.types.insert(table->weights);
    }
    out.push_back(std::move(e));
  }
  const auto rank = [](const MeasuredEngine& e) {
    return std::tuple(-e.of_both, -e.of_model, -e.of_system, -e.profile.error.rows);
  };
  std::stable_sort(out.begin(), out.end(),
                   [&](const MeasuredEngine& a, const MeasuredEngine& b) { return rank(a) < rank(b); });
  return out;
}

std::vector<int> default_gpus(const System& system, int most, bool any_gpus) {
  const int tray = system.fabric.gpus_per_tray();
  std::vector<int> out;
  for (int n = 1; n <= std::min(most, tray); n *= 2) out.push_back(n);
  for (int n = tray; n <= most; n *= 2) out.push_back(n);
  if (most > tray) out.push_back(most / tray * tray);
  if (any_gpus) out.push_back(most);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::string> default_strategies(const PlanQuestion& question, const PlanDefaults& of) {
  const Case c = case_of(question, of);
  std::vector<std::string> out;
  for (const Strategy* s : strategies()) {
    if (!s->exact || !has_plans(*s, c, of.gpus)) continue;
    const bool serves = question.prefill() || (s->mixes && of.engine && !answers_alone(*of.engine, *s));
    if (of.engine ? has_feature(*of.engine, *s) && serves : s->parts == nullptr) out.emplace_back(s->name);
  }
  return out;
}

std::vector<int> default_batches(const PlanQuestion& question, const std::optional<EngineProfile>& engine) {
  if (question.prefill()) return {1};
  if (engine) return question.users > 0 ? std::vector<int>{} : engine->graphs;
  std::vector<int> out{1};
  for (int n = 2; n <= kMostBatch; n *= 2) out.insert(out.end(), {n, n + n / 2});
  return out;
}

PlanDefaults plan_defaults(const PlanQuestion& q, const Catalogs& catalogs,
                           std::optional<EngineProfile> engine) {
  PlanDefaults d;
  d.model = model_of(q, catalogs);
  d.system = load_system(q.system, catalogs.systems, system_settings(q.settings));
  d.engine = std::move(engine);
  const int all = d.system.gpus(), tray = d.system.fabric.gpus_per_tray();
  const int most = q.gpus > 0 ? q.gpus : std::min({kNode, d.system.fabric.gpus_per_node, all});
  if (most > all)
    throw UserError(fmt::format("{} {}: {} has {} GPUs ({} nodes of {})", argument_name("gpus"), most,
                                d.system.name, all, d.system.fabric.nodes, d.system.fabric.gpus_per_node));
  if (d.engine && !q.any_context && d.model.max_context > 0 && q.input + q.output > d.model.max_context)
    throw UserError(
        {Diagnostic{{},
                    fmt::format("input and output are {} tokens, {} is for {} at most",
                                grouped(q.input + q.output), d.model.name, grouped(d.model.max_context)),
                    {shorter_request(q, d.model.max_context),
                     argument_name("any-context") + " lifts that: engines start longer requests if told to",
                     length_rule(*d.engine)}}});
  d.most_gpus = most;
  d.gpus = default_gpus(d.system, most, q.any_gpus);
  if (d.gpus.back() != most)
    d.gpus_note = fmt::format(
        "{} GPUs are not handed out to one plan on {}, but powers of two of a {} of {} and whole ones; "
        "{} lifts that",
        most, d.system.name, d.system.fabric.tray > 0 ? "tray" : "node", tray, argument_name("any-gpus"));
  d.strategies = default_strategies(q, d);
  d.batches = default_batches(q, d.engine);
  if (d.strategies.empty())
    throw UserError(fmt::format("{} runs no strategy that has a plan for {} on up to {} GPUs",
                                d.engine ? title_of(*d.engine) : "nothing", d.model.name, most));
  return d;
}

std::string node_text(const FabricSpec& fabric) {
  if (fabric.tray == 0)
    return fmt::format("{} GPU{}", fabric.gpus_per_node, fabric.gpus_per_node == 1 ? "" : "s");
  return fmt::format("an NVLink domain of {} GPUs in {} trays of {}", fabric.gpus_per_node,
                     fabric.gpus_per_node / fabric.tray, fabric.tray);
}

namespace {

// " (2 nodes of 8 GPUs)", " (1 node, an NVLink domain of 72 GPUs in 18 trays of 4)".
std::string nodes_text(const PlanQuestion& q, const FabricSpec& fabric) {
  if (q.nodes == 0) return "";
  if (q.nodes == 1) return fmt::format(" (1 node{}{})", fabric.tray > 0 ? ", " : " of ", node_text(fabric));
  return fmt::format(" ({} nodes{}{})", q.nodes, fabric.tray > 0 ? ", each " : " of ", node_text(fabric));
}

// On a system, as it is to be named.
std::string text_of(const PlanQuestion& q, const PlanDefaults& d, const std::string& system) {
  std::string out =
      fmt::format("{} on up to {} GPU{} of {}{}: input {} tokens", d.model.name, d.most_gpus,
                  d.most_gpus == 1 ? "" : "s", system, nodes_text(q, d.system.fabric), grouped(q.input));
  if (!q.prefill()) out += fmt::format(", output {} tokens", grouped(q.output));
  if (q.users > 0)
    out += fmt::format(", {}{} user{}", q.engine == "ideal" ? "at least " : "", grouped(q.users),
                       q.users == 1 ? "" : "s");
  if (q.rate > 0) out += fmt::format(", {}", rate_text(q.rate));
  const std::string target = target_text(q);
  return target.empty() ? out : out + "; " + target;
}

}  // namespace

std::string target_options(const PlanQuestion& q, Seconds ttft) {
  std::string out;
  const auto time = [&](const char* flag, Seconds t) {
    if (t > Seconds(0)) out += fmt::format(" {} {}", flag, shell_word(to_string(t, 12)));
  };
  if (q.tokens_per_user > 0)
    out += fmt::format(" --tokens-per-user {}", q.tokens_per_user);
  else
    time("--ttl", q.ttl);
  time("--ttft", ttft);
  return out;
}

std::string settings_options(const PlanQuestion& q) {
  std::string out;
  for (const std::string& setting : q.settings) out += " --set " + shell_word(setting);
  return out;
}

std::string plan_scenario(const PlanQuestion& q, const PlanDefaults& d) {
  std::string out = std::string(kSavedBy) + " Keys: scenarios/README.md.\n";
  out += fmt::format("name: plan\nsummary: {}\n", yaml_word(text_of(q, d, d.system.name)));
  out += fmt::format("system: {}\n", yaml_word(q.system));
  if (!q.costs.empty()) out += fmt::format("costs: {}\n", yaml_word(q.costs));
  if (d.engine)
    out += fmt::format("engine: {{name: {}, version: {}}}{}\n", d.engine->name,
                       yaml_quoted(d.engine->version), d.engine_why.empty() ? "" : "  # " + d.engine_why);
  if (q.any_gpus) out += "any_gpus: true\n";
  if (q.any_context) out += "any_context: true\n";
  out += models_lines(q, d) + workload_line(q, d);
  out +=
      fmt::format("strategies: [{}]\ngpus: [{}]\n", fmt::join(d.strategies, ", "), fmt::join(d.gpus, ", "));
  if (!d.batches.empty()) out += fmt::format("batch: [{}]\n", fmt::join(d.batches, ", "));
  if (d.engine && !q.prefill())
    out += fmt::format("constraints: {{pool_gpus: {}}}  # prompts and answers on GPUs of their own\n",
                       d.most_gpus);
  if (q.gpu_hour > 0) out += fmt::format("gpu_hour_price: {}\n", q.gpu_hour);
  return out;
}

namespace {

// A rate as it was given, as far as it can be told: by the first unit in which four digits are all of it.
struct RateWords {
  std::string shown, whole;  // the number with four digits, and with all of them
  const char* per;           // "s", "min", "h"
};

RateWords rate_words(double per_s) {
  constexpr double kRounding = 1e-12;
  for (const auto& [per, seconds] : {std::pair{"s", 1.0}, std::pair{"min", 60.0}, std::pair{"h", 3600.0}}) {
    const std::string number = fmt::format("{:.4g}", per_s * seconds);
    const double again = std::strtod(number.c_str(), nullptr) / seconds;
    if (std::abs(again - per_s) <= kRounding * per_s && number.find('e') == std::string::npos)
      return {number, number, per};
  }
  return {fmt::format("{:.4g}", per_s), fmt::format("{}", per_s), "s"};
}

}  // namespace

std::string rate_text(double per_s) {
  const RateWords words = rate_words(per_s);
  return fmt::format("{} request{}/{}", words.shown, words.shown == "1" ? "" : "s", words.per);
}

std::string rate_argument(double per_s) {
  const RateWords words = rate_words(per_s);
  return words.whole + "/" + words.per;
}

std::string target_text(const PlanQuestion& q) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  // Under an engine that serves users wait for the prompts of others, too: the mean over an answer.
  if (q.ttl > Seconds(0))
    add(time_target_text(q.engine == "ideal" ? "TTL" : "TPOT", q.ttl, q.tokens_per_user));
  if (q.ttft > Seconds(0)) add("TTFT at most " + to_string(q.ttft));
  return out;
}

std::string question_text(const PlanQuestion& q, const PlanDefaults& d) {
  return text_of(q, d, d.system.name + set_text(d.system)) + scenario_settings_text(q.settings);
}

}  // namespace shardline
