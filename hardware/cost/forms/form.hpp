// Cost forms: what one kind of measured operation costs as a function of its shape, with few parameters that
// have a meaning. Calibration (calibrate/) finds the parameters; the cost model uses them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shardline {

struct System;

/// Positive; sought as its logarithm between low and high, from start.
struct FormParameter {
  const char* name;
  const char* unit;  // "us", "1", ...
  double low, start, high;
};

/// What a form knows of the device and of the variant (data types) it is used for. Rates per second.
struct FormContext {
  double flops = 0;         // dense peak of the arithmetic
  double bandwidth = 0;     // HBM peak, bytes
  double exponentials = 0;  // exponentials
  double sms = 1;
  double link = 0;                   // one GPU's port inside its domain, bytes, one direction
  double network = 0;                // one GPU's port between nodes, bytes
  double a_bytes = 2;                // of an element of the first operand (activation, query)
  double b_bytes = 2;                // of the second (weight, cached key or value)
  double variant[4] = {0, 0, 0, 0};  // what else the words say: each form has its own meaning
};

/// One axis of a form's coordinates, for the correction on top of it and for the range of shapes seen.
struct FormAxis {
  const char* name;
  double knot;         // distance of the correction's knots, in doublings
  double fine = 0;     // the same of a fine correction; 0: half of it
  double own = 0;      // the least distance of knots that lie where the rows do; 0: never
  bool tiled = false;  // kernels fill tiles along it: a step after each power of two from 16 on
  double fine_knot() const { return fine > 0 ? fine : knot / 2; }
};

inline constexpr std::size_t kMostAxes = 4;
inline constexpr std::size_t kMostNumbers = 8;
inline constexpr std::size_t kMostDerived = 24;

/// A form in two steps, for many shapes that differ in one number only: the one that grows with tokens. Both
/// in turn are Form::seconds, to the bit.
struct FormSteps {
  std::size_t number;  // of x
  std::size_t axis;    // of the coordinates; the number moves no other
  /// Writes at most kMostDerived numbers. x[number] is not looked at.
  void (*derive)(std::span<const double> x, const FormContext& c, std::span<const double> p, double* out);
  double (*seconds)(std::span<const double> x, const FormContext& c, std::span<const double> p,
                    const double* derived);
  /// Form::coordinates along `axis`.
  double (*coordinate)(std::span<const double> x);
};

/// Form::seconds of a form in two steps: one after the other.
template <auto derive, auto rest>
double in_steps(std::span<const double> x, const FormContext& c, std::span<const double> p) {
  double derived[kMostDerived];
  derive(x, c, p, derived);
  return rest(x, c, p, derived);
}

struct Form {
  const char* family;                    // of calibrate/README.md
  const char* equation;                  // tag in hardware/README.md
  std::span<const char* const> numbers;  // columns that make up x, in this order; at most kMostNumbers
  std::span<const char* const> words;    // columns that separate variants, each fitted alone
  std::span<const FormParameter> parameters;
  std::span<const FormAxis> axes;  // at most kMostAxes
  /// Words in the order of `words`. False: the variant is not one that this form is for.
  bool (*context)(std::span<const std::string> words, const System& system, FormContext& out);
  /// Whether the form is meant for this shape.
  bool (*covers)(std::span<const double> x);
  /// Of one call; p in the order of `parameters`.
  double (*seconds)(std::span<const double> x, const FormContext& c, std::span<const double> p);
  /// Operations and bytes of HBM (collectives: of the port) by geometry, for rooflines and tables.
  double (*work)(std::span<const double> x, const FormContext& c);
  double (*traffic)(std::span<const double> x, const FormContext& c);
  /// log2 of what the axes name.
  void (*coordinates)(std::span<const double> x, const FormContext& c, double* out);
  const FormSteps* steps = nullptr;  // null: no op is priced by the form's x as it is
};

std::span<const Form> forms();
/// Null: there is none for this family.
const Form* find_form(std::string_view family);

}  // namespace shardline
