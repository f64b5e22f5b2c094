#include "calibrate/validate/apb_evidence.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/model/catalog.hpp"

namespace shardline {

namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr const char* kAuthors = "MINFERENCE over FLASHATTN, its authors' times";

std::string text(double seconds) { return fmt::format("{:.{}f}", seconds, seconds < 100 ? 2 : 1); }

std::string errors_text(const std::vector<double>& errors) {
  const ErrorSummary e = error_summary(errors);
  return fmt::format("median {}, largest {}", percent_text(e.median), percent_text(e.largest));
}

// Of the same prefill as a speed: Table 14 has APB's sizes of its own from 256K on.
const ApbValue* prefill_beside(const ApbTruth& truth, const ApbValue& speed) {
  const auto same = [&](const ApbValue& v) {
    return v.column == ApbColumn::prefill && v.model == speed.model && v.method == speed.method &&
           v.tokens == speed.tokens && v.batch == speed.batch &&
           apb_plan(v.method, v.tokens, base_table(v.table) == "table14") ==
               apb_plan(v.method, v.tokens, base_table(speed.table) == "table14");
  };
  const auto found = std::find_if(truth.values.begin(), truth.values.end(), same);
  return found == truth.values.end() ? nullptr : &*found;
}

void add_rests(PaperSection& section, const ApbTruth& truth) {
  Rows rows{{"method", "tokens", "whole, from the speed (s)", "prefill (s)", "left for output (s)"}};
  double least = 0, most = 0;
  for (const ApbValue& v : truth.values) {
    if (v.column != ApbColumn::speed || !v.task.empty()) continue;
    const ApbValue* prefill = prefill_beside(truth, v);
    if (prefill == nullptr) continue;
    const double whole = static_cast<double>(v.batch * v.tokens) / v.published;
    const double rest = whole - prefill->published;
    least = rows.size() == 1 ? rest : std::min(least, rest);
    most = rows.size() == 1 ? rest : std::max(most, rest);
    rows.push_back(
        {to_string(v.method), length_text(v.tokens), text(whole), text(prefill->published), text(rest)});
  }
  if (rows.size() == 1) return;
  section.items.emplace_back(std::move(rows));
  section.items.emplace_back(fmt::format(
      "The paper's own tables leave {} to {} s, by method and length; ours is {:.2f} s everywhere. It "
      "depends on how "
      "many tokens come out, which is not published: the code stops where an answer ends, or after 128.",
      text(least), text(most), truth.generation.value));
}

void add_shares(PaperSection& section, const ApbTruth& truth, ApbModel& model) {
  Rows rows{{"tokens", "APB's prefill, ours (s)", "with output (s)", "of it output"}};
  std::string note;
  for (long long tokens = 4096; tokens <= 524'288; tokens *= 2) {
    const double prefill = model.times("llama-3-8b-1m", ApbMethod::apb, tokens, false).prefill.value;
    const double share = truth.generation.value / (prefill + truth.generation.value);
    rows.push_back({length_text(tokens), fmt::format("{:.3f}", prefill),
                    fmt::format("{:.3f}", prefill + truth.generation.value),
                    fmt::format("{:.0f} %", 100 * share)});
    if (tokens == 4096)
      note = fmt::format(
          "A speed at {} compares output times, not prefills: if the output takes half of the constant "
          "there, the "
          "speed is {:.0f} % too low with the prefill exactly right.",
          length_text(tokens), 50 * share);
  }
  section.items.emplace_back(std::move(rows));
  section.items.emplace_back(std::move(note));
}

}  // namespace

std::string length_text(long long tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}K", tokens / 1024) : std::to_string(tokens);
}

Seconds head_call(const ApbTruth& truth, const Catalogs& catalogs) {
  return truth.calls.each(heads_of_all_layers(load_model(truth.calls.model, catalogs.models)));
}

void add_output_times(PaperReport& paper, const ApbTruth& truth, ApbModel& model) {
  PaperSection section{"What speeds leave for output tokens", {}};
  add_rests(section, truth);
  add_shares(section, truth, model);
  paper.sections.push_back(std::move(section));
}

void add_head_calls(PaperReport& paper, const ApbTruth& truth, ApbModel& model) {
  const ApbHeadCalls& theirs = truth.calls;
  const Seconds calls = model.head_calls(theirs.model);
  Rows rows{{"tokens", "FLASHATTN (s)", "ours", "MINFERENCE (s)", "kernels alone, ours", "ours", "ratio",
             "kernels alone, ours", "ours"}};
  std::vector<double> alone, with;
  for (std::size_t i = 0; i < theirs.tokens.size(); ++i) {
    const Seconds flash = model.times(theirs.model, ApbMethod::flash, theirs.tokens[i], false).prefill;
    const Seconds sparse = model.times(theirs.model, ApbMethod::minference, theirs.tokens[i], false).prefill;
    rows.push_back({std::to_string(theirs.tokens[i]), text(theirs.flash[i]), text(flash.value),
                    text(theirs.minference[i]), text((sparse - calls).value), text(sparse.value)});
    // The calls were taken from the first, where FLASHATTN too waits for its host.
    if (i == 0) {
      rows.back().insert(rows.back().end(), 3, "*");
      continue;
    }
    const double published = theirs.minference[i] / theirs.flash[i];
    const double ours = sparse / flash, kernels = (sparse - calls) / flash;
    for (const double ratio : {published, kernels, ours}) rows.back().push_back(fmt::format("{:.3f}", ratio));
    paper.points.push_back({kAuthors, "MInference", fmt::format("{} tokens", theirs.tokens[i]), "1",
                            published, ours, Standing::held_out});
    alone.push_back(kernels / published - 1);
    with.push_back(ours / published - 1);
  }
  PaperSection section{"MINFERENCE by its authors: one A100 under Hugging Face, Llama-3-8B-1M", {}};
  section.items.emplace_back(std::move(rows));
  section.items.emplace_back(fmt::format(
      "Their code runs each head of each layer by itself and waits for the device in each. At {} tokens, "
      "where attention "
      "takes next to nothing, that is {:.2f} s in all; ours of MINFERENCE counts it at every length.",
      theirs.tokens.front(), calls.value));
  section.items.emplace_back(
      fmt::format("Ratio to FLASHATTN beyond the first length: {} with the calls, {} of kernels alone.",
                  errors_text(with), errors_text(alone)));
  section.items.emplace_back(
      "Not in it: a diagonal fills a block of 64 keys unless its neighbours are chosen too, which the text "
      "decides, "
      "and each head has columns and diagonals of its own.");
  paper.sections.push_back(std::move(section));
  paper.groups.push_back({kAuthors, Standing::held_out, errors_of(paper, kAuthors, Standing::held_out)});
}

}  // namespace shardline
