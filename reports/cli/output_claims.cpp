#include "reports/cli/output_claims.hpp"

#include <CLI/CLI.hpp>
#include <string>

#include "reports/cli/parse_faults.hpp"
#include "sim/base/error.hpp"

namespace shardline::cli {

OutputClaims::OutputClaims(const CLI::App& command, const CommandText& text, bool json) {
  std::string option, file;  // what has standard output
  bool files = false;        // whether others are written
  for (const ArgumentText& a : text.arguments) {
    if (!a.output && !a.document) continue;
    for (const std::string& value : option_of(command, a.names.front()).results()) {
      if (value.empty()) continue;
      files |= a.output || !DocumentOutput::is_standard(value);
      if (a.output) {
        if (value == "-")
          throw UserError(a.names.front() + " -: expected a folder, standard output is one file");
        folders_.emplace_back(value);
        continue;
      }
      if (!DocumentOutput::is_standard(value)) continue;
      if (!option.empty())
        throw UserError(option + " and " + a.names.front() +
                        " both name standard output: name a file for one");
      option = a.names.front();
      file = value;
    }
  }
  if (files) outlast_readers();
  if (option.empty()) return;
  if (json)
    throw UserError(option + " " + file + ": standard output has the document of --json; name a file");
  document_.emplace(file);
}

}  // namespace shardline::cli
