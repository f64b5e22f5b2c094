// Power that the board of a GPU draws: while it waits, and while kernels of three kinds run.
// hardware/README.md [H78].
#pragma once

#include <array>
#include <filesystem>
#include <string>

#include "hardware/cost/fit_intervals.hpp"
#include "models/ir/schedule.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

/// Kernels that were measured together. stream: attention of steps that decode, and all else that is bound by
/// memory; messages among them, of which none was measured.
enum class PowerClass : std::uint8_t { product, prefill, stream };
inline constexpr std::size_t kPowerClasses = 3;
PowerClass power_class(OpKind kind);
/// The key of its law in a system file: "gemm", "attention_prefill", "attention_decode".
const char* power_key(PowerClass of);

/// [H78] Watts of a kernel: base + tensor x (part of its type's peak) + memory x (part of HBM's), at most
/// BoardPower::most.
struct PowerLaw {
  double base = 0, tensor = 0, memory = 0;  // W
  ErrorBand band = {};                      // of ln(measured / predicted), nominal 90 %
};

/// Of one board; all 0 where nothing is known of it.
struct BoardPower {
  double idle = 0;  // W, of a board whose kernels wait
  double most = 0;  // W, that any kernel draws for long
  std::array<PowerLaw, kPowerClasses> laws{};
  std::string source;
  std::string like;  // the system it is borrowed from; empty: measured on such a board

  bool known() const { return most > 0; }
  /// Of a kernel that uses these parts of the peaks of its type's tensor cores and of HBM.
  double watts(PowerClass of, double tensor_use, double memory_use) const;
};

/// Reads a mapping `power`: {idle_w, most_w, source, gemm, attention_prefill, attention_decode}, or {like:
/// SYSTEM}, whose watts are taken in the ratio of the limits; `limit` is the board's own in W, 0 where none
/// is given. Faults are recorded in the document.
BoardPower read_board_power(const Reader& reader, double limit, const std::filesystem::path& catalog_dir);

}  // namespace shardline
