// What the module that is linked with MPI offers to the program, which is not. In C, for both may be built
// apart: the module by the wrapper compiler of a cluster's own MPI.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHARDLINE_MPI_MODULE_VERSION 1

struct ShardlineMpi {
  int version; /* SHARDLINE_MPI_MODULE_VERSION */
  int rank, count, on_machine;
  /* Copies the bytes, and returns before they have gone. 0, or an error of MPI. */
  int (*send)(int to, const void* bytes, size_t size);
  /* The size of the next message, its sender in `from`, its bytes in `room`; -1: none has come. */
  long (*receive)(int* from, void* room, size_t size);
  /* lost: a process has died, and MPI's own end would wait for it. */
  void (*close)(int lost);
};

/* NULL, and what went wrong in `error`. Lives as long as the process. */
typedef const struct ShardlineMpi* (*ShardlineMpiOpen)(char* error, size_t room);
const struct ShardlineMpi* shardline_mpi_open(char* error, size_t room);

#ifdef __cplusplus
}
#endif
