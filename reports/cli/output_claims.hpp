// What a command line says that its command will write, before it does any work.
#pragma once

#include <optional>
#include <vector>

#include "reports/cli/command_text.hpp"
#include "reports/staged_folder.hpp"
#include "reports/standard_output.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace shardline::cli {

/// Lives while the command runs: its folders are held, so that two runs do not mix their files, and standard
/// output is kept for the file that is to be written there.
class OutputClaims {
 public:
  /// `json`: standard output has the document of --json. Throws UserError where a folder cannot be had, where
  /// it is standard output, and where two documents would be.
  OutputClaims(const CLI::App& command, const CommandText& text, bool json);

 private:
  std::vector<FolderClaim> folders_;
  std::optional<DocumentOutput> document_;
};

}  // namespace shardline::cli
