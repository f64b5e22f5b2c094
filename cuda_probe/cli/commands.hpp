// The commands of shardline-probe but `execute`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cuda_probe/cli/visited_shapes.hpp"
#include "cuda_probe/probes/results.hpp"

namespace shardline::probe_cli {

struct ListOptions {
  std::string probe;  // empty: all of them, a line each
  bool all = false;   // every shape that plans visit, not only the chosen ones
};
/// Probes, columns of their tables, number of shapes; or the shapes of one probe.
std::string list_text(const ListOptions& options, const Catalogs& catalogs);

struct RunArguments {
  std::string only;   // probes, separated by commas; empty: all
  std::string out;    // empty: print only
  double budget = 0;  // seconds; 0: 300, or 20 with quick
  bool quick = false;
  int device = 0;
  std::string command;  // for the tables' heads
};
/// 0, or 3 where there is no GPU: then says what is missing. Throws UserError.
int run(const RunArguments& arguments, const Catalogs& catalogs);

/// Where the tables of `families` go: into the folder `out`, FAMILY.csv each; or into `out` itself where it
/// ends in .csv and there is one family. Throws UserError for several families and a .csv file.
std::filesystem::path table_file(const std::filesystem::path& out, const std::vector<std::string>& families,
                                 const std::string& family);

/// Families of the probes, in order.
std::vector<std::string> families_of(const std::vector<const Probe*>& probes);

}  // namespace shardline::probe_cli
