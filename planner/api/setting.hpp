// What a result is of: model, machine, types, engine, costs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/api/values.hpp"

namespace shardline::api {

struct Engine {
  std::string name;
  std::optional<std::string> version;
  std::string title;
  std::vector<std::string> assumes;
};
template <>
struct Fields<Engine> {
  static constexpr const char* name = "Engine";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "What runs the plans: a serving engine, or the ideal one, which is bare kernels.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("name", &Engine::name, "of its profile: `vllm`; `ideal`: bare kernels");
    field("version", &Engine::version, "`0.24.0`; null: of `ideal`");
    field("title", &Engine::title, "`vLLM`; `bare kernels`");
    field("assumes", &Engine::assumes, "what its profile takes for granted");
  }
};

struct Workload {
  long long input_tokens = 0;
  long long output_tokens = 0;
  std::string lengths;
};
template <>
struct Fields<Workload> {
  static constexpr const char* name = "Workload";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Requests that are served in a closed loop.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("input_tokens", &Workload::input_tokens, "of a request, on average");
    field("output_tokens", &Workload::output_tokens, "of its answer, on average");
    field("lengths", &Workload::lengths, "`drawn`, or `equal`: all requests are equally long");
  }
};

struct MatrixTypes {
  std::string matrices;
  std::string stored;
  std::string arithmetic;
};
template <>
struct Fields<MatrixTypes> {
  static constexpr const char* name = "MatrixTypes";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Types of one class of matrices.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("matrices", &MatrixTypes::matrices,
          "`attention` (its projections), `out_proj`, `index` (of sparse attention), `dense_ffn`, `experts`, "
          "`shared_experts`, `router`, `head` (LM head), `embedding` beside it; of modules that draft, where "
          "theirs differ, `drafts_attention` and so on");
    field("stored", &MatrixTypes::stored, "type of the weights");
    field("arithmetic", &MatrixTypes::arithmetic, "type in which they are multiplied");
  }
};

struct Precision {
  std::vector<MatrixTypes> matrices;
  std::string kv_cache;
  std::string activations;
  std::string dispatch;
  std::string source;
  std::vector<std::string> assumed;
};
template <>
struct Fields<Precision> {
  static constexpr const char* name = "Precision";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Types of what is stored, computed and sent.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("matrices", &Precision::matrices, "of each class that the model has");
    field("kv_cache", &Precision::kv_cache, "of the cache");
    field("activations", &Precision::activations, "of the residual stream and of messages");
    field("dispatch", &Precision::dispatch, "of tokens on their way to experts");
    field("source", &Precision::source, "who says so: the scenario, a checkpoint, or both");
    field(
        "assumed", &Precision::assumed,
        "what nobody says, so that a default stands for it: `weights`, `arithmetic`, `kv_cache`, `dispatch`, "
        "`expert_arithmetic`");
  }
};

struct Costs {
  std::string kind;
  std::string text;
  std::string source;
  std::string date;
  std::string hash;
  std::string borrowed_from;
  std::string framework;
  std::string framework_version;
};
template <>
struct Fields<Costs> {
  static constexpr const char* name = "Costs";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "Where prices of kernels and messages are from.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field(
        "kind", &Costs::kind,
        "`calibrated`: fitted to measurements; `parameters`: of the system file alone, and the fields below "
        "but `text` are empty");
    field("text", &Costs::text, "the same in a line");
    field("source", &Costs::source, "of the measurements");
    field("date", &Costs::date, "of the fit");
    field("hash", &Costs::hash, "of the measured tables");
    field("borrowed_from", &Costs::borrowed_from, "the system that was measured, if it is another one");
    field("framework", &Costs::framework, "whose kernels are priced");
    field("framework_version", &Costs::framework_version, "its version");
  }
};

struct Acceptance {
  std::string curve;
  std::string method;
  std::string source;
  std::vector<long long> drafts;
  std::vector<double> tokens_per_step;
  std::vector<std::string> bases;
};
template <>
struct Fields<Acceptance> {
  static constexpr const char* name = "Acceptance";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about =
      "How many tokens of a request a step yields by how many drafts it verifies.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    using A = Acceptance;
    field("curve", &A::curve, "its name, of a published curve (`shardline list acceptance`); else empty");
    field("method", &A::method, "of drafting, of a published curve; priced is the model's own module");
    field("source", &A::source, "of a published curve");
    field("drafts", &A::drafts, "1 to 8, or the one whose mean is given");
    field("tokens_per_step", &A::tokens_per_step, "of each of these, in the mean");
    field(
        "bases", &A::bases,
        "what each mean rests on: `given`, `two-parameter form`, `form between given k`, `form beyond given "
        "k`");
  }
};

struct Setting {
  std::string title;
  std::string model;
  std::string system;
  int system_gpus = 0;
  std::string phase;
  std::string what;
  std::string intervals;
  Engine engine;
  std::optional<Workload> workload;
  std::optional<Acceptance> acceptance;
  Precision precision;
  Costs costs;
};
template <>
struct Fields<Setting> {
  static constexpr const char* name = "Setting";
  static constexpr const char* schema = nullptr;
  static constexpr const char* about = "What all numbers of a study are of.";
  template <class Visit>
  static constexpr void visit(Visit&& field) {
    field("title", &Setting::title, "model, system and length in a line");
    field("model", &Setting::model, "its name");
    field("system", &Setting::system, "its name");
    field("system_gpus", &Setting::system_gpus, "GPUs that it has");
    field("phase", &Setting::phase, "of the steps: `decode`, `prefill` or `mixed`");
    field(
        "what", &Setting::what,
        "what times and rates are of, as column `what` of frontier.csv: `decode only by bare kernels` or "
        "`steps alone by bare kernels`, or what an engine makes of them: `served by ...` (prompts of others "
        "and the host in it), `decode only under ...`, `steps alone under ...`");
    field("intervals", &Setting::intervals, "what the intervals of estimates are by");
    field("engine", &Setting::engine, "who runs the plans");
    field("workload", &Setting::workload, "what is served; null: steps alone");
    field("acceptance", &Setting::acceptance, "of drafts, where plans may have any; else null");
    field("precision", &Setting::precision, "types");
    field("costs", &Setting::costs, "prices");
  }
};

}  // namespace shardline::api
