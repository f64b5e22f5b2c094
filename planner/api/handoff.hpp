// handoff: a request's cache, from a plan that prefills to one that decodes.
#pragma once

#include <string>
#include <vector>

#include "planner/api/setting.hpp"

namespace shardline::api {

struct HandoffPair {
  int from = 0;
  int to = 0;
  long long pieces = 0;
  long long descriptors = 0;
  double bytes = 0;
};
template <>
struct Fields<HandoffPair> {
  static constexpr const char* name = "HandoffPair";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What one rank sends to another.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = HandoffPair;
    field("from", &T::from, "rank of the plan that prefills, from 0");
    field("to", &T::to, "rank of the plan that decodes, from 0");
    field("pieces", &T::pieces, "parts of the cache: by kind of attention and by what is kept");
    field("descriptors", &T::descriptors, "runs of bytes that are contiguous on both sides");
    field("bytes", &T::bytes, "of all layers");
  }
};

struct HandoffPiece {
  int from = 0;
  int to = 0;
  std::string part;
  int attention = 0;
  int layers = 0;
  int first_unit = 0;
  int units = 0;
  long long tokens = 0;
  long long runs = 0;
  long long descriptors = 0;
  double bytes = 0;
};
template <>
struct Fields<HandoffPiece> {
  static constexpr const char* name = "HandoffPiece";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "One part of one kind of attention that a rank sends to another.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = HandoffPiece;
    field("from", &T::from, "rank that sends");
    field("to", &T::to, "rank that receives");
    field(
        "part", &T::part,
        "`keys and values`, `latents`, `index keys`, `compressed rows`, `values and gates of rows to come`, "
        "`states`, `convolution, keys` or `convolution, values`");
    field("attention", &T::attention, "kind, by its number in the model");
    field("layers", &T::layers, "that have it");
    field("first_unit", &T::first_unit, "KV head, or head of a state; 0: there is one");
    field("units", &T::units, "of these");
    field("tokens", &T::tokens, "of each; 1 of what does not grow");
    field("runs", &T::runs, "of tokens that follow one another in a page on both sides");
    field("descriptors", &T::descriptors, "before pieces of a pair are gathered, of engines that do");
    field("bytes", &T::bytes, "of all layers");
  }
};

struct HandoffQuestion {
  std::string scenario;
  std::string scenario_text;
  std::string model;
  std::string prefill;
  std::string decode;
  long long tokens = 0;
  long long at_once = 1;
};
template <>
struct Fields<HandoffQuestion> {
  static constexpr const char* name = "HandoffQuestion";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Which two plans a request is handed over between.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = HandoffQuestion;
    field("scenario", &T::scenario, "name of a shipped scenario, or a file");
    field("scenario_text", &T::scenario_text, "the scenario itself, in YAML, in place of a file");
    field("model", &T::model, "which one of the scenario; empty: the first");
    field("prefill", &T::prefill, "text of the plan that prefills");
    field("decode", &T::decode, "text of the plan that decodes");
    field("tokens", &T::tokens, "of the prompt; 0: the workload's, or the scenario's longest");
    field("at_once", &T::at_once, "requests that are handed over together");
  }
};

struct HandoffResult {
  std::string version;
  std::string command;
  std::string scenario;
  HandoffQuestion question;
  Setting setting;
  std::string prefill;
  std::string decode;
  long long tokens = 0;
  std::string transfer;
  double bytes = 0;
  Estimate prefill_s;
  Estimate step_s;
  Estimate alone_s;
  Estimate together_s;
  Estimate beside_steps_s;
  Estimate by_layer_s;
  Estimate by_links_s;
  std::vector<HandoffPair> pairs;
  std::vector<HandoffPiece> pieces;
};
template <>
struct Fields<HandoffResult> {
  static constexpr const char* name = "HandoffResult";
  static constexpr const char* schema = "shardline.handoff/2";
  static constexpr const char* about = "What `shardline handoff` answers.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using T = HandoffResult;
    field("version", &T::version, "of shardline");
    field("command", &T::command, "that gives the same, quoted for the shell");
    field("scenario", &T::scenario, "its name");
    field("question", &T::question, "what was asked");
    field("setting", &T::setting, "what all numbers are of");
    field("prefill", &T::prefill, "text of the plan that prefills, its parts listed");
    field("decode", &T::decode, "text of the plan that decodes");
    field("tokens", &T::tokens, "of the prompt");
    field("transfer", &T::transfer, "whose pages and descriptors");
    field("bytes", &T::bytes, "that are sent, copies among them");
    field("prefill_s", &T::prefill_s, "of the prompt alone");
    field("step_s", &T::step_s, "of a step of the plan that decodes");
    field(
        "alone_s", &T::alone_s,
        "from the end of the prefill until all ranks have their cache; as all times of the hand-off with the "
        "interval of assumed prices: none was measured");
    field("together_s", &T::together_s, "the same of `at_once` requests together, until the last one");
    field("beside_steps_s", &T::beside_steps_s,
          "of one, while the plan that decodes does its steps on the same links");
    field("by_layer_s", &T::by_layer_s, "of one, each layer as soon as it has been computed");
    field("by_links_s", &T::by_links_s, "its bytes, each once, over the links of the side with fewer GPUs");
    field("pairs", &T::pairs, "by sender, then by receiver");
    field("pieces", &T::pieces, "by part, then by receiver");
  }
};

std::string to_json(const HandoffResult& result);

}  // namespace shardline::api
