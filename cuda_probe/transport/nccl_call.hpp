// Calls of NCCL with its own words when they fail.
#pragma once

#include <nccl.h>

namespace shardline {

/// Throws GpuError "FILE:LINE: CALL: text: NCCL's last error" unless the result is success.
void require_nccl(ncclResult_t result, const char* call, const char* file, int line,
                  ncclComm_t communicator = nullptr);
#define SL_NCCL(call) ::shardline::require_nccl((call), #call, __FILE__, __LINE__)

/// Calls of one group. Ends it in every case: NCCL would otherwise collect all calls to come.
template <class Calls>
void grouped(Calls calls) {
  SL_NCCL(ncclGroupStart());
  try {
    calls();
  } catch (...) {
    ncclGroupEnd();
    throw;
  }
  SL_NCCL(ncclGroupEnd());
}

}  // namespace shardline
