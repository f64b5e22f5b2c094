// Hand-offs as flows on the fabric: when each ends, beside others and beside what a plan sends itself.
// README.md [D7]-[D9].
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hardware/machine/topology.hpp"
#include "planner/handoff/pieces.hpp"

namespace shardline {

class FabricRoutes;  // hardware/machine/routes.hpp

/// What a transfer library adds to the bytes of a hand-off.
struct TransferCosts {
  // Submitting a descriptor, by one thread of a rank, over the network and over NVLink [D7].
  Seconds network_descriptor{2.4e-6}, nvlink_descriptor{2.35e-6};
  bool receiver_posts = true;  // the receiver reads (vLLM's NIXL connector), else senders write
  bool by_layer = false;       // a layer's pieces go as soon as the prefill has computed it
};

/// One request's hand-off between two replicas.
struct Transfer {
  const Handoff* handoff = nullptr;
  int source_gpu = 0, target_gpu = 0;  // first GPU of either replica, which has consecutive ones
  Seconds begin;                       // of the prefill, or of its part that is under way
  Seconds prefill;                     // until its end; layers are computed one after the other [D8]
  Seconds room;                        // when the other replica has room for it: nothing is sent before
};

struct TransferTime {
  Seconds begin;  // of the first byte's preparation
  Seconds end;
  Seconds exposed;  // from the end of the prefill, or of the wait for room if that is later, to the end
};

/// Bytes that a rank sends beside, again and again: messages of a plan's steps.
struct OwnMessages {
  int first_gpu = 0;  // of the replica
  Group group;        // each of its ranks to all others of its group
  Bytes bytes;        // that leave a rank in one step
  Seconds pause;      // of a step, without its messages
};

/// Plays transfers on one fabric, which share its links max-min [S4] with each other and with messages; or
/// between two, whose networks meet [D10].
class TransferFabric {
 public:
  /// Of a fabric's first `gpus` GPUs, rounded up to nodes.
  TransferFabric(const FabricSpec& spec, int gpus);
  /// From the first `source_gpus` GPUs of one to the first `target_gpus` of another; both need a network.
  TransferFabric(const FabricSpec& source, int source_gpus, const FabricSpec& target, int target_gpus);
  ~TransferFabric();
  TransferFabric(TransferFabric&&) noexcept;

  /// In the order given. Messages go on until the last transfer has ended; between two fabrics there are
  /// none.
  std::vector<TransferTime> play(const std::vector<Transfer>& transfers, const TransferCosts& costs,
                                 const std::vector<OwnMessages>& messages = {}) const;
  const FabricSpec& spec() const { return sides_.front().spec; }
  bool of_two() const { return sides_.size() > 1; }

  /// Of two fabrics each has as many nodes again, which stand for the other side.
  struct Side {
    FabricSpec spec;
    std::unique_ptr<FabricRoutes> routes;
  };

 private:
  std::vector<Side> sides_;
};

/// First GPU of a replica of `gpus` GPUs beside one on the first `others`: in the same node where both fit,
/// else on the next one that is free; where there is none behind it, as
/// far as the fabric goes, so that both may have GPUs in common.
int gpu_beside(const FabricSpec& spec, int others, int gpus);

/// GPUs of all nodes that `gpus` of them touch.
int whole_nodes(const FabricSpec& spec, int gpus);

/// How an engine keeps and sends pages, and what submitting costs; of bare kernels vLLM's.
struct EngineTransfer {
  HandoffPages pages;
  TransferCosts costs;
  std::string of;  // "vLLM's NIXL connector"
};
EngineTransfer engine_transfer(const Case& c);

/// Why nothing is handed over between two systems; nothing where it can be.
std::optional<std::string> no_way_between(const Case& prefill, const Case& decode);

/// Where replicas of two pools lie on one system. beside: as gpu_beside() has it; apart: in nodes of their
/// own, as where both pools are more than a node has room for.
enum class ReplicaPlaces : unsigned char { beside, apart };

/// [R12] Where both pools lie: beside each other where all replicas have room in one node, else apart, every
/// pair of them: some in one node are then priced as if they were not.
ReplicaPlaces places_of(const System& system, int prefill_gpus, int decode_gpus);

/// [D9] Times of hand-offs of requests of so many tokens, nobody else on the links: from the end of the
/// prefill until the other replica has its cache. Each pair of layouts is played once.
class HandoffTimes {
 public:
  /// `gpus`: of both replicas at most.
  HandoffTimes(const Case& c, int gpus, long long tokens, ReplicaPlaces places = ReplicaPlaces::beside);
  /// Between two systems [D10], of one engine: replicas of so many GPUs at most on either side, between
  /// which no_way_between() says nothing.
  HandoffTimes(const Case& prefill, int prefill_gpus, const Case& decode, int decode_gpus, long long tokens);
  Seconds of(const Plan& prefill, const Plan& decode);
  /// The same but for the submission of descriptors, which takes the rest of that.
  Seconds of_bytes(const Plan& prefill, const Plan& decode);
  bool receiver_submits() const { return engine_.costs.receiver_posts; }

 private:
  Seconds play(const Plan& prefill, const Plan& decode, const TransferCosts& costs);

  Case case_;
  std::unique_ptr<Case> to_;  // of the other system, where there are two
  long long tokens_;
  EngineTransfer engine_;
  ReplicaPlaces places_ = ReplicaPlaces::beside;
  TransferFabric fabric_;
  std::map<std::string, Seconds> known_;  // by the texts of both
};

}  // namespace shardline
