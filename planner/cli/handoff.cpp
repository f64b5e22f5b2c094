// handoff: a request's cache, from a plan that prefills to one that decodes, in at most 80 columns.
#include <fmt/format.h>

#include "planner/api/convert_handoff.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/scenario/asked_amounts.hpp"
#include "planner/studies/plan_intervals.hpp"
#include "planner/studies/simulated_plan.hpp"
#include "reports/table.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

struct HandoffOptions {
  std::string scenario, costs, model, prefill, decode, tokens;
  int at_once = 1;
  EngineOptions engine;
};

constexpr std::size_t kRows = 16;  // of pairs that are printed

// Ranks that do the same are one line.
void print_ranks(const char* what, const char* peers, const std::vector<RankPair>& ranks, bool senders) {
  Table t({what, peers, "pieces", "descriptors", "bytes"});
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    const RankPair& r = ranks[i];
    const auto rank = [&](const RankPair& p) { return senders ? p.from : p.to; };
    const auto others = [&](const RankPair& p) { return senders ? p.to : p.from; };
    while (end < ranks.size() && others(ranks[end]) == others(r) && ranks[end].pieces == r.pieces &&
           ranks[end].descriptors == r.descriptors && ranks[end].bytes == r.bytes &&
           rank(ranks[end]) == rank(ranks[end - 1]) + 1)
      ++end;
    const std::string name =
        end == i + 1 ? std::to_string(rank(r)) : fmt::format("{} to {}", rank(r), rank(ranks[end - 1]));
    t.add({name, std::to_string(others(r)), std::to_string(r.pieces), std::to_string(r.descriptors),
           to_string(r.bytes)});
    i = end;
  }
  print_notes("{}\n", fitted(t));
}

void print_pairs(const HandoffStudy& s) {
  Table t({"from", "to", "pieces", "descriptors", "bytes"});
  for (std::size_t i = 0; i < std::min(kRows, s.pairs.size()); ++i) {
    const RankPair& p = s.pairs[i];
    t.add({std::to_string(p.from), std::to_string(p.to), std::to_string(p.pieces),
           std::to_string(p.descriptors), to_string(p.bytes)});
  }
  print_notes("{}", fitted(t));
  if (s.pairs.size() > kRows)
    print_notes("  {} of {} pairs of ranks; --json has all\n", kRows, s.pairs.size());
  print_notes("\n");
}

void print_times(const Study& study, const HandoffStudy& s) {
  Table t({"from the end of the prefill", "time"});
  t.add({"alone", to_string(s.alone)});
  if (s.at_once > 1) t.add({fmt::format("{} requests together", s.at_once), to_string(s.together)});
  t.add({"beside steps of the plan that decodes", to_string(s.beside_steps)});
  t.add({"layer by layer behind the prefill", to_string(s.by_layer)});
  t.add({"bytes over the links alone", to_string(s.by_links)});
  print_notes("{}", fitted(t));
  const bool prices = !study.study.system.calibration.empty();
  const auto range = [&](const ErrorTerms& errors) {
    return prices ? fmt::format(" ({})", range_text(time_error(errors))) : "";
  };
  print_notes("  prefill {}{}, step of the plan that decodes {}{}: {}\n", to_string(s.prefill_time),
              range(s.prefill_errors), to_string(s.step_time), range(s.step_errors),
              what_intervals_are(study.study));
  print_notes(
      "  times of the hand-off rest on the links of the system file and on descriptors as makers tell them, "
      "none "
      "was measured: {}, as of all that is assumed\n",
      range_text(handoff_error()));
}

// What an engine's profile takes for granted of both servers.
void print_assumed(const Case& c) {
  if (!c.engine) return;
  const std::string kv = c.precision.assumed.kv ? assumed_cache_text(c) : "";
  print_notes("  engine: {}; assumed: {}{}\n{}", title_of(*c.engine), kv.empty() ? "" : kv + ", ",
              assumed_text(c), precision_text(c));
}

void print(const Study& study, const HandoffStudy& s) {
  print_notes("{}\n", study.title);
  print_notes("  {} to {}: {} tokens, {} as sent, by {}\n", to_string(s.prefill), to_string(s.decode),
              s.tokens, to_string(s.handoff.bytes()), s.engine.of);
  print_assumed(study.study);
  print_notes("\n");
  print_ranks("sender", "receivers", s.sent(), true);
  print_ranks("receiver", "senders", s.received(), false);
  print_pairs(s);
  print_times(study, s);
}

void declare(Arguments& a, HandoffOptions& o) {
  a.add("scenario", o.scenario, "Scenario file, or the name of a shipped scenario")
      .required()
      .offers(offered_sweeps)
      .files();
  a.add("--prefill", o.prefill, "Text of the plan that prefills, as sweep prints it").required();
  a.add("--decode", o.decode, "Text of the plan that decodes").required();
  a.add("--tokens", o.tokens, "Tokens of the prompt: 32768, 32K (default: the scenario's)");
  a.add("--at-once", o.at_once, "Requests that are handed over together (default: 1)").range(1, 1000);
  a.add("--model", o.model, "Which model of the scenario (default: the first)").offers(offered_models);
  add_costs(a, o.costs);
  add_engine(a, o.engine);
}

int run(const HandoffOptions& o, const Provenance& made_by) {
  const Scenario scenario = scenario_named(o.scenario, overrides_of(o.costs, o.engine));
  const Study study = study_of(scenario, o.model);
  require_question<Sweep>(study, o.scenario);
  const long long tokens = o.tokens.empty() ? 0 : asked_tokens("--tokens", o.tokens);
  const HandoffStudy found = study_handoff(study, {o.prefill, o.decode, tokens, o.at_once});
  if (made_by.document != nullptr) {
    api::HandoffResult result = api::handoff_result(study, found);
    result.version = made_by.version;
    result.command = made_by.command;
    result.scenario = scenario.name;
    result.question = {o.scenario, "", o.model, o.prefill, o.decode, tokens, o.at_once};
    made_by.document->set(api::to_json(result));
  }
  print(study, found);
  return 0;
}

}  // namespace

const Command kHandoffCommand{"handoff", "A request's cache, from a plan that prefills to one that decodes",
                              "shardline handoff helix_gb200_1m --model llama-3.1-405b --tokens 128K "
                              "--prefill tensor:tpa=8,tpf=8,batch=1 --decode "
                              "helix:kvp=8,tpa=8,tpf=64,batch=4",
                              prepare<HandoffOptions, declare, run>};

}  // namespace shardline::cli
