#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/ranks/mpi_module.hpp"
#include "sim/ranks/ranks.hpp"

namespace shardline {

namespace {

namespace fs = std::filesystem;

constexpr const char* kModule = "shardline_mpi.so";
constexpr const char* kModuleVariable = "SHARDLINE_MPI";

// Of Open MPI; MPICH, Intel MPI and Slurm's srun with PMI2; its srun with PMIx, which says no number of its
// own: Slurm's then counts, and is not looked at otherwise, as whatever a batch script starts alone has it,
// too.
constexpr std::array kCountVariables{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
constexpr std::array kSlurmVariables{"SLURM_STEP_NUM_TASKS"};
constexpr std::array kRankVariables{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
constexpr std::array kLocalVariables{"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
constexpr const char* kPatienceVariable = "SHARDLINE_RANK_PATIENCE";  // seconds

// The first of them that is a number.
std::optional<std::size_t> number_in(std::span<const char* const> variables) {
  for (const char* const name : variables) {
    const char* const text = std::getenv(name);
    if (text == nullptr) continue;
    std::size_t number = 0;
    const auto [end, code] = std::from_chars(text, text + std::strlen(text), number);
    if (code == std::errc{} && *end == '\0') return number;
  }
  return std::nullopt;
}

// Nothing: nobody asks for any. Throws UserError of what is no number of seconds: a rank that is given up too
// early, or never, is not what was asked for.
std::optional<std::chrono::seconds> asked_patience() {
  constexpr std::size_t kMost = 1'000'000;
  const char* const given = std::getenv(kPatienceVariable);
  if (given == nullptr || *given == '\0') return std::nullopt;
  const auto seconds = number_in(std::array{kPatienceVariable});
  if (!seconds || *seconds == 0 || *seconds > kMost)
    throw UserError(fmt::format("{} {}: expected a whole number of seconds from 1 to {}", kPatienceVariable,
                                given, kMost));
  return std::chrono::seconds(*seconds);
}

// Messages travel in pieces that MPI copies at once ("eagerly", below 4 KiB in Open MPI's shared memory): of
// a longer one the receiver would wait for a sender that may have died.
constexpr std::size_t kPiece = 2048;
// Before its bytes a piece has one that says whether more follow.
constexpr char kMore = 1, kLast = 0;

class MpiRanks : public Ranks {
 public:
  MpiRanks(const ShardlineMpi& mpi, std::optional<std::chrono::seconds> patience)
      : mpi_(mpi), patience_(patience), begun_(static_cast<std::size_t>(mpi.count)) {}
  std::size_t rank() const override { return static_cast<std::size_t>(mpi_.rank); }
  std::size_t count() const override { return static_cast<std::size_t>(mpi_.count); }
  std::size_t on_machine() const override { return static_cast<std::size_t>(mpi_.on_machine); }

  std::chrono::milliseconds patience() const override { return patience_ ? *patience_ : Ranks::patience(); }

  void send(std::size_t to, std::string_view bytes) override {
    do {
      const std::string_view part = bytes.substr(0, kPiece - 1);
      bytes.remove_prefix(part.size());
      std::string piece(1, bytes.empty() ? kLast : kMore);
      piece += part;
      mpi_.send(static_cast<int>(to), piece.data(), piece.size());
    } while (!bytes.empty());
  }

  std::optional<RankMessage> receive() override {
    std::array<char, kPiece> piece{};
    int from = 0;
    for (long size = 0; (size = mpi_.receive(&from, piece.data(), piece.size())) >= 1;) {
      const auto sender = static_cast<std::size_t>(from);
      begun_[sender].append(piece.data() + 1, static_cast<std::size_t>(size - 1));
      if (piece[0] == kLast) return RankMessage{sender, std::exchange(begun_[sender], {})};
    }
    return std::nullopt;
  }

  void close(bool lost) override { mpi_.close(lost ? 1 : 0); }

 private:
  const ShardlineMpi& mpi_;
  const std::optional<std::chrono::seconds> patience_;
  std::vector<std::string> begun_;  // by sender, until their last piece has come
};

// Beside the program, where the build leaves it, or where it is installed.
std::vector<fs::path> module_places() {
  if (const char* const named = std::getenv(kModuleVariable); named != nullptr && *named != '\0')
    return {named};
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  return {folder / kModule, folder.parent_path() / "lib/shardline" / kModule};
}

class AloneRank : public Ranks {
 public:
  std::size_t rank() const override { return 0; }
  std::size_t count() const override { return 1; }
  std::size_t on_machine() const override { return 1; }
  void send(std::size_t, std::string_view) override {}
  std::optional<RankMessage> receive() override { return std::nullopt; }
  void close(bool) override {}
};

}  // namespace

std::unique_ptr<Ranks> alone_rank() { return std::make_unique<AloneRank>(); }

LaunchedRank launched_rank() {
  LaunchedRank out;
  auto count = number_in(kCountVariables);
  if (!count && std::getenv("PMIX_RANK") != nullptr) count = number_in(kSlurmVariables);
  out.count = std::max<std::size_t>(1, count.value_or(1));
  out.rank = number_in(kRankVariables).value_or(0);
  out.on_machine = number_in(kLocalVariables).value_or(0);
  return out;
}

std::unique_ptr<Ranks> open_ranks() {
  const std::size_t count = launched_rank().count;
  if (count == 1) return nullptr;
  const auto patience = asked_patience();
  std::vector<std::string> details;
  for (const fs::path& place : module_places()) {
    void* const module = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (module == nullptr) {
      details.push_back(fmt::format("looked for it in {}: {}", place.string(), dlerror()));
      continue;
    }
    const auto open = reinterpret_cast<ShardlineMpiOpen>(dlsym(module, "shardline_mpi_open"));
    std::array<char, 256> why{"it is no module of shardline"};
    const ShardlineMpi* const mpi = open == nullptr ? nullptr : open(why.data(), why.size());
    if (mpi != nullptr && mpi->version == SHARDLINE_MPI_MODULE_VERSION)
      return std::make_unique<MpiRanks>(*mpi, patience);
    details.push_back(
        fmt::format("{}: {}", place.string(), mpi == nullptr ? why.data() : "of another version"));
  }
  details.push_back(
      "build shardline with MPI (libopenmpi-dev, or a cluster's own), or start it without mpirun");
  throw UserError(
      {Diagnostic{{},
                  fmt::format("started as {} processes, and the module for MPI does not load", count),
                  std::move(details)}});
}

}  // namespace shardline
