#include "planner/studies/conversation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/api/convert_studies.hpp"
#include "planner/cli/commands.hpp"
#include "planner/cli/engine_parts.hpp"
#include "planner/cli/interval_parts.hpp"
#include "planner/cli/plan_notes.hpp"
#include "planner/cli/sweep_parts.hpp"
#include "planner/studies/study_memory.hpp"
#include "reports/atomic_file.hpp"
#include "reports/json.hpp"
#include "reports/table.hpp"
#include "sim/base/cancel.hpp"

namespace shardline::cli {

namespace {

struct ConversationOptions {
  std::string scenario, costs, out;
  std::vector<std::string> settings;
};

void print(const Study& study, const std::vector<TurnTime>& turns) {
  const Conversation& talk = study.conversation();
  print_notes("{}: conversation on CP{} x TP{}, {}, one user\n", study.title, talk.cp, talk.tpa,
              gpus_text(talk.cp * talk.tpa));
  print_notes("{}", engine_text(study.study));
  const ShareColumns shown(study.study.system, turns, [](const TurnTime& t) { return t.shares; });
  const System& system = study.study.system;
  const std::vector<std::string> interval = interval_header(system);
  Table t(shown.header(joined_cells({{"turn", "new tokens", "cached", "KV hit rate", "variant", "TTFT"},
                                     interval,
                                     {"other variant", "output tokens", "TTL first", "TTL last"},
                                     interval,
                                     {"whole turn"},
                                     interval,
                                     {"KV/GPU"}})));
  std::vector<std::string> open;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const TurnTime& turn = turns[i];
    const Seconds other = turn.kv_chosen ? turn.pass_q : turn.pass_kv;
    const bool answers = turn.output > 0;
    t.add(shown.cells(
        joined_cells(
            {{std::to_string(i + 1), std::to_string(turn.fresh), std::to_string(turn.cached),
              fmt::format("{:.1f} %", 100 * turn.hit_rate()), turn.kv_chosen ? "pass-KV" : "pass-Q",
              to_string(turn.ttft())},
             time_cells(system, turn.ttft_errors()),
             {fmt::format("{:+.1f} %", 100 * (other / turn.ttft() - 1)), std::to_string(turn.output),
              answers ? to_string(turn.first_ttl) : "", answers ? to_string(turn.last_ttl) : ""},
             answers ? time_cells(system, turn.ttl_errors) : std::vector(interval.size(), std::string()),
             {to_string(turn.answer)},
             time_cells(system, turn.errors),
             {to_string(turn.kv_per_gpu, 3)}}),
        turn.shares));
    if (!system.calibration.empty() && !turn.variants_told_apart()) open.push_back(std::to_string(i + 1));
  }
  print_notes("{}{}{}", fitted(t), costs_line(system), interval_note(study.study));
  if (!open.empty())
    print_notes("  the other variant may be the faster one, as prices may be off: turn {}\n",
                fmt::join(open, ", "));
  const TtftTotals all = ttft_totals(turns);
  print_notes("  all TTFTs: {} with the variant chosen per turn, {} always pass-KV, {} always pass-Q\n\n",
              to_string(all.chosen), to_string(all.pass_kv), to_string(all.pass_q));
}

std::string csv(const std::vector<TurnTime>& turns) {
  std::vector<std::string> header{"turn",
                                  "new_tokens",
                                  "cached_tokens",
                                  "kv_hit_rate",
                                  "variant",
                                  "ttft_s",
                                  "pass_kv_s",
                                  "pass_q_s",
                                  "output_tokens",
                                  "ttl_first_ms",
                                  "ttl_last_ms",
                                  "turn_s",
                                  "kv_gb_per_gpu",
                                  "tokens_fullest_rank",
                                  "tokens_emptiest_rank",
                                  "ttft_low_s",
                                  "ttft_high_s",
                                  "ttl_last_low_ms",
                                  "ttl_last_high_ms",
                                  "turn_low_s",
                                  "turn_high_s",
                                  "variants_told_apart"};
  header.insert(header.end(), share_columns().begin(), share_columns().end());
  std::string out = csv_line(header);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const TurnTime& t = turns[i];
    std::vector<std::string> cells{std::to_string(i + 1),
                                   std::to_string(t.fresh),
                                   std::to_string(t.cached),
                                   number_text(t.hit_rate()),
                                   t.kv_chosen ? "pass_kv" : "pass_q",
                                   number_text(t.ttft().value),
                                   number_text(t.pass_kv.value),
                                   number_text(t.pass_q.value),
                                   std::to_string(t.output),
                                   number_text(t.first_ttl.value * 1e3),
                                   number_text(t.last_ttl.value * 1e3),
                                   number_text(t.answer.value),
                                   number_text(t.kv_per_gpu.value / 1e9),
                                   std::to_string(t.fullest),
                                   std::to_string(t.emptiest)};
    for (const auto& [time, errors] :
         {std::pair(t.ttft(), t.ttft_errors()), std::pair(t.last_ttl * 1e3, t.ttl_errors),
          std::pair(t.answer, t.errors)}) {
      const ErrorRange off = time_error(errors);
      for (const double end : {off.low, off.high}) cells.push_back(number_text(time.value * (1 + end)));
    }
    cells.emplace_back(t.variants_told_apart() ? "1" : "0");
    const auto shares = share_cells(t.shares);
    cells.insert(cells.end(), shares.begin(), shares.end());
    out += csv_line(cells);
  }
  return out;
}

Plot plot(const Study& study, const std::vector<TurnTime>& turns, const Provenance& made_by) {
  Plot p;
  p.title = study.title + ": TTFT by turn";
  p.x_label = "turn";
  p.y_label = "TTFT (s)";
  p.log_y = true;
  p.footnote = "shardline " + made_by.version + ": " + made_by.command;
  PlotSeries kv{"pass-KV", PlotStyle::line_points, {}}, q{"pass-Q", PlotStyle::line_points, {}};
  for (std::size_t i = 0; i < turns.size(); ++i) {
    kv.points.emplace_back(static_cast<double>(i + 1), turns[i].pass_kv.value);
    q.points.emplace_back(static_cast<double>(i + 1), turns[i].pass_q.value);
  }
  p.series = {kv, q};
  return p;
}

void declare(Arguments& a, ConversationOptions& o) {
  a.add("scenario", o.scenario, "Scenario file with a conversation, or the name of a shipped one")
      .required()
      .offers(offered_conversations)
      .files();
  add_costs(a, o.costs);
  a.add("-o,--out", o.out, "Folder for turns.csv, run.json (the answer as --json has it) and the plot")
      .output_folder();
  add_settings(a, o.settings);
}

int run(const ConversationOptions& o, const Provenance& made_by) {
  const Scenario scenario = scenario_named(o.scenario, overrides_of(o.costs, o.settings));
  const std::vector<FolderClaim> claims = claim_folders(scenario, o.out);
  api::ConversationResult result{made_by.version, made_by.command, scenario.name, {o.scenario, ""}, {}};
  for (const Study& study : scenario.studies) {
    require_question<Conversation>(study, o.scenario);
    require_memory(need_of_conversation(study.conversation()));
    std::vector<TurnTime> turns;
    {
      Progress progress(study.study.model.name, Progress::terminal(), "turns");
      turns = converse(study, [&](std::uint64_t done, std::uint64_t total) {
        progress.show(done, total);
        if (interrupted()) throw Cancelled{};
      });
    }
    print(study, turns);
    warn_of_idle_settings(o.scenario, o.costs, o.settings, study, csv(turns),
                          [](const Study& other) { return csv(converse(other)); });
    result.models.push_back(api::model_conversation(study, turns));
    if (o.out.empty()) continue;
    OutputFolder files(folder_of(study, o.out));
    files.write("turns.csv", csv(turns));
    files.draw(plot(study, turns, made_by), "ttft");
    api::ConversationResult of_model = result;
    of_model.models = {result.models.back()};
    files.write("run.json", api::to_json(of_model));
    print_notes("{}\n", files.publish());
  }
  if (made_by.document != nullptr) made_by.document->set(api::to_json(result));
  return 0;
}

}  // namespace

const Command kConversationCommand{"conversation", "TTFT and TTL of every turn of a conversation",
                                   "shardline conversation conversation_405b_128k -o out/conversation",
                                   prepare<ConversationOptions, declare, run>};

}  // namespace shardline::cli
