// shardline: the table of its commands, in the order of the help
// (exit codes: 0 fine, 1 our bug, 2 bad input, too little memory, lost output, 3 no plan, 129, 130 and
// 143 a signal).
#include <fmt/format.h>

#include <array>

#include "planner/api/other_names.hpp"
#include "planner/api/version.hpp"
#include "planner/cli/advice.hpp"
#include "planner/cli/commands.hpp"
#include "planner/cli/shared_work.hpp"
#include "planner/scenario/data_folder.hpp"

namespace {

using namespace shardline::cli;
using shardline::Meaning;

constexpr std::array kCommands{
    &kPlanCommand,     &kServeCommand,      &kSweepCommand,     &kSimulateCommand,
    &kExplainCommand,  &kCompareCommand,    &kHandoffCommand,   &kListCommand,
    &kValidateCommand, &kThresholdsCommand, &kPartitionCommand, &kConversationCommand,
    &kVerifyCommand,   &kCalibrateCommand,  &kEvaluateCommand,  &kAccuracyCommand};

constexpr Meaning kExitCodes[] = {
    {"0", "fine; pictures that could not be made are warnings of the summary"},
    {"1", "a bug of ours"},
    {"2", "bad input, more memory needed than --memory, or output that could not be written"},
    {"3", "no plan fits or meets the target, or the one that is looked at does not"},
    {"130",
     "interrupted (SIGINT); 143: ended (SIGTERM); 129: hung up (SIGHUP). What is whole is kept. 141: the "
     "reader of standard output is gone (SIGPIPE)"}};
constexpr Meaning kEnvironment[] = {
    {shardline::kDataVariable,
     "folder of models, systems, engines and scenarios, in place of the installed one"},
    {"SOURCE_DATE_EPOCH", "seconds since 1970 that calibrate dates its files with, in place of today"},
    {"SHARDLINE_MPI",
     "the module for MPI, in place of shardline_mpi.so beside the program or in lib/shardline"},
    {"SHARDLINE_RANK_PATIENCE", "seconds after which a process that says nothing is done without (30)"}};

std::string fault_text(const char* what) {
  return fmt::format(
      "shardline: internal error: {}\nPlease report this with the command line and files used.\n", what);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = begin_shared_work(argc, argv)) return *code;
  const int code = run_program(
      {.name = "shardline",
       .version = SHARDLINE_VERSION,
       .date = SHARDLINE_VERSION_DATE,
       .summary = "Simulates and plans how to shard long-context LLM serving over GPUs.",
       .example = "shardline plan llama-3.1-70b --system h200-hgx --gpus 8 --input 32K --output 1K",
       .exit_codes = kExitCodes,
       .environment = kEnvironment,
       .commands = kCommands,
       .fault_text = fault_text,
       .data_text = shardline::data_text,
       .documents = true,
       .other_names = shardline::api::other_names(),
       .advice = advice_on},
      argc, argv);
  return end_shared_work(code);
}
