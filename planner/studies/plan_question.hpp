// What `shardline plan` is asked, and the scenario that asks the same: the command is a sweep of that text.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "planner/scenario/scenario.hpp"

namespace shardline {

/// A request and a target in one line. Of what is 0 or empty a default stands in the scenario.
struct PlanQuestion {
  std::string model;                // of the catalogue, a repository on Hugging Face, or a path
  std::string as;                   // the model_type to read its config.json as; empty: its own
  std::string system;               // of the catalogue, or a path
  int gpus = 0;                     // at most; 0: those of a node, eight at most
  int nodes = 0;                    // whose GPUs these are; 0: they were counted by themselves
  long long input = 0, output = 0;  // tokens of a request and of its answer; no output: the prefill alone
  long long users = 0;              // at once, over all copies; 0: any
  double gpu_hour = 0;              // price of a GPU for an hour; 0: not given
  double rate = 0;                  // requests/s, over all copies; 0: no matter
  Seconds ttl{0}, ttft{0};          // at most; 0: any
  double tokens_per_user = 0;       // of which `ttl` is the inverse, where it was given so; 0: it was not
  std::string engine;               // "vllm", "vllm 0.24.0", "ideal"; empty: best_measured()
  std::string costs;                // "calibrated", "parameters"; empty: calibrated
  bool any_gpus = false, any_context = false;
  std::vector<std::string> settings = {};  // as Overrides::settings, of the scenario that it makes
  int threads = 0;

  bool prefill() const { return output == 0; }
};

/// An engine, and how many measured points its profile rests on [F10].
struct MeasuredEngine {
  EngineProfile profile;
  int of_both = 0;                   // of this model on this system
  int of_model = 0;                  // of the model, on any
  int of_system = 0;                 // on the system, of any
  std::set<std::string> types = {};  // of the model's weights, where measured points had them quantised
  /// "60 measured points of llama-3.1-70b on h200-hgx"; what there is of least distance.
  std::string why(const std::string& model, const std::string& system) const;
};

/// All engines, the one first whose numbers were checked closest to the question: by measured points of the
/// model on the system, then of the model, then on the system, then of all.
std::vector<MeasuredEngine> best_measured(const std::string& model, const std::string& system,
                                          const std::filesystem::path& engines);

/// What the scenario says where the question is silent, each with its reason beside the function that finds
/// it.
struct PlanDefaults {
  Model model;
  System system;
  std::optional<EngineProfile> engine;  // nothing: bare kernels
  std::string engine_why;               // of one that the question does not name
  std::vector<std::string> strategies;
  std::vector<int> gpus;     // of one copy, ascending
  int most_gpus = 0;         // of all copies
  std::string gpus_note;     // where the asked number itself is none of them
  std::vector<int> batches;  // empty: the users say them
  /// How often a plan of so many GPUs is started on those that there are.
  int copies(int of_gpus) const { return most_gpus / of_gpus; }
  /// Of the users of all copies, those of a copy of so many GPUs: the largest share.
  long long users_of_copy(long long users, int of_gpus) const {
    return (users + copies(of_gpus) - 1) / copies(of_gpus);
  }
  /// As many copies as these users take, no more than there are: nine users, two of a copy, take five of
  /// eight copies.
  int copies_of_users(long long users, int of_gpus) const {
    const long long share = users_of_copy(users, of_gpus);
    return static_cast<int>((users + share - 1) / share);
  }
};

/// GPU counts up to `most`: powers of two inside a tray or node and whole trays or nodes in powers of two
/// beyond, as GPUs are handed out (LaunchRule "gpus"), and the largest count of that kind. With any_gpus also
/// `most` itself.
std::vector<int> default_gpus(const System& system, int most, bool any_gpus);

/// Exact strategies that have a plan for the model on one of the GPU counts and that `engine` runs, prompts
/// beside answers where it serves both. Of bare kernels without those whose partitions are searched for,
/// which takes minutes beyond a node.
std::vector<std::string> default_strategies(const PlanQuestion& question, const PlanDefaults& of);

/// Under an engine the batches that have a CUDA graph, for steps of others are padded to them; of bare
/// kernels powers of two and those half way between. One of a prefill: a user waits for one prompt.
std::vector<int> default_batches(const PlanQuestion& question, const std::optional<EngineProfile>& engine);

/// `engine`: one of best_measured(), or what the question names; nothing: bare kernels. Throws UserError:
/// unknown names, more GPUs than the system has, requests longer than the model's maximum.
PlanDefaults plan_defaults(const PlanQuestion& question, const Catalogs& catalogs,
                           std::optional<EngineProfile> engine);

/// Each text of plan_scenario() begins so: which file is one of --save.
inline constexpr std::string_view kSavedBy = "# Written by shardline plan.";
/// The scenario, in YAML, without targets and settings, of which saved_scenario() has more.
std::string plan_scenario(const PlanQuestion& question, const PlanDefaults& defaults);

/// What a node of a system is: "8 GPUs", and of a rack, which is one node, "an NVLink domain of 72 GPUs in 18
/// trays of 4".
std::string node_text(const FabricSpec& fabric);

/// "llama-3.1-70b on up to 8 GPUs of h200-hgx: input 32,768 tokens, output 1,024 tokens; TPOT at most 20 ms".
std::string question_text(const PlanQuestion& question, const PlanDefaults& defaults);
/// " --ttl '20 ms' --ttft '2 s'": the targets as options, in the terms in which they were given; `ttft` as
/// the command counts it, 0: none.
std::string target_options(const PlanQuestion& question, Seconds ttft);
/// " --set device.memory.bandwidth='4 TB/s'" of each setting: a scenario has no keys of its system's file.
std::string settings_options(const PlanQuestion& question);
/// "5 requests/s"; "5 requests/h", where four digits say all of it by the hour alone.
std::string rate_text(double per_s);
/// The same as an argument, with every digit: "5/h".
std::string rate_argument(double per_s);
/// "TPOT at most 20 ms, TTFT at most 2 s", "30 tokens/s/user or more (TPOT at most 33.33 ms)"; empty without
/// a target.
std::string target_text(const PlanQuestion& question);

}  // namespace shardline
