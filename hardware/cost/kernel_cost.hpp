// Op -> task: a fixed latency and the demands on the resources of the rank that runs it. hardware/README.md
// [H1]-[H3].
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "hardware/collectives/collective.hpp"
#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/machine/system.hpp"
#include "sim/engine/engine.hpp"

namespace shardline {

/// Resources of one rank. A class of symmetric ranks is played by one representative.
enum class RankResource : ResourceId { tensor, memory, exponentials, nvlink, network, count };

struct OpCost {
  Seconds latency;  // kernels and message latencies
  Flops tensor;     // bf16-equivalent operations, see machine_of_rank
  Bytes memory;     // HBM traffic
  Flops exponentials;
  Bytes port;  // through the NVLink or network port, scaled to the port's own rate
  RankResource port_resource = RankResource::nvlink;
  Algorithm algorithm = Algorithm::none;
  Basis basis = Basis::assumed;
  const KernelFit* fit = nullptr;  // of the system's calibration, where the time is from one
};

/// What bounds an op [H1]: the demand that takes longest. overhead: none of them, but launches, latencies of
/// messages, work of the host, and of a measured kernel the time that its demands do not explain.
enum class Limit : std::uint8_t { tensor, memory, exponentials, nvlink, network, overhead };
inline constexpr std::size_t kLimits = 6;
/// "tensor cores", "HBM", ...
std::string_view to_string(Limit limit);

/// The fabric of a system and what its groups get, computed on first use. Safe to share between threads.
class FabricCache {
 public:
  explicit FabricCache(const FabricSpec& spec) : fabric_(spec) {}
  const Fabric& fabric() const { return fabric_; }
  GroupFabric group(Group group);

 private:
  Fabric fabric_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, GroupFabric> groups_;
};

/// Prices ops on a system: by its calibration where it has one that covers the op [H50], else by its
/// parameters [H2], [H3]. One object per thread; `cache` may be shared by several and must be of the same
/// fabric.
class CostModel {
 public:
  explicit CostModel(const System& system, AllReduceRule rule = AllReduceRule::fastest,
                     std::shared_ptr<FabricCache> cache = nullptr);

  OpCost price(const PricedOp& op);
  /// Time with the rank to itself: latency + max over resources [H1].
  Seconds alone(const OpCost& cost) const;
  /// What bounds it once its latency is over; overhead where it demands nothing.
  Limit limit(const OpCost& cost) const;
  /// alone(price(op)) but for rounding, without the way through the demands.
  Seconds time(const PricedOp& op);
  /// Not above time() of this op or of any with more tokens; of the parts of one kernel, the first ones
  /// together [H57].
  Seconds floor(const PricedOp& op);
  /// [H63] How far time() of the op may be off, and with what it is off together. Not kept: for plans that
  /// are reported.
  PriceInterval interval(const PricedOp& op);

  /// A machine with the resources of `ranks` ranks; resource r of rank i has id i * RankResource::count + r.
  Machine machine(int ranks = 1) const;

  const System& system() const { return *system_; }
  const GroupFabric& group(Group group);

 private:
  // Every field that pricing sees: those of PricedFields, then those of the shape, whose type the kind tells.
  static constexpr std::size_t kKeyWords = kWordsOf<PricedFields> + kMostWords;
  struct Key {
    std::array<std::uint64_t, kKeyWords> words;
    std::size_t used = 0;
    bool operator==(const Key& other) const;
    std::uint64_t hash() const;
  };
  template <class Value>
  struct Known {
    Key key{};  // of no words: nothing is known here
    Value value{};
  };
  // Direct-mapped: forms take longer than a look.
  template <class Value>
  struct Remembered {
    std::vector<Known<Value>> all;
    int bits = 0;
    std::size_t found = 0;  // since it grew
    Known<Value>& at(const Key& key) { return all[key.hash() >> (64 - bits)]; }
    void grow();
  };
  static Key key_of(const PricedOp& op);

  OpCost by_parameters(const PricedOp& op);
  bool by_arithmetic(const PricedOp& op) const;
  std::optional<FittedPrice> fitted_price(CalibratedCost& by, const PricedOp& op);
  OpCost by_measurement(const PricedOp& op);
  OpCost lasting(OpCost cost, Seconds time) const;
  template <class Value, class Find>
  static const Value& remember(Remembered<Value>& known, const PricedOp& op, Find find);

  const System* system_;
  std::shared_ptr<FabricCache> cache_;
  AllReduceRule rule_;
  FlopsPerSecond tensor_rate_;
  BytesPerSecond nvlink_rate_, network_rate_;
  std::unordered_map<std::uint64_t, GroupFabric> groups_;
  std::uint64_t last_key_ = ~std::uint64_t{0};
  const GroupFabric* last_group_ = nullptr;
  std::optional<CalibratedCost> fitted_, floor_, faster_;  // the last two where they are asked for
  Remembered<OpCost> known_;
  Remembered<Seconds> known_times_, known_floors_;
};

}  // namespace shardline
