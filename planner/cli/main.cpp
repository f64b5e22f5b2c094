// shardline: the table of its commands, in the order of the help
// (exit codes: 0 fine, 1 our bug, 2 bad input, too little memory, lost output, 3 no plan, 130 and 143 a
// signal).
#include <fmt/format.h>

#include <array>

#include "planner/api/version.hpp"
#include "planner/cli/advice.hpp"
#include "planner/cli/commands.hpp"
#include "planner/cli/shared_work.hpp"
#include "planner/scenario/data_folder.hpp"

namespace {

using namespace shardline::cli;

constexpr std::array kCommands{
    &kPlanCommand,     &kServeCommand,      &kSweepCommand,     &kSimulateCommand,
    &kExplainCommand,  &kCompareCommand,    &kHandoffCommand,   &kListCommand,
    &kValidateCommand, &kThresholdsCommand, &kPartitionCommand, &kConversationCommand,
    &kVerifyCommand,   &kCalibrateCommand,  &kEvaluateCommand,  &kAccuracyCommand};

constexpr Meaning kExitCodes[] = {
    {"0", "fine; pictures that could not be made are warnings of the summary"},
    {"1", "a bug of ours"},
    {"2", "bad input, more memory needed than --memory, or output that could not be written"},
    {"3", "no plan fits or meets the target"},
    {"130", "interrupted (SIGINT); 143: ended (SIGTERM). What is whole is kept"}};
constexpr Meaning kEnvironment[] = {
    {shardline::kDataVariable,
     "folder of models, systems, engines and scenarios, in place of the installed one"},
    {"SOURCE_DATE_EPOCH", "seconds since 1970 that calibrate dates its files with, in place of today"},
    {"SHARDLINE_MPI",
     "the module for MPI, in place of shardline_mpi.so beside the program or in lib/shardline"},
    {"SHARDLINE_RANK_PATIENCE", "seconds after which a process that says nothing is done without (30)"}};

// As engines and their benchmarks call them.
constexpr Meaning kOtherNames[] = {
    {"--tpot", "--ttl"},
    {"--itl", "--ttl"},
    {"--isl", "--input"},
    {"--input-len", "--input"},
    {"--osl", "--output"},
    {"--output-len", "--output"},
    {"--concurrency", "--users"},
    {"--batch", "--users"},
    {"--max-concurrency", "--users"},
    {"--num-gpus", "--gpus"},
    {"--gpu", "--gpus"},
    {"--qps", "--rate"},
    {"--request-rate", "--rate"},
    {"--backend", "--engine"},
    {"--framework", "--engine"},
    {"--output-dir", "--out"},
    {"--hardware", "--system"},
    {"--tp", "--gpus (of all ranks: how tensor parallelism splits them is searched)"},
    {"--tp", "--plan tensor:tpa=8,tpf=8"},
    {"--tp", "--set gpus=8 (and --set strategies=[tensor] for tensor parallelism alone)"},
    {"--gpus", "--set gpus=8 (the scenario says how many)"},
    {"--system", "--set system=h200-hgx (the scenario names it)"},
    {"--strategies", "--set strategies=[tensor] (the scenario names them)"},
    {"--dtype",
     "--set precision.weights=bf16 (without it types are those of the checkpoint: name one in fp8 as MODEL)"},
    {"--kv-cache-dtype", "--set precision.kv=fp8"},
    {"--context", "--input"},
    {"--context", "--set context=\"128K tokens\" (the scenario says how long it is)"},
    {"--max-model-len", "--input"},
    {"--max-model-len", "--set context=\"128K tokens\" (the scenario says how long it is)"}};

std::string fault_text(const char* what) {
  return fmt::format(
      "shardline: internal error: {}\nPlease report this with the command line and files used.\n", what);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = begin_shared_work(argc, argv)) return *code;
  return run_program({.name = "shardline",
                      .version = SHARDLINE_VERSION,
                      .date = SHARDLINE_VERSION_DATE,
                      .summary = "Simulates and plans how to shard long-context LLM serving over GPUs.",
                      .example = "shardline sweep helix_gb200_1m -o out/helix",
                      .exit_codes = kExitCodes,
                      .environment = kEnvironment,
                      .commands = kCommands,
                      .fault_text = fault_text,
                      .data_text = shardline::data_text,
                      .documents = true,
                      .other_names = kOtherNames,
                      .advice = advice_on},
                     argc, argv);
}
