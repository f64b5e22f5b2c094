// How far a price may be off: the band of its fit, wider where the price is far from what was measured.
// hardware/README.md [H63].
#pragma once

#include <cstdint>
#include <span>

#include "hardware/cost/calibration.hpp"
#include "models/ir/schedule.hpp"

namespace shardline {

/// How far a price is from the rows that its fit was made of.
struct FitDistance {
  MachineKin machine = MachineKin::own;  // whose fit it is
  bool altered = false;                  // a data type, or widths, that were not measured
  bool indirect = false;     // an op that was not measured itself: part of a sequence, a gather by dispatch
  bool outside = false;      // no measured row near it
  bool other_model = false;  // of no model family that was measured
  float beyond = 0;          // doublings beyond the fit's rows on the axis of FitIntervals::beyond
  float fixed = 0;           // of_fixed_times(), where another processor's

  /// The one definition of a measured price, for ops and for predictions beside measurements: the machine is
  /// the one that was measured (Calibration::kin), and the shape lies among the measured rows.
  bool measured() const { return machine == MachineKin::own && !outside; }
  /// Whether the band asks how much of the price are fixed times.
  bool asks_fixed() const { return machine >= MachineKin::architecture; }
};

/// Times as fast are all rates of the device by which of_fixed_times() finds what goes with them.
inline constexpr double kFaster = 1.01;
FormContext faster(FormContext context, double times);
/// Part of a time that does not go with the device's rates, from the time of the same on a device whose are
/// kFaster: launches, latencies, synchronisation.
double of_fixed_times(double time, double on_faster);

/// Of a shape with these coordinates, of which KernelFit::outside() says `outside`. The rest is the caller's.
FitDistance distance_of(const KernelFit& fit, MachineKin machine, bool outside,
                        std::span<const double> coordinates);

/// [H63] The nominal 90 % band of ln(true time / price).
ErrorBand band_of_price(const KernelFit& fit, const FitDistance& distance);

/// Whether the fit was made of rows of the op's model: its experts, its widths and groups of attention heads.
/// False where the fit has no families; the op is one that the fit prices.
bool of_measured_model(const KernelFit& fit, const PricedOp& op);

/// [H63] Where there is no fit.
inline constexpr ErrorBand kAssumedBand{-0.35, 0.6};     // the system file's parameters
inline constexpr ErrorBand kElementwiseBand{-0.3, 0.5};  // [H56]

/// What errors of prices have in common: those of one fit go together, those of two do not. host: what an
/// engine does around its kernels.
enum class ErrorSource : std::uint8_t { fit, elementwise, host, assumed };
struct PriceInterval {
  ErrorBand band = kAssumedBand;
  ErrorSource source = ErrorSource::assumed;
  const KernelFit* fit = nullptr;  // of the system's calibration, where the source is one
};

}  // namespace shardline
