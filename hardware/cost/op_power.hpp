// Watts of one op while it runs. hardware/README.md [H78].
#pragma once

#include "hardware/machine/system.hpp"
#include "models/ir/schedule.hpp"

namespace shardline {

/// What an op demands of its device over `time`: parts of the peak of its type's tensor cores and of HBM's
/// bandwidth, 1 at most (times below what the data sheet allows are the price's error, not the board's).
struct DeviceUse {
  double tensor = 0, memory = 0;
};
DeviceUse device_use(const Device& device, const PricedOp& op, Seconds time);

/// Of a system whose power is known. Ops that no kernel of the device runs draw what a waiting board does.
double op_watts(const System& system, const PricedOp& op, Seconds time);

}  // namespace shardline
