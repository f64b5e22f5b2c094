// Which attention group of an engine a request goes to. planner/requests/README.md [R11].
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "planner/requests/prefill_delayer.hpp"
#include "sim/base/units.hpp"

namespace shardline {

/// How an engine deals requests to its attention groups. in_turn: each group in turn, as SGLang deals them
/// (load_balance_method round_robin, its default outside of pairs; managers/data_parallel_controller.py,
/// `round_robin_scheduler`, and server_args.py,
/// `_handle_load_balance_method`, at 49e384ce9d). fewest: the group with the fewest requests, those that wait
/// counted four times, as vLLM does (v1/engine/core_client.py, DPLBAsyncMPClient,
/// `get_core_engine_for_request` at 68afd7889723).
/// by_room: by what the router in front of a pair of SGLang's servers draws for it, as their servers for
/// prompts deal them (load_balance_method follow_bootstrap_room, the default there; `bootstrap_room` modulo
/// the groups: `follow_bootstrap_room_scheduler`). from_queue: they wait together for a place in some group,
/// as TensorRT-LLM's do
/// (_torch/pyexecutor/scheduler/adp_router.py, DefaultADPRouter at 62b8daa4b684, and py_executor.py,
/// `_pop_from_waiting_queue`).
enum class GroupRouting : std::uint8_t { in_turn, fewest, by_room, from_queue };
std::string_view to_string(GroupRouting routing);

/// What a replica is made of: so many attention groups, each with a scheduler, behind one barrier [R10].
struct ReplicaGroups {
  std::size_t count = 1;
  GroupRouting routing = GroupRouting::in_turn;
  std::size_t places = 0;  // requests that a group has at once, those that wait in it too; of from_queue
  /// [R19] Engines with nothing to compute run dummy batches, one after another, and ask each other every so
  /// many steps whether anybody has requests; 0: they rest.
  std::uint64_t wave = 0;
  DelayerKnobs delayer = {};  // [R40]
};

/// What an attention group has: requests, and the tokens of their prompts.
struct GroupLoad {
  std::uint64_t requests = 0, tokens = 0;
};
/// A request that is given to a group; places in lists.
struct Dealt {
  std::size_t request = 0, group = 0;
};
/// [R11] Requests that leave a queue together, by the tokens of their prompts, in the order in which groups
/// get them: long ones first, each to the group with the fewest tokens, of equal ones with the fewest
/// requests, that has not yet its part: the next whole number to the mean of all requests, or as many as the
/// group with most had before. `groups` then have them.
std::vector<Dealt> deal_together(std::span<const std::uint64_t> tokens, std::vector<GroupLoad>& groups);

/// [R11] The router within one engine, of all but from_queue. Of `fewest`: there are as many API servers as
/// groups (entrypoints/cli/serve.py: api_server_count), which take requests in turn. Each knows what the
/// coordinator published last, and what it sent itself since then: as many more that wait as there are
/// servers. Counts are published every 100 ms, those of the end of the last step (v1/engine/coordinator.py,
/// `process_input_socket`).
class GroupRouter {
 public:
  struct Counts {
    std::uint64_t waiting = 0, running = 0;
  };
  static constexpr Seconds kPublished{0.1};

  /// Of at least one group (checked).
  GroupRouter(GroupRouting routing, std::size_t groups);

  /// Nothing changes from `from` to `to`, not before what was said so far (checked): each group has so many.
  void hold(Seconds from, Seconds to, std::span<const Counts> counts);
  /// The group of a request that comes at `at`, within what was said last or at its end; `number`: its own
  /// (TraceRequest::number), from which by_room draws.
  std::size_t route(Seconds at, std::uint64_t number = 0);
  static std::uint64_t room_of(std::uint64_t request);

 private:
  void publish_up_to(Seconds time);

  const GroupRouting routing_;
  const std::size_t groups_;
  std::uint64_t routed_ = 0;
  Seconds until_;
  std::vector<std::vector<Counts>> known_;  // by server and group
  std::vector<Counts> counts_;              // of groups, as was said last
  double published_ = 0;                    // so many times 100 ms
};

}  // namespace shardline
