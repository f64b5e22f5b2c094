// Processes that share one command's work: who they are, and messages between them. sim/README.md [S19].
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace shardline {

struct RankMessage {
  std::size_t from = 0;
  std::string bytes;
};

/// All processes of a command, each of which has one of these and uses it in one thread. Rank 0 hands work
/// out and has the results.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual std::size_t rank() const = 0;
  virtual std::size_t count() const = 0;
  /// Those on this one's machine, itself counted: they share its processors and its memory.
  virtual std::size_t on_machine() const = 0;
  /// How long one that says nothing is waited for; each says that it lives thirty times as often.
  virtual std::chrono::milliseconds patience() const { return std::chrono::seconds(30); }
  /// Puts a message on its way and does not wait for it. To a process that has died it gets lost.
  virtual void send(std::size_t to, std::string_view bytes) = 0;
  /// The next message that has come whole; those of one rank in the order in which it sent them.
  virtual std::optional<RankMessage> receive() = 0;
  /// Nothing is sent any more, and what was sent is on its way. `lost`: a rank has died, so that the others
  /// do not wait for it.
  virtual void close(bool lost) = 0;
};

/// A process that shares with nobody.
std::unique_ptr<Ranks> alone_rank();

/// What mpirun or srun started together with this process: nullptr where it was started alone, or as the
/// only rank. Throws UserError where there are several and shardline was built without MPI, or its module
/// does not load.
std::unique_ptr<Ranks> open_ranks();

/// What a launcher's variables of the environment say before MPI is asked: how many processes there are,
/// which one this is, and which one of those on its machine.
struct LaunchedRank {
  std::size_t count = 1, rank = 0, on_machine = 0;
};
LaunchedRank launched_rank();

}  // namespace shardline
