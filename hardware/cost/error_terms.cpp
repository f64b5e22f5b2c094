#include "hardware/cost/error_terms.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Squares of the two sides of a sum of independent errors, around the sum of their middles.
struct Sides {
  double middle = 0, below = 0, above = 0;

  void add(double low, double centre, double high) {
    middle += centre;
    below += (centre - low) * (centre - low);
    above += (high - centre) * (high - centre);
  }
  double low() const { return middle - std::sqrt(below); }
  double high() const { return middle + std::sqrt(above); }
};

// Calls f(one's entry, other's entry) for every key of either, both in its order; what one lacks is empty.
template <class T, class Key, class F>
void for_both(std::span<const T> a, std::span<const T> b, Key key, F f) {
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool first = j == b.size() || (i < a.size() && key(a[i]) <= key(b[j]));
    const bool second = i == a.size() || (j < b.size() && key(b[j]) <= key(a[i]));
    f(first ? a[i] : T{}, second ? b[j] : T{});
    i += first ? 1 : 0;
    j += second ? 1 : 0;
  }
}

const std::string& framework_of(const LibraryChange& c) { return c.framework; }
ErrorSourceId source_of_term(const ErrorTerm& t) { return t.source; }

// Of ln(ratio by another library's kernels / ratio), around 0.
ErrorBand library_band(const ErrorTerms& one, const ErrorTerms& other) {
  ErrorBand out{0, 0};
  for_both(one.libraries(), other.libraries(), framework_of,
           [&](const LibraryChange& a, const LibraryChange& b) {
             const double log = std::log1p(a.change) - std::log1p(b.change);
             out.low = std::min(out.low, log);
             out.high = std::max(out.high, log);
           });
  return out;
}

}  // namespace

ErrorSourceId source_of(const Calibration& c, const PriceInterval& interval) {
  switch (interval.source) {
    case ErrorSource::elementwise:
      return kElementwiseSource;
    case ErrorSource::host:
      return kHostSource;
    case ErrorSource::assumed:
      return kAssumedSource;
    case ErrorSource::fit:
      break;
  }
  const auto at = static_cast<std::size_t>(interval.fit - c.fits.data());
  SL_CHECK(at < c.fits.size(), "a price is from a fit of its own calibration");
  return static_cast<ErrorSourceId>(at);
}

std::string source_name(const System& s, ErrorSourceId source) {
  if (source == kLibrarySource) return "by whose kernels";
  if (source == kAcceptanceSource) return "accepted drafts";
  if (source == kElementwiseSource) return "elementwise kernels";
  if (source == kHostSource) return "fitted host times of " + s.host.of;
  if (source == kAssumedSource) return "the system file's parameters";
  return s.calibration.fits.at(source).name();
}

ErrorTerms::ErrorTerms(ErrorSourceId source, const ErrorBand& band) {
  const double middle = (band.low + band.high) / 2;
  terms_.push_back({source, std::expm1(band.low), std::expm1(middle), std::expm1(band.high)});
}

void ErrorTerms::add(const ErrorTerm& term) {
  const auto before = [](const ErrorTerm& t, ErrorSourceId source) { return t.source < source; };
  const auto at = std::lower_bound(terms_.begin(), terms_.end(), term.source, before);
  if (at == terms_.end() || at->source != term.source) {
    terms_.insert(at, term);
    return;
  }
  at->low += term.low;
  at->middle += term.middle;
  at->high += term.high;
}

ErrorTerms& ErrorTerms::operator+=(const ErrorTerms& other) {
  for (const ErrorTerm& t : other.terms_) add(t);
  std::vector<LibraryChange> sum;
  for_both(libraries(), other.libraries(), framework_of, [&](const LibraryChange& a, const LibraryChange& b) {
    sum.push_back({a.framework.empty() ? b.framework : a.framework, a.change + b.change});
  });
  libraries_ = std::move(sum);
  return *this;
}

void ErrorTerms::set_libraries(std::vector<LibraryChange> changes) {
  const auto not_ascending = [](const LibraryChange& a, const LibraryChange& b) {
    return a.framework >= b.framework;
  };
  SL_CHECK(std::adjacent_find(changes.begin(), changes.end(), not_ascending) == changes.end(),
           "each framework once, in the order of their names");
  libraries_ = std::move(changes);
}

ErrorTerms ErrorTerms::without(ErrorSourceId source) const {
  ErrorTerms out = *this;
  std::erase_if(out.terms_, [&](const ErrorTerm& t) { return t.source == source; });
  return out;
}

ErrorTerms ErrorTerms::operator*(double part) const {
  ErrorTerms out;
  for (const ErrorTerm& t : terms_)
    out.terms_.push_back({t.source, t.low * part, t.middle * part, t.high * part});
  for (const LibraryChange& l : libraries_) out.libraries_.push_back({l.framework, l.change * part});
  return out;
}

ErrorTerm ErrorTerms::between_libraries() const {
  ErrorTerm out{kLibrarySource, 0, 0, 0};
  for (const LibraryChange& l : libraries_) {
    out.low = std::min(out.low, l.change);
    out.high = std::max(out.high, l.change);
  }
  return out;
}

std::vector<ErrorTerm> widest_first(const ErrorTerms& terms) {
  std::vector<ErrorTerm> out(terms.all().begin(), terms.all().end());
  if (const ErrorTerm libraries = terms.between_libraries(); libraries.low < 0 || libraries.high > 0)
    out.push_back(libraries);
  std::stable_sort(out.begin(), out.end(),
                   [](const ErrorTerm& a, const ErrorTerm& b) { return a.high - a.low > b.high - b.low; });
  return out;
}

// Changes of a time stand for those of its logarithm while they are small; two that take nine tenths of it
// each would take more than all of it. Where a sum takes more than half of the time it is one of logarithms,
// from seven tenths on entirely.
ErrorRange time_error(const ErrorTerms& terms) {
  constexpr double kHalf = 0.5, kEntirely = 0.7;
  Sides sum, logs;
  const auto add = [&](double low, double middle, double high) {
    sum.add(low, middle, high);
    logs.add(std::log1p(low), std::log1p(middle), std::log1p(high));
  };
  for (const ErrorTerm& t : terms.all()) add(t.low, t.middle, t.high);
  const ErrorTerm libraries = terms.between_libraries();
  add(libraries.low, 0, libraries.high);
  const double part = std::clamp((-sum.low() - kHalf) / (kEntirely - kHalf), 0.0, 1.0);
  const double low = part > 0 ? (1 - part) * sum.low() + part * std::expm1(logs.low()) : sum.low();
  return {low, sum.high()};
}

ErrorRange rate_error(const ErrorTerms& terms) {
  const ErrorRange time = time_error(terms);
  return {1 / (1 + time.high) - 1, 1 / (1 + time.low) - 1};
}

ErrorBand ratio_band(const ErrorTerms& one, const ErrorTerms& other) {
  Sides sum;
  for_both(one.all(), other.all(), source_of_term, [&](const ErrorTerm& a, const ErrorTerm& b) {
    const double low = std::log1p(a.low) - std::log1p(b.low),
                 middle = std::log1p(a.middle) - std::log1p(b.middle),
                 high = std::log1p(a.high) - std::log1p(b.high);
    sum.add(std::min({low, middle, high}), middle, std::max({low, middle, high}));
  });
  const ErrorBand libraries = library_band(one, other);
  sum.add(libraries.low, 0, libraries.high);
  return {sum.low(), sum.high()};
}

bool told_apart(double ratio, const ErrorBand& band) {
  const double log = std::log(ratio);
  return log + band.low > 0 || log + band.high < 0;
}

}  // namespace shardline
