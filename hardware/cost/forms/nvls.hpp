// All-reduce with the sums made in the NVLink switches, as NCCL does it. forms/README.md [H46].
#pragma once

namespace shardline {

struct System;

/// Part of a port's peak rate that NCCL's own cost model expects in-switch sums to reach on this device:
/// 0.700 on Hopper, 0.593 from Blackwell on (the first with FP4). Zero where the fabric cannot multicast.
double nvls_efficiency(const System& system);

/// What does not depend on the message. Up to four GPUs a ring is as fast, and stands for both.
struct NvlsShape {
  NvlsShape(double gpus, double link);
  double share = 0;  // of the buffer, through the port; zero: not used
  double fill = 0;   // s, of the port: the root of it and of the message's time is what the pipeline costs
};

/// Microseconds of a buffer of `bytes`; `link` in bytes per second, `rate` the part of it that is reached.
double nvls_microseconds(double share, double fill, double bytes, double link, double rate);

}  // namespace shardline
