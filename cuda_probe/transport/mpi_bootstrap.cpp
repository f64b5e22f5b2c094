#include "cuda_probe/transport/mpi_bootstrap.hpp"

#include <mpi.h>

namespace shardline {

MpiBootstrap::MpiBootstrap() {
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &process_);
  MPI_Comm_size(MPI_COMM_WORLD, &processes_);
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, process_, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local_process_);
  MPI_Comm_free(&machine);
}

MpiBootstrap::~MpiBootstrap() { MPI_Finalize(); }

void MpiBootstrap::broadcast(std::span<std::byte> data, std::span<const int> members) const {
  // Point to point: processes outside the group take no part, so MPI_Bcast over the world would hang.
  constexpr int kTag = 17;
  const int bytes = static_cast<int>(data.size());
  if (process_ != members.front()) {
    MPI_Recv(data.data(), bytes, MPI_BYTE, members.front(), kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return;
  }
  for (const int member : members.subspan(1))
    MPI_Send(data.data(), bytes, MPI_BYTE, member, kTag, MPI_COMM_WORLD);
}

void MpiBootstrap::barrier() const { MPI_Barrier(MPI_COMM_WORLD); }

}  // namespace shardline
