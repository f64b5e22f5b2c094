// Which attention group of an engine a request goes to. planner/requests/README.md [R11].
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sim/base/units.hpp"

namespace shardline {

/// in_turn: each group in turn, as SGLang deals them (load_balance_method round_robin, its default outside of
/// pairs; managers/data_parallel_controller.py, `round_robin_scheduler`, and server_args.py,
/// `_handle_load_balance_method`, at 49e384ce9d). fewest: the group with the fewest requests, those that wait
/// counted four times, as vLLM does (v1/engine/core_client.py, DPLBAsyncMPClient,
/// `get_core_engine_for_request` at 68afd7889723).
enum class GroupRouting : std::uint8_t { in_turn, fewest };
std::string_view to_string(GroupRouting routing);

/// [R11] The router within one engine. Of `fewest`: there are as many API servers as groups
/// (entrypoints/cli/serve.py: api_server_count), which take requests in turn. Each knows what the coordinator
/// published last, and what it sent itself since then: as many more that wait as there are servers. Counts
/// are published every 100 ms, those of the end of the last step (v1/engine/coordinator.py,
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
  /// The group of a request that comes at `at`, within what was said last or at its end.
  std::size_t route(Seconds at);

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
