// Ops priced by the fitted cost forms of a system. hardware/README.md [H50]-[H57].
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "hardware/collectives/collective.hpp"
#include "hardware/cost/price_interval.hpp"
#include "hardware/cost/shape_line.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {

/// What a price rests on, the best first.
enum class Basis : std::uint8_t {
  none,          // nothing is charged
  measured,      // a fitted form of this machine's kernel, among the shapes that were measured of it
  fitted,        // fitted parameters of this system, for an op that was not measured itself
  extrapolated,  // a fitted form with no measured row near the shape, or of another machine
  assumed,       // the system file's parameters alone
};
inline constexpr std::size_t kBases = 5;
std::string_view to_string(Basis basis);
constexpr Basis worse(Basis a, Basis b) { return a > b ? a : b; }

struct FittedPrice {
  Seconds time;
  Basis basis = Basis::measured;
  const KernelFit* fit = nullptr;  // that the time is from, a dispatch's with its preparation; or none
  FitDistance distance = {};       // of the fit; other_model is left open

  /// Marks the price as one of something else than the kernel that was measured.
  void alter() {
    basis = worse(basis, Basis::extrapolated);
    distance.altered = true;
  }
};

/// exact: what the forms say. floor: at most what they say of this op or of one with more tokens [H57];
/// fitted times themselves need not rise with the tokens.
enum class Pricing : std::uint8_t { exact, floor };

/// One object per thread: a price leaves behind what it derived from the shape, for others like it.
class CalibratedCost {
 public:
  /// Keeps a reference to the system, whose calibration must not be empty.
  /// With `rates` it prices on a device all of whose rates are so many times as high, fixed times being what
  /// they are.
  explicit CalibratedCost(const System& system, Pricing pricing = Pricing::exact, double rates = 1);

  /// Nothing where no form covers the op: it is then priced by the system file's parameters. `group` of
  /// communication.
  std::optional<FittedPrice> price(const PricedOp& op, const GroupFabric* group);
  /// [H63] How far what price() said of the op may be off.
  static PriceInterval interval(const PricedOp& op, const FittedPrice& price);

 private:
  // A fit with the context it is used in.
  struct Use {
    const KernelFit* fit = nullptr;
    FormContext context;
    std::vector<double> parameters;
    Correction correction;
    ShapeLines lines;
    Dtype stored = Dtype::bf16;            // what the fit's weights were stored in (experts)
    bool altered = false;                  // used for a data type that was not measured
    MachineKin machine = MachineKin::own;  // on which it was measured
    bool borrowed = false;                 // another framework's kernel
    KernelSizes sizes;                     // for which it is taken
    std::size_t rule = 0;                  // of the list: uses of one rule are alternatives
    explicit operator bool() const { return fit != nullptr; }
  };
  // Kernels of one rule: the first that was measured with the op's model, else the first.
  struct Alternatives {
    std::vector<Use> all;
    std::array<double, 4> asked{};  // numbers of the model that was asked for last, and
    std::size_t taken = 0;          // what was found
  };
  struct Exchange {  // one implementation of dispatch and combine
    Use prepare, dispatch, combine;
    Dtype dispatched = Dtype::bf16;
    double sms = 0;
    bool one_sided = false;
    KernelSizes sizes;  // by tokens of a rank
  };
  using ByDtype = std::array<Use, kDtypes>;
  using SeveralByDtype = std::array<Alternatives, kDtypes>;
  static std::size_t at(Dtype t) { return static_cast<std::size_t>(t); }

  Use made_of(const KernelFit& fit) const;
  std::vector<Use> uses(const char* family, std::initializer_list<std::string_view> words,
                        const std::function<bool(const KernelFit&)>& is = {}) const;
  Use use(const char* family, std::initializer_list<std::string_view> words) const;
  Use narrowed(const Use& from, Dtype stored, Dtype known) const;
  Alternatives narrowed(const std::vector<Use>& from, Dtype stored, Dtype known) const;
  void add_experts(Dtype math);
  void choose_gemms(Dtype math);
  void choose_batched_gemms(Dtype math);
  bool widens(Dtype stored) const;
  void computing_in(std::string_view type, Use& use) const;
  void choose_prefill(Dtype math);
  void choose_decode();
  void choose_collectives();
  Exchange exchange_of(const Use& chosen, Dtype dispatched, std::string_view word) const;
  void choose_exchanges(Dtype dispatched);
  FittedPrice of(Use& use, std::span<const double> x);
  FittedPrice of(Use& use, std::span<const double> x, const PricedOp& op, double launches, double t0);
  double least(const PricedOp& op, const FormContext& context) const;
  static Use* measured_with(Alternatives& of, const std::array<double, 4>& model, const PricedOp& op);
  static Basis basis(const Use& use, bool measured);
  static FittedPrice at_place(Seconds time, const Use& use, bool outside,
                              std::span<const double> coordinates);
  static double parameter(const Use& use, std::string_view name);

  std::optional<FittedPrice> gemm(const PricedOp& op);
  std::optional<FittedPrice> product(const PricedOp& op, double rows, double n, double k);
  std::optional<FittedPrice> batched_gemm(const PricedOp& op);
  std::optional<FittedPrice> experts(const PricedOp& op);
  FittedPrice experts_by(const Use& u, const PricedOp& op) const;
  std::optional<FittedPrice> decode(const PricedOp& op);
  std::optional<FittedPrice> decode_alike(const PricedOp& op);  // requests of one length
  std::optional<FittedPrice> decode_rows(const PricedOp& op);   // whatever one of their rows alone takes
  std::optional<FittedPrice> prefill(const PricedOp& op);
  std::optional<FittedPrice> elementwise(const PricedOp& op) const;
  // Kernels that run the measured block of sparse attention that an op is a part of, found when first asked
  // for.
  struct IndexedUse {
    IndexedBlock block;  // of any heads of the rank
    bool fp8_cache = false;
    bool other_layer = false;  // measured as another kind of layer, or of another model
    std::vector<Use> all;
  };
  IndexedUse indexed_use(const IndexedBlock& block, bool fp8_cache) const;
  Use* indexed_use(const IndexedBlock& block, bool fp8_cache, std::span<const double> x, bool* other);
  std::optional<FittedPrice> indexed(const PricedOp& op);
  std::optional<FittedPrice> indexed_alike(const PricedOp& op);  // requests of one length
  double part_of_passes(const IndexLogitsShape& s) const;
  double narrow_peak() const;  // of FP8, or of BF16 where the device has none
  double arithmetic_beside(const PricedOp& op, double others) const;
  // Beside a block of V4's: the kernel that scores its rows, timed alone.
  struct ScoreUse {
    const KernelFit* block = nullptr;
    double most_tokens = 1;  // of all requests, that the block was measured with
    Use use;
  };
  static double most_tokens_of(const Use& block);
  const ScoreUse& score_use(const Use& block);
  double scores_alone(const Use& u, double requests, double rows, double tokens, double bytes) const;
  // Of a step that decodes, of the block's fit: x as of it.
  double decoding_scores(const Use& block, const IndexLogitsShape& s, std::span<const double> x);
  // Beside a block of HCA's: the kernel of its attention, timed alone.
  struct RowsUse {
    const KernelFit* block = nullptr;
    Use use;
  };
  const Use& rows_use(const Use& block);
  // Of a step that decodes, attention to so many rows of each query, more than the block was measured with: x
  // as of it. Nothing where it was measured with as many, or no kernel of the framework was timed alone.
  std::optional<double> longer_rows(const Use& block, double attended, std::span<const double> x);
  // Of prompts behind longer caches than the block of the fit was measured with: what an op takes at least.
  double longer_prompts(const Use& block, const PricedOp& op, std::span<const double> x) const;
  // Kernels of linear attention, found when first asked for.
  struct RecurrentUse {
    StateDecay decay = StateDecay::per_head;
    bool convolves = false;
    std::string_view phase;   // as rows name it: prefill, decode, verify (of drafts)
    bool other_rule = false;  // measured of another rule, or of a token without drafts
    bool drafts = false;      // rows of steps that verify them
    std::vector<Use> all;
  };
  RecurrentUse& recurrent_use(bool convolves, StateDecay decay, std::string_view phase);
  std::optional<FittedPrice> recurrent(const PricedOp& op);
  std::optional<FittedPrice> recurrent_alike(const PricedOp& op, double requests, double tokens);
  double products_of(const ModuleRestShape& s, const Use& use);
  double compressed_products_of(const ModuleRestShape& s, const Use& use);
  std::optional<FittedPrice> mixed(const PricedOp& op);
  std::optional<FittedPrice> collective(const PricedOp& op, const GroupFabric& group);
  std::optional<FittedPrice> exchange(const PricedOp& op, const GroupFabric& group);
  bool absorbed(Within within) const;

  bool better(const FittedPrice& one, const std::optional<FittedPrice>& other) const;

  const System* system_;
  Pricing pricing_;
  double rates_;
  MachineKin machine_;  // on which elementwise kernels were measured
  // By arithmetic, then by what is stored.
  std::array<ByDtype, kDtypes> gemm_, mla_prefill_, absorb_, expand_;
  std::array<SeveralByDtype, kDtypes> prefill_;
  // By arithmetic; what one stored type and one rule have, in the list's order.
  std::array<std::vector<Alternatives>, kDtypes> gated_experts_, plain_experts_;
  SeveralByDtype decode_;              // by what is stored
  ByDtype mla_decode_, mla_absorbed_;  // one query row of a request; prompts
  std::vector<Use> engine_all_reduce_;
  std::vector<IndexedUse> indexed_;
  std::vector<ScoreUse> scores_;
  std::vector<RowsUse> rows_;
  std::vector<RecurrentUse> recurrent_;
  std::array<std::vector<Use>, 2> mixed_;  // hyper-connections behind a sublayer, and before it
  Use all_reduce_, all_gather_, reduce_scatter_, all_to_all_, send_recv_;
  std::array<std::vector<Exchange>, kDtypes> exchanges_, across_;  // inside a domain, between nodes
  Seconds kernel_{0};                                              // floor of a kernel; zero: unknown
  BytesPerSecond memory_{0};
};

}  // namespace shardline
