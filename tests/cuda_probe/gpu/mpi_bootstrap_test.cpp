// Run by mpiexec with four processes: broadcasts within groups, the rest of the processes elsewhere.
#include "cuda_probe/transport/mpi_bootstrap.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

namespace shardline {
namespace {

bool broadcasts_arrive(const MpiBootstrap& mpi) {
  const std::vector<std::vector<int>> groups = {{0, 1, 2, 3}, {1, 3}, {0, 2}, {2}, {1, 2, 3}, {0, 3}};
  bool fine = mpi.processes() == 4 && mpi.local_process() == mpi.process();  // all on one machine
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto& members = groups[g];
    if (std::find(members.begin(), members.end(), mpi.process()) == members.end()) continue;
    const bool root = mpi.process() == members.front();
    std::array<std::byte, 128> data{};
    const auto value = static_cast<std::byte>(g + 1);
    data.fill(root ? value : std::byte{0});
    mpi.broadcast(data, members);
    fine = fine && std::all_of(data.begin(), data.end(), [&](std::byte b) { return b == value; });
  }
  mpi.barrier();
  return fine;
}

}  // namespace
}  // namespace shardline

int main() {
  const shardline::MpiBootstrap mpi;
  const bool fine = shardline::broadcasts_arrive(mpi);
  if (!fine) std::fprintf(stderr, "process %d of %d: wrong\n", mpi.process(), mpi.processes());
  return fine ? 0 : 1;
}
