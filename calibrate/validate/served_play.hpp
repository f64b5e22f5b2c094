// Measured closed loops, played request by request on the schedulers of their engines.
// planner/requests/README.md, "Measured loops".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/validate/served_fit.hpp"

namespace shardline {

/// Means over the requests of a loop, in seconds.
struct PlayedLoop {
  double ttft = 0, tpot = 0;
  std::uint64_t requests = 0, preemptions = 0;
};

/// Plays the loops of rows on one profile with given host times. Steps of servers that differ only in the
/// budget of a step are priced once, so one object per thread.
class LoopPlayer {
 public:
  LoopPlayer(const EngineProfile& engine, const HostTimes& host, const Catalogs& catalogs);
  ~LoopPlayer();

  /// The loop of a row: its users all begin at once and send row.rounds requests each, of equal or drawn
  /// lengths, to one server with the row's start options. Nothing where the plan's requests are not played
  /// (no_play). Throws UserError where the server would not start.
  std::optional<PlayedLoop> play(const ServedRow& row);

 private:
  struct Server;
  Server& server_of(const ServedRow& row);

  EngineProfile engine_;
  HostTimes host_;
  Catalogs catalogs_;
  std::map<std::string, std::unique_ptr<Server>> servers_;
};

/// The options of a row's server as its scheduler has them: "max_num_batched_tokens=2112".
std::vector<std::string> start_knobs(const ServedRow& row, const EngineProfile& started);

/// Each model with the host times that are fitted to the others: played / measured in place of predicted /
/// measured. Rows that are not played, and those whose server would not start, are left out and counted.
struct PlayedFit {
  std::vector<LeftOutModel> models;
  int left_out = 0;
};
PlayedFit play_left_out(const ServedFit& fit, const EngineProfile& engine, const Catalogs& catalogs);

}  // namespace shardline
