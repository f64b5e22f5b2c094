// What the library throws.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "planner/api/values.hpp"

namespace shardline::api {

enum class ErrorKind : std::uint8_t {
  bad_input,    // of a question, or of a file that it names, or too little memory: exit code 2 of the program
  interrupted,  // RunOptions::cancelled said so
  internal      // a bug of ours: exit code 1
};

/// Every function of shardline.hpp throws this and nothing else. That no plan fits or meets a target is a
/// result and no error (`met` of a SweepResult, `fits` of a SimulateResult: exit code 3 of the program).
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text, std::vector<Diagnostic> diagnostics = {})
      : std::runtime_error(text), kind_(kind), diagnostics_(std::move(diagnostics)) {}
  ErrorKind kind() const { return kind_; }
  /// Every fault found, not only the first. what() has them all as text, each with its source line.
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  ErrorKind kind_;
  std::vector<Diagnostic> diagnostics_;
};

}  // namespace shardline::api
