// Which of several measured kernels an engine runs: a preference list per framework, by type, architecture
// and size (hardware/kernels). hardware/README.md [H64].
#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hardware/cost/calibration.hpp"
#include "hardware/machine/device.hpp"

namespace shardline {

/// Generations of GPUs that engines tell apart when they choose a kernel.
enum class Architecture : std::uint8_t { ampere, hopper, blackwell };
/// By the narrowest arithmetic that the device has a unit for: FP4 of Blackwell, FP8 of Hopper, else Ampere.
Architecture architecture_of(const Device& device);
std::string_view to_string(Architecture architecture);
bool is_one_of(Architecture one, std::span<const Architecture> some);
/// Of the machine whose kernels were measured, where the calibration says; else of the device that borrows
/// them.
Architecture architecture_of(const Calibration& calibration, const Device& device);

/// A kernel as a list names it. Without a framework: the list's own, or that of a calibration without one.
struct KernelName {
  std::string framework, kernel;
};

/// Of an op, what rules of sizes ask.
struct OpSize {
  double size = 0;          // of what, size_unit() says
  int group = 0;            // GPUs of the group, of all-reduces and exchanges
  int expert_ranks = 1;     // that experts are spread over
  int node = 0;             // GPUs of an NVLink node of the system
  bool prompts = false;     // of exchanges and experts: whether some of the step's tokens are of prompts
  bool dispatched = false;  // of experts: whether a dispatch brought the tokens
};

/// Steps that a rule holds for.
enum class StepRule : std::uint8_t { any, decode, prompts };

/// Ways that brought tokens to experts. here: they were there, or an all-gather brought all.
enum class TokensRule : std::uint8_t { any, here, dispatched };

/// Sizes of an op for which a rule holds, all inclusive, and the kind of step that it is of.
struct KernelSizes {
  static constexpr double kAny = std::numeric_limits<double>::infinity();
  double least = 0, most = kAny;
  std::vector<int> gpus;  // of the group; empty: any
  double least_ranks = 0, most_ranks = kAny;
  double most_node = kAny;
  StepRule step = StepRule::any;
  TokensRule tokens = TokensRule::any;
  bool any() const;
  bool hold(const OpSize& op) const;
};

struct KernelRule {
  std::string family;                                      // of Form
  std::vector<KernelName> use;                             // the first that was measured is taken
  std::vector<Architecture> architectures;                 // empty: all
  std::vector<std::pair<std::string, std::string>> words;  // columns of the variant and what they must hold
  KernelSizes sizes;
  std::string why;     // where the engine's rule was read
  bool asked = false;  // by the user, not by a list
  bool by_model =
      false;  // its kernels are alternatives: that which was measured with the op's model is taken
  bool borrowed = false;  // of another framework's list, behind the question's own

  bool of(Architecture architecture) const;
};

/// The kernel that scores an index's keys (DeepGEMM's) takes rows of a request together on these machines, if
/// there are as many as said (empty: any number of them); of all others it takes each by itself.
struct RowsOfOnePass {
  std::vector<Architecture> architectures;
  std::vector<long long> rows;
};

/// The rules of one framework, in the order in which they are tried.
struct KernelList {
  std::string framework, version;
  std::vector<KernelRule> rules;
  /// Where experts whose weights are MXFP4 compute in FP8 (MXFP8 activations) unless told otherwise; else in
  /// BF16.
  std::vector<Architecture> mxfp4_in_fp8;
  /// Weights of MLA's absorbed products that the engine widens to BF16 when it loads them, and multiplies so.
  std::vector<Dtype> absorbed_in_bf16;
  /// Where several rows of a request, which verify drafts, are scored in one pass over its index keys.
  std::vector<RowsOfOnePass> index_rows;
  /// Where partial outputs of MLA, of ranks that share a cache by sequence, come from another kernel than all
  /// others, which was not measured.
  std::vector<Architecture> other_partial_mla;
  /// Combines that quantise their rows on the way, where they were measured: an option of TensorRT-LLM
  /// (use_low_precision_moe_combine).
  bool low_precision_combine = false;
  bool named = false;  // the question names the framework, or kernels

  /// How often the kernel that scores reads the index keys of a request with so many rows in a step that
  /// decodes: once for two of them where the framework hands them over together, else once for each. [H73].
  long long index_passes(long long rows, Architecture architecture) const;
};

/// A fit that a rule chose.
struct ChosenKernel {
  const KernelFit* fit = nullptr;
  std::size_t rule = 0;  // of the list's; several kernels of one rule are alternatives (KernelRule::by_model)
  KernelSizes sizes;     // of the rule
  bool borrowed = false;  // another framework's kernel
  bool instead = false;   // of one that the user asked for, which was not measured for these types
};

/// The column that names the kernel: kernel, implementation; nothing where a form has none (nccl, quantize).
std::optional<std::size_t> kernel_column(const Form& form);
/// What the sizes of a family's rules count: "tokens", "bytes"; nothing where its rules know no sizes.
std::optional<std::string_view> size_unit(std::string_view family);

/// [H64] The fits of a family that the list takes for ops of these types, first what is tried first; the rule
/// of the last holds for all sizes. `words` are those of the form, "*" for any; `is` keeps those that could
/// run the op. Where no rule names a measured kernel, the only one that there is: throws UserError where
/// there are several. `library`: what "nccl" in a rule stands for, a fit of another family.
std::vector<ChosenKernel> choose_kernels(const Calibration& calibration, const KernelList& list,
                                         Architecture architecture, const Form& form,
                                         std::span<const std::string_view> words,
                                         const std::function<bool(const KernelFit&)>& is = {},
                                         const KernelFit* library = nullptr);

/// Reads `hardware/kernels/NAME.yaml` beside the catalogue. Throws UserError: unknown names (with the
/// nearest), and every fault of the file.
KernelList load_kernel_list(const std::string& framework, const std::filesystem::path& catalog_dir);
KernelList parse_kernel_list(const std::string& file_name, const std::string& text);
/// Names of the lists beside the catalogue, sorted.
std::vector<std::string> kernel_list_names(const std::filesystem::path& catalog_dir);

/// What is taken where a question names no framework.
inline constexpr std::string_view kDefaultFramework = "trtllm";

}  // namespace shardline
