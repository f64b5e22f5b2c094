// The module that is linked with MPI. It waits for nobody but at its beginning and its end: a process that
// has died would never answer.
#include "sim/ranks/mpi_module.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <list>
#include <vector>

namespace {

constexpr int kTag = 1;

struct OnItsWay {
  std::vector<char> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

MPI_Comm g_ranks = MPI_COMM_NULL;
std::list<OnItsWay>& on_their_way() {
  static std::list<OnItsWay> all;
  return all;
}

void forget_sent() {
  on_their_way().remove_if([](OnItsWay& m) {
    int done = 0;
    return MPI_Test(&m.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
}

int send(int to, const void* bytes, size_t size) {
  forget_sent();
  OnItsWay& m = on_their_way().emplace_back();
  const auto* const first = static_cast<const char*>(bytes);
  m.bytes.assign(first, first + size);
  return MPI_Isend(m.bytes.data(), static_cast<int>(size), MPI_BYTE, to, kTag, g_ranks, &m.request);
}

long receive(int* from, void* room, size_t size) {
  forget_sent();
  int there = 0, length = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, g_ranks, &there, &status) != MPI_SUCCESS || there == 0) return -1;
  MPI_Get_count(&status, MPI_BYTE, &length);
  if (length < 0 || static_cast<size_t>(length) > size) MPI_Abort(g_ranks, 1);  // no message of ours
  *from = status.MPI_SOURCE;
  if (MPI_Recv(room, length, MPI_BYTE, status.MPI_SOURCE, kTag, g_ranks, MPI_STATUS_IGNORE) != MPI_SUCCESS)
    return -1;
  return length;
}

void close(int lost) {
  if (lost != 0) return;  // MPI_Finalize waits for all
  // Messages to those who have left need nobody to take them; of the others all are taken before the end.
  for (OnItsWay& m : on_their_way()) {
    int done = 0;
    if (MPI_Test(&m.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0)
      MPI_Request_free(&m.request);
  }
  MPI_Finalize();
}

}  // namespace

const ShardlineMpi* shardline_mpi_open(char* error, size_t room) {
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_FUNNELED) {
    std::snprintf(error, room, "MPI does not start, or not beside threads that do not call it");
    return nullptr;
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &g_ranks);
  // A rank that has died is noticed by its silence: errors are returned, and end nobody else.
  MPI_Comm_set_errhandler(g_ranks, MPI_ERRORS_RETURN);
  static ShardlineMpi mpi{SHARDLINE_MPI_MODULE_VERSION, 0, 1, 1, send, receive, close};
  MPI_Comm_rank(g_ranks, &mpi.rank);
  MPI_Comm_size(g_ranks, &mpi.count);
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(g_ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  MPI_Comm_size(machine, &mpi.on_machine);
  MPI_Comm_free(&machine);
  return &mpi;
}
