// Rows that no table has, made of measured ones. calibrate/README.md [F8].
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/rows.hpp"

namespace shardline {

/// The engine whose rows of `quantize` say what a GEMM kernel's search for a scale costs: that of the rows
/// where they name one, else the one that calls a kernel so. Empty: none is known.
std::string_view engine_of_gemm(std::string_view engine, std::string_view kernel);

/// [F8] FP8 products whose activation has a known scale: of each measured product m x n x k (`dynamic`,
/// seconds) what finding the scale of its m x k activation costs (`search`, rows of m and k) less; never less
/// than the form's peaks allow. Shapes whose search was not measured are left out.
FitRows static_products(const FitRows& dynamic, const FitRows& search, const FormContext& gemm);

}  // namespace shardline
