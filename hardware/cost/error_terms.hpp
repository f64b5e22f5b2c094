// How far what is made of many prices may be off. What a fit gets wrong, it gets wrong in all that it prices.
// hardware/README.md [H65].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hardware/cost/price_interval.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {

/// What errors have in common, as a number that orders them: fits by their place in the calibration, then
/// accepted drafts, what libraries differ by, elementwise kernels, the host of an engine, the system file's
/// parameters.
using ErrorSourceId = std::uint32_t;
inline constexpr ErrorSourceId kAssumedSource = 0xFFFF'FFFF, kHostSource = 0xFFFF'FFFE,
                               kElementwiseSource = 0xFFFF'FFFD, kLibrarySource = 0xFFFF'FFFC,
                               kAcceptanceSource = 0xFFFF'FFFB;

/// `interval` is of an op priced with this calibration.
ErrorSourceId source_of(const Calibration& calibration, const PriceInterval& interval);
/// "attention_decode fp8 ...", "elementwise kernels", "fitted host times of vLLM 0.24.0", "the system file's
/// parameters".
std::string source_name(const System& system, ErrorSourceId source);

/// By how much a time changes, as a part of it, if all prices of one source are off as far as the low end,
/// the middle and the high end of their bands say. low <= middle <= high.
struct ErrorTerm {
  ErrorSourceId source = 0;
  double low = 0, middle = 0, high = 0;
  bool operator==(const ErrorTerm&) const = default;
};

/// By how much a time changes, as a part of it, by the kernels of another framework.
struct LibraryChange {
  std::string framework;
  double change = 0;
  bool operator==(const LibraryChange&) const = default;
};

/// The terms of one time, each source once.
class ErrorTerms {
 public:
  ErrorTerms() = default;
  /// Of a time all of which is one price.
  ErrorTerms(ErrorSourceId source, const ErrorBand& band);

  /// More of a source, or one more: errors of one source add up.
  void add(const ErrorTerm& term);
  /// Of a time that consists of several: each times its part of the whole.
  ErrorTerms& operator+=(const ErrorTerms& other);
  ErrorTerms operator*(double part) const;
  /// The same but for one source.
  ErrorTerms without(ErrorSourceId source) const;
  /// Where a question leaves it open whose kernels run: those of each other framework, once, in the order of
  /// their names. What has no entry of one does not change by its kernels.
  void set_libraries(std::vector<LibraryChange> changes);
  std::span<const LibraryChange> libraries() const { return libraries_; }
  /// Their ends around 0, which is the library that the time is of; both 0 where none is open.
  ErrorTerm between_libraries() const;
  /// In ascending order of their sources.
  std::span<const ErrorTerm> all() const { return terms_; }
  bool operator==(const ErrorTerms&) const = default;

 private:
  std::vector<ErrorTerm> terms_;
  std::vector<LibraryChange> libraries_;
};

/// All of them, that between libraries too, the widest first.
std::vector<ErrorTerm> widest_first(const ErrorTerms& terms);

/// A nominal 90 % interval, in parts of what it is of: the truth is between 1 + low and 1 + high times it.
struct ErrorRange {
  double low = 0, high = 0;
};
/// [H65] Of the time itself. It holds the times by other libraries' kernels.
ErrorRange time_error(const ErrorTerms& terms);
/// Of a rate, which is so many per time.
ErrorRange rate_error(const ErrorTerms& terms);

/// [H65] The nominal 90 % band of ln(true ratio / ratio) of two times: what both get from one source cancels
/// as far as they have the same part of it, and both run by the kernels of one library, whichever it is.
ErrorBand ratio_band(const ErrorTerms& one, const ErrorTerms& other);
/// Whether 1 lies outside the interval of their ratio, so that the order of the two times is more than errors
/// of prices.
bool told_apart(double ratio, const ErrorBand& band);

}  // namespace shardline
