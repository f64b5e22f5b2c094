// shardline: the table of its commands, in the order of the help
// (exit codes: 0 fine, 1 our bug, 2 bad input or lost output, 3 no plan fits).
#include <fmt/format.h>

#include <array>

#include "planner/cli/commands.hpp"

namespace {

using namespace shardline::cli;

constexpr std::array kCommands{&kSweepCommand,        &kSimulateCommand,   &kListCommand,
                               &kValidateCommand,     &kThresholdsCommand, &kPartitionCommand,
                               &kConversationCommand, &kVerifyCommand,     &kCalibrateCommand,
                               &kEvaluateCommand,     &kAccuracyCommand};

std::string fault_text(const char* what) {
  return fmt::format(
      "shardline: internal error: {}\nPlease report this with the command line and files used.\n", what);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      {"shardline", SHARDLINE_VERSION, "Simulates and plans how to shard long-context LLM serving over GPUs.",
       "Example:\n  shardline sweep helix_gb200_1m -o out/helix\n\n"
       "Exit codes:\n  0 fine\n  1 a bug of ours\n"
       "  2 bad input, or output that could not be written\n"
       "  3 no plan fits or meets the target",
       kCommands, fault_text},
      argc, argv);
}
