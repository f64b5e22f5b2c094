// What an engine puts around its kernels: one YAML per engine and version, beside this file.
// planner/README.md [P18].
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hardware/cost/fit_intervals.hpp"
#include "hardware/cost/kernel_list.hpp"
#include "hardware/machine/system.hpp"
#include "planner/engines/cache_pools.hpp"
#include "planner/engines/draft_steps.hpp"
#include "planner/engines/kept_memory.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// What becomes of requests that decode while others are prefilled. mixed: chunks of prompts ride on their
/// steps. first: they wait until no prompt is left.
enum class PrefillPolicy : std::uint8_t { mixed, first };

/// For what a request has room in the KV cache before it starts. used: the tokens that it has, on average
/// half of its output. whole: all of its output.
enum class Admission : std::uint8_t { used, whole };

/// What the part of memory that an engine fills is a part of. total: HBM, for weights, KV and all else (vLLM,
/// SGLang). free: what is left beside weights, activations and what it keeps, for KV alone (TensorRT-LLM).
enum class MemoryRule : std::uint8_t { total, free };

/// Which steps with prompts replay graphs of what lies between attentions.
struct PromptGraphs {
  long long tokens = 0;  // of an attention group, prompts and decoding requests: up to so many; 0: none
  long long latent_tokens = 0;                                    // the same under MLA
  bool attention_dp = true, stages = true, disaggregated = true;  // also there
};

/// How an engine interleaves two halves of a batch in steps that decode: not at all; each half's attention
/// before the other's experts, as of prompts; or one half two stages behind the other.
enum class TwoBatches : std::uint8_t { none, swapped, lagging };

/// How an engine's ranks share a prompt by context parallelism. The default is that of papers: each keeps the
/// caches of its own tokens, and attends to keys and values of heads.
struct ContextRanks {
  bool whole = false;       // each keeps the caches of all tokens of its group
  bool absorbed = false;    // under MLA queries attend to the latents themselves
  bool one_prompt = false;  // a step has one; but where tokens are dealt out one by one
};

/// Fitted to measured serving by `shardline calibrate --engine` [F10]: the numbers of a profile.
struct HostTimes {
  Seconds step;          // of a step, beside its kernels
  Seconds request;       // of a step, for each request that decodes in it
  Seconds prompt_token;  // of a step, for each token of prompts in it
  Seconds path;          // of a prompt, before and behind its steps: HTTP, tokenizer, queue
};

/// Errors of some rows of models that the numbers were not fitted to: of |predicted / measured - 1|, and the
/// median of predicted / measured - 1.
struct ServedError {
  std::string of;  // "TPOT of llama-3.1-8b on h100-hgx"
  int rows = 0;
  double median = 0, p90 = 0, bias = 0;
};

/// A band of rows of one kind. Of no rows it says nothing: there is no error that is known.
struct ServedBand {
  ErrorBand band;
  int rows = 0;
};

/// A band of TTFT of so many users of a deployment; of loops of one kind of lengths, or of any: among a few
/// users no queue tells them apart.
struct TtftBand {
  std::string lengths;  // "any", "drawn", "equal"
  long long from = 1, to = 0;
  ServedBand measured;
  std::vector<std::string> models = {};  // that the rows are of
  int tested = 0;                        // of the rows: those that other models make a band for
};

/// Least and most of what was measured.
struct MeasuredRange {
  long long from = 0, to = 0;
  /// 1 % beyond counts as inside: tables round their lengths.
  bool holds(double value) const {
    return value >= 0.99 * static_cast<double>(from) && value <= 1.01 * static_cast<double>(to);
  }
};

/// Of the measured loops that an engine's numbers were fitted to: tokens of a prompt and of an answer, users
/// at once, GPUs of a server. Bands [F10] are of errors between these and are known to hold nowhere else.
struct MeasuredLoops {
  MeasuredRange input, output, users, gpus;
};

/// Of ln(measured / predicted) for such rows, 5 % and 95 %.
struct ServedBands {
  ErrorBand tpot;
  int rows = 0;             // that it is of; 0: nothing was measured, and it says nothing
  ServedBand drawn, equal;  // of TTFT, by the lengths of the loop, any number of users
  double covered = 0;       // part of the rows inside the band of TPOT that the other models make
  std::vector<ServedError> tables;
  std::vector<TtftBand>
      ttft_by_users;  // the same rows by numbers of users; what was not measured is not in it
  MeasuredLoops loops;
  const ServedBand& ttft(bool equal_lengths) const { return equal_lengths ? equal : drawn; }
  /// Of as many users as these; nullptr, and no rows, where none were measured.
  const TtftBand* ttft_band(bool equal_lengths, double users) const;
  ServedBand ttft(bool equal_lengths, double users) const;
};

/// Memory of DeepEP's kernels, where an engine dispatches by them; others keep theirs in what they set aside.
struct DispatchRoom {
  bool known = false;
  bool of_group = false;      // rooms for all tokens of an attention group on each of its ranks
  long long least = 0;        // tokens that there is room for in any case
  Bytes many;                 // of the kernels of many tokens, once over NVLink and once between machines
  bool opens_fabric = false;  // those reach memory of other machines in one NVLink domain
};

/// How an engine carries the tokens of several attention groups to experts.
struct TokenExchange {
  /// Where it gathers them (ExpertTokens::gather): nowhere; wherever no kernels of an all-to-all are named;
  /// where the ranks lie in several NVLink domains, and there alone.
  enum class Gathers : std::uint8_t { never, untold, across };
  Gathers gathers = Gathers::never;
  /// Which tokens the router and shared experts of a rank see between attention groups: all of its group,
  /// with shared experts cut over the group; its part of the group's, with whole shared experts; those of all
  /// groups, with shared experts cut over all ranks.
  enum class Beside : std::uint8_t { group, part, all };
  Beside beside_gathered = Beside::group, beside_dispatched = Beside::group;
  bool as_dispatched = true;  // gathered in the type that experts take, else in that of activations
  bool sums_prompts = false;  // of steps with prompts: by all-reduces, as groups have unequal numbers of them
  bool of_server = false;     // it has one kind of dispatch kernels, for all steps
  DispatchRoom room;
};

/// How an engine cuts layers into the stages of a pipeline, and what ranks of a stage hand on to those of the
/// next one beside hidden states.
struct PipelineStages {
  /// Which stages have one layer more, where their number does not divide that of layers: the first ones,
  /// those before the last one, or the last ones.
  enum class More : std::uint8_t { first, before_last, last };
  bool residual = false;  // the residual stream in a message of its own: its addition is the next layer's
  bool choice = true;     // of an index, where the next stage begins on a layer that takes it
  bool whole = false;     // each rank all of it, else its slice, which the next stage gathers
  More more = More::first;
};

struct EngineProfile {
  std::string name, version, title;  // "vllm", "0.24.0", "vLLM"
  std::string framework;             // whose list of hardware/kernels it runs
  bool fuses_elementwise = true;     // norms, residual additions and quantization lie in other kernels
  bool fuses_split_merge = false;    // the decode kernel merges its KV splits itself
  // Whether the residual addition and the norm behind an all-reduce are a part of it: of all models, or of
  // those with these names under `architectures` alone, of some only above a hidden size.
  bool sums_take_norms = true;
  std::vector<std::string> sums_take_norms_of;
  std::vector<std::pair<std::string, int>> sums_take_norms_above;
  PrefillPolicy prefill = PrefillPolicy::mixed;
  int delay_passes = 0;  // [P38] attention groups hold prompts back for each other; 0: they do not
  Admission admission = Admission::used;
  bool host_waited_for = true;  // its host works between steps, else beside the kernels of one
  std::string overlaps_since;   // the first version whose host works beside kernels where nobody asks it to
  // Where it does not overlap them, though it does elsewhere: in servers of plans of these strategies
  // ("helix"), in those of several stages, in those that compute prompts for others, and in those that find
  // states behind prefixes without buffers for them.
  std::vector<std::string> waits_in_strategies;
  bool waits_in_stages = false;
  bool waits_in_context_servers = false;
  bool waits_without_buffers = false;
  std::map<Architecture, long long> step_tokens;  // of a step, by default; prompts are cut to fit
  bool shared_budget = false;                     // attention groups share it (SGLang), else each has one
  std::vector<int> graphs;  // batches that have a CUDA graph, ascending: others are padded to the next one
  DraftSteps drafts;
  PromptGraphs prompt_graphs;
  TwoBatches two_batches = TwoBatches::none;
  TokenExchange tokens_to_experts;
  PipelineStages stages;
  std::map<Architecture, Seconds> launch;  // of a kernel that is in no graph, by the host
  MemoryRule memory_rule = MemoryRule::total;
  double memory = 1;                    // that part
  double memory_of_shared_context = 1;  // at most, of servers whose ranks share sequences
  KeptMemory kept;                      // context, graphs, workspace, the largest step's activations
  CachePools pools;                     // of models whose layers are of several kinds
  ContextRanks context;                 // of prompts that ranks share
  HostTimes host;
  ServedBands error;
  std::string source;                // of the fitted numbers
  std::vector<std::string> assumes;  // what a profile takes for granted, a line each

  /// Whether kernels wait for the host in a version of the engine as it is started where nobody asks for
  /// another scheduler: by the source that the profile names, no matter what was measured.
  bool waits_in_version(const std::string& other) const;
  /// Whether an all-reduce of such a model takes the residual addition and the norm behind it along.
  bool takes_norms(const std::string& model_architecture, int hidden) const;
  /// Requests of the step that a graph is replayed for, each with `each` new tokens: 1, or 1 and its drafts
  /// [P29]. `requests` themselves beyond the largest one.
  long long padded(long long requests, long long each = 1) const;
  /// Whether there is a graph for a step of so many requests.
  bool has_graph(long long requests, long long each = 1) const;
  /// Host time of a kernel that is in no graph.
  Seconds launch_time(const Device& device) const;
  long long tokens_of_step(const Device& device) const;
  /// The part of the memory that a server is started with.
  double memory_part(const KeptOf& of) const {
    return of.shares_context ? std::min(memory, memory_of_shared_context) : memory;
  }
  /// Most bytes of KV on a device beside `weights`, `others` (activations, buffers) and what is kept of such
  /// a server; negative where the weights do not fit.
  Bytes room_for_kv(const Device& device, Bytes weights, Bytes others, const KeptOf& of) const;
};

/// An engine as a command line, a file and a list of profiles name it: "vllm 0.24.0", "vllm==0.24.0" or
/// "vllm" alone. The name is as it was written; a "v" before the version's number is dropped.
struct EngineName {
  std::string name, version;
};
EngineName engine_name(const std::string& text);

/// Whether version `a` is before `b`, by their first three numbers ("1.0.0rc3" is 1.0.0).
bool earlier_version(const std::string& a, const std::string& b);

/// Bare kernels: what is asked for in place of an engine. Its profile says what they fuse and is called;
/// cases of it have no engine (nullptr).
inline constexpr const char* kIdealEngine = "ideal";

/// Whether two names mean one engine: letters and digits are equal but for capitals (TensorRT-LLM,
/// tensorrt_llm).
bool same_engine(std::string_view a, std::string_view b);

/// Names of the engines' profiles in `folder` with their versions, sorted: "sglang 0.5.14".
std::vector<std::string> engine_names(const std::filesystem::path& folder);

/// The profiles in `folder` but for that of bare kernels, in the order of their names. Throws UserError with
/// every fault of a file.
std::vector<EngineProfile> load_engines(const std::filesystem::path& folder);
/// The profile of an engine, or of bare kernels; `version` may be empty. Throws UserError: unknown engines
/// and versions, with the nearest, and every fault of the file.
EngineProfile load_engine(const std::string& name, const std::string& version,
                          const std::filesystem::path& folder);
EngineProfile load_engine(const EngineName& engine, const std::filesystem::path& folder);
EngineProfile parse_engine(const std::string& file_name, const std::string& text);

}  // namespace shardline
