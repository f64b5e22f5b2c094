// The functions of the library.
#include <fmt/format.h>

#include <functional>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "planner/api/argument_keys.hpp"
#include "planner/api/convert.hpp"
#include "planner/api/convert_deployment.hpp"
#include "planner/api/convert_explain.hpp"
#include "planner/api/convert_handoff.hpp"
#include "planner/api/convert_list.hpp"
#include "planner/api/convert_plan.hpp"
#include "planner/api/convert_serve.hpp"
#include "planner/api/convert_studies.hpp"
#include "planner/api/shardline.hpp"
#include "planner/scenario/asked_amounts.hpp"
#include "planner/scenario/shipped.hpp"
#include "planner/studies/idle_settings.hpp"
#include "planner/studies/searched_partition.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/memory_limit.hpp"
#include "sim/base/read_text.hpp"

namespace shardline::api {

namespace {

// Places in settings, which have the name of the program's option; arguments that are at fault by their
// names.
std::vector<shardline::Diagnostic> of_library(std::span<const shardline::Diagnostic> diagnostics) {
  std::vector<shardline::Diagnostic> out(diagnostics.begin(), diagnostics.end());
  for (shardline::Diagnostic& d : out) {
    if (d.where.file == kSettingOrigin) d.where.file = argument_name("set");
    if (d.where.file.empty() && d.where.key.empty()) d.where.key = argument_in(d.what);
  }
  return out;
}

// Faults as this library reports them.
template <class Answer>
auto translated(Answer answer) {
  try {
    return answer();
  } catch (const Cancelled&) {
    throw Error(ErrorKind::interrupted, "interrupted");
  } catch (const UserError& e) {
    const LibraryArguments names;
    const UserError mine(of_library(e.diagnostics()));
    throw Error(ErrorKind::bad_input, mine.what(), diagnostics_of(mine.diagnostics()));
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {  // as what `memory` refuses: exit code 2 of the program
    throw Error(ErrorKind::bad_input, "out of memory: ask for less at once, or run it with more");
  } catch (const std::exception& e) {
    throw Error(ErrorKind::internal, e.what());
  }
}

// How long a question may take and what it may need, while it is answered.
struct RunScope {
  explicit RunScope(const RunOptions& o) : cancel(&o.cancelled), memory(limit_of(o)) {
    constexpr int kMostThreads = 1024;  // as on the command line
    if (o.threads < 0 || o.threads > kMostThreads)
      throw UserError(
          fmt::format("threads {}: expected 1 to {}, or 0 for all cores", o.threads, kMostThreads));
  }

  static std::optional<Bytes> limit_of(const RunOptions& o) {
    if (!(o.memory_bytes >= 0)) throw UserError("memory: expected a positive size");
    return o.memory_bytes > 0 ? std::optional(Bytes(o.memory_bytes)) : std::nullopt;
  }

  LibraryArguments names;
  CancelScope cancel;
  MemoryScope memory;
  PipesKept pipes;
};

void require_costs(const RunOptions& o) {
  if (!o.costs.empty() && o.costs != "calibrated" && o.costs != "parameters")
    throw UserError("costs: expected calibrated or parameters, found " + o.costs);
}

Scenario scenario_of(const std::string& name, const std::string& text, const RunOptions& o) {
  require_costs(o);
  if (name.empty() && text.empty())
    throw UserError(
        {shardline::Diagnostic{{},
                               fmt::format("{} is missing: a shipped one, a file, or {}",
                                           argument_name("scenario"), argument_name("scenario_text")),
                               {"list(\"scenarios\") has the shipped ones"}}});
  const Overrides given{costs_named(o.costs), o.engine, o.any_gpus, o.any_context, o.settings};
  if (text.empty()) return scenario_named(name, given);
  return parse_scenario(name.empty() ? "scenario" : name, text, shipped_catalogs(), given);
}

// Of the scenario of a question, whose name may be empty.
template <class Asked>
void require(const Study& study, const std::string& scenario, const char* expected) {
  if (!std::holds_alternative<Asked>(study.question))
    throw UserError(scenario + " asks for another answer: " + expected);
}

// Settings without which the plans of an answer are as good.
template <class Asked>
std::vector<shardline::Diagnostic> idle(const Study& study, const std::vector<Plan>& plans,
                                        const Asked& question, const RunOptions& o,
                                        const std::vector<std::string>& named) {
  return idle_settings(study, plans, o.settings, named, [&](const std::vector<std::string>& others) {
    RunOptions less = o;
    less.settings = others;
    return study_of(scenario_of(question.scenario, question.scenario_text, less), study.study.model.name);
  });
}

std::function<void(std::uint64_t, std::uint64_t)> watch(const RunOptions& o) {
  return [&o](std::uint64_t done, std::uint64_t total) {
    if (o.cancelled && o.cancelled()) throw Cancelled{};
    if (o.progress) o.progress(done, total);
  };
}

// Chains are priced for seconds between two calls of watch().
EvaluatorFactory until_cancelled(EvaluatorFactory chains, const RunOptions& o) {
  return [chains = std::move(chains), &o](int ranks, long long context) -> ChainEvaluator {
    return [price = chains(ranks, context), &o](std::span<const long long> partition) {
      if (o.cancelled && o.cancelled()) throw Cancelled{};
      return price(partition);
    };
  };
}

}  // namespace

PlanResult plan(const PlanQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    require_costs(o);
    const Catalogs catalogs = shipped_catalogs();
    PlanResult out;
    if (question.slo.empty()) {
      require_no_load(question);
      out = plan_result(answer_plan(plan_question_of(question, o, catalogs), catalogs, watch(o)));
    } else {
      const AskedDeployment asked = asked_deployment(question, o);
      out = deployment_result(asked, cheapest_deployment(asked.plan.study, asked.question, watch(o)),
                              question.slo, kUnsavedQuestion);
    }
    out.version = version();
    out.question = question;
    return out;
  });
}

SweepResult sweep(const SweepQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    const Scenario scenario = scenario_of(question.scenario, question.scenario_text, o);
    SweepResult out;
    out.version = version();
    out.scenario = scenario.name;
    out.summary = scenario.summary;
    out.question = question;
    SweepVerdict verdict;
    const auto go_on = [&o] { return !o.cancelled || !o.cancelled(); };
    for (const Study& study : scenario.studies) {
      require<Sweep>(study, scenario.name, "expected a scenario that sweeps");
      const shardline::SweepQuestion asked = question_for(study, question, o.threads);
      SweepAnswer answer = answer_sweep(study, asked, watch(o), go_on);
      if (!go_on()) throw Cancelled{};
      add_idle_settings(answer.unread, idle(study, plans_of(answer.rated), question, o, {}));
      out.models.push_back(model_sweep(study, asked, answer));
      verdict.add(study, asked, answer);
    }
    out.met = verdict.met();
    return out;
  });
}

SimulateResult simulate(const SimulateQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    const Scenario scenario = scenario_of(question.scenario, question.scenario_text, o);
    Study study = study_of(scenario, question.model);
    require<Sweep>(study, scenario.name, "expected a scenario that sweeps");
    if (question.copies < 1 || question.copies > 1024) throw UserError("copies: expected 1 to 1024");
    if (question.noise_seed) {
      if (!study.sweep().noise) throw UserError("noise_seed: scenario " + scenario.name + " has no noise");
      if (*question.noise_seed < 0) throw UserError("noise_seed: expected 0 or more");
      study.sweep().noise->seed = static_cast<std::uint64_t>(*question.noise_seed);
    }
    Evaluator evaluator(study.study, study.sweep().search.all_reduce);
    SimulatedPlan simulated = simulate_plan(study, evaluator, possible_plan(study, question.plan));
    if (!simulated.misfit)
      add_idle_settings(simulated.unread, idle(study, {simulated.plan}, question, o, {question.plan}));
    SimulateResult out = simulate_result(study, simulated, question.copies);
    out.version = version();
    out.scenario = scenario.name;
    out.question = question;
    return out;
  });
}

ExplainResult explain(const ExplainQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    const Scenario scenario = scenario_of(question.scenario, question.scenario_text, o);
    const Study study = study_of(scenario, question.model);
    require<Sweep>(study, scenario.name, "expected a scenario that sweeps");
    const auto with = [&](const std::vector<std::string>& settings) {
      RunOptions other = o;
      other.settings = settings;
      return study_of(scenario_of(question.scenario, question.scenario_text, other), study.study.model.name);
    };
    Explanation found = shardline::explain(study, possible_plan(study, question.plan), o.settings,
                                           shipped_catalogs().systems, with, watch(o));
    if (!found.simulated.misfit)
      add_idle_settings(found.simulated.unread,
                        idle(study, {found.simulated.plan}, question, o, {question.plan}));
    ExplainResult out = explain_result(study, found);
    out.version = version();
    out.scenario = scenario.name;
    out.question = question;
    return out;
  });
}

HandoffResult handoff(const HandoffQuestion& question, const RunOptions& o) {
  return translated([&] {
    constexpr long long kMostAtOnce = 1000;  // as of --at-once
    const RunScope scope(o);
    if (question.tokens < 0) throw UserError("tokens: expected 0 or more");
    if (question.at_once < 1 || question.at_once > kMostAtOnce)
      throw UserError(fmt::format("at_once {}: expected 1 to {}", question.at_once, kMostAtOnce));
    const Scenario scenario = scenario_of(question.scenario, question.scenario_text, o);
    const Study study = study_of(scenario, question.model);
    require<Sweep>(study, scenario.name, "expected a scenario that sweeps");
    const HandoffStudy found = study_handoff(
        study, {question.prefill, question.decode, question.tokens, static_cast<int>(question.at_once)});
    HandoffResult out = handoff_result(study, found);
    out.version = version();
    out.scenario = scenario.name;
    out.question = question;
    return out;
  });
}

ServeResult serve(const ServeQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    require_costs(o);
    const AskedService asked = asked_service(question, o, watch(o));
    ServeQuestion played = question;
    played.replicas = asked.question.replicas;
    ServeResult out = serve_result(asked, serve_requests(asked.study, asked.question, watch(o)), played);
    out.version = version();
    return out;
  });
}

CompareResult compare(const CompareQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    if (question.plans.size() != 2)
      throw UserError(
          fmt::format("{}: expected two, found {}", argument_name("plan"), question.plans.size()));
    const Scenario scenario = scenario_of(question.scenario, question.scenario_text, o);
    const Study study = study_of(scenario, question.model);
    require<Sweep>(study, scenario.name, "expected a scenario that sweeps");
    Evaluator a(study.study, study.sweep().search.all_reduce),
        b(study.study, study.sweep().search.all_reduce);
    PlanComparison found = compare_plans(study, a, b, possible_plan(study, question.plans[0]),
                                         possible_plan(study, question.plans[1]));
    add_idle_settings(found.first.unread,
                      idle(study, {found.first.plan, found.second.plan}, question, o, question.plans));
    CompareResult out = compare_result(study, found);
    out.version = version();
    out.scenario = scenario.name;
    out.question = question;
    return out;
  });
}

ThresholdsResult thresholds(const ThresholdsQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    const auto context = context_question(question);
    const auto prompts = context ? read_prompts(*context, o.threads) : std::vector<TraceRequest>{};
    const Scenario scenario = scenario_of(question.scenario, question.scenario_text, o);
    ThresholdsResult out;
    out.version = version();
    out.scenario = scenario.name;
    out.question = question;
    for (const Study& study : scenario.studies) {
      require<ThresholdGrid>(study, scenario.name, "expected a scenario with thresholds");
      const ThresholdStudy found = study_thresholds(study, o.threads, watch(o));
      out.models.push_back(model_thresholds(study, found));
      if (context)
        out.models.back().in_context =
            in_context(study, study_in_context(study, found, *context, prompts, o.threads, watch(o)));
    }
    return out;
  });
}

PartitionResult partition(const PartitionQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    Scenario scenario = scenario_of(question.scenario, question.scenario_text, o);
    PartitionResult out;
    out.version = version();
    out.scenario = scenario.name;
    out.question = question;
    for (Study& study : scenario.studies) {
      require<PartitionGrid>(study, scenario.name, "expected a scenario with a partition");
      ask_partitions(study, question);
      const PartitionGrid& grid = study.partition();
      const EvaluatorFactory events = until_cancelled(simulated_chains(study.study, grid.tpa), o);
      const std::uint64_t lengths = partition_lengths(grid);  // of a chain, before rows are added
      std::uint64_t before = 0;
      std::vector<ChainPartitions> chains;
      for (const int ranks : grid.processes) {
        const std::uint64_t after = (grid.processes.size() - chains.size() - 1) * lengths;
        const PartitionStudy found = study_partitions(study.study, grid, ranks, o.threads, events,
                                                      [&](std::uint64_t done, std::uint64_t total) {
                                                        watch(o)(before + done, before + total + after);
                                                      });
        before += found.cells.size();
        chains.push_back(chain_partitions(found, errors_of_partitions(study, found)));
      }
      out.models.push_back(model_partitions(study, std::move(chains)));
    }
    return out;
  });
}

ConversationResult conversation(const ScenarioQuestion& question, const RunOptions& o) {
  return translated([&] {
    const RunScope scope(o);
    const Scenario scenario = scenario_of(question.scenario, question.scenario_text, o);
    ConversationResult out;
    out.version = version();
    out.scenario = scenario.name;
    out.question = question;
    for (const Study& study : scenario.studies) {
      require<Conversation>(study, scenario.name, "expected a scenario with a conversation");
      watch(o)(out.models.size(), scenario.studies.size());
      out.models.push_back(model_conversation(study, converse(study)));
    }
    return out;
  });
}

ListResult list(const std::string& what, const RunOptions&) {
  return translated([&] {
    ListResult out = listed(what);
    out.version = version();
    return out;
  });
}

double seconds_of(const std::string& name, const std::string& text) {
  return translated([&] { return asked_time(name, text).value; });
}

long long tokens_of(const std::string& name, const std::string& text) {
  return translated([&] { return asked_tokens(name, text); });
}

long long count_of(const std::string& name, const std::string& text) {
  return translated([&] { return asked_count(name, text); });
}

double bytes_of(const std::string& name, const std::string& text) {
  return translated([&] { return asked_bytes(name, text).value; });
}

double rate_of(const std::string& name, const std::string& text) {
  return translated([&] { return asked_rate(name, text); });
}

}  // namespace shardline::api
