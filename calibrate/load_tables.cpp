// Tables of measurements from files and folders, and what reading and fitting them needs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/left_out.hpp"
#include "sim/base/folder.hpp"
#include "sim/base/read_text.hpp"

namespace shardline {

bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  if (error && type != std::filesystem::file_type::not_found)
    throw UserError("cannot read " + path.string() + ": " + error.message());
  return type == std::filesystem::file_type::directory;
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> out = folder_entries(folder, error);
  if (error) throw UserError("cannot read the folder " + folder.string() + ": " + error.message());
  return out;
}

std::vector<std::filesystem::path> csv_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out = entries_of(folder);
  std::erase_if(out, [](const std::filesystem::path& p) { return p.extension() != ".csv"; });
  // A pipe is waited for, and a device has no end: who means one gives its name.
  for (const std::filesystem::path& p : out) {
    std::error_code ignored;
    const std::filesystem::file_type type = std::filesystem::status(p, ignored).type();
    using enum std::filesystem::file_type;
    if (type == fifo || type == character || type == block || type == socket)
      throw UserError(p.string() + ": not a regular file: of a folder only such are read");
  }
  return out;
}

namespace {

// Bytes of memory for each byte of a table's text, beside those of the program; peaks of g++ 12's build on
// x86-64, measured with 40,000 and 200,000 rows of GEMMs and rounded up: 9 and 74.
constexpr double kProgram = 60e6, kEvaluatedByte = 12, kFittedByte = 110;
// The same of a report on all tables at once, which prices rows, looks for equal ones and fits decode kernels
// without their longest caches: 13.1 of 150,000 rows of GEMMs, 14.6 of 120,000 of decode attention. However
// many threads fit, each kernel is fitted twice at once at most.
constexpr double kReportedByte = 18;

double bytes_of_files(const std::vector<std::string>& paths) {
  double bytes = 0;
  const auto add = [&](const std::filesystem::path& file) {
    bytes += static_cast<double>(text_size(file, kLargestTable));
  };
  for (const std::string& p : paths) {
    if (!is_folder(p)) {
      add(p);
      continue;
    }
    for (const std::filesystem::path& file : csv_files(p)) add(file);
  }
  return bytes;
}

MemoryNeed need_of(const std::vector<std::string>& paths, double each, const char* what) {
  const double bytes = bytes_of_files(paths);
  if (bytes == 0)
    return {Bytes(kProgram), fmt::format("{}, of which there are none", what), "nothing is smaller"};
  return {Bytes(kProgram + each * bytes), fmt::format("{} of {}", what, to_string(Bytes(bytes))),
          "fewer tables, or a part of their rows"};
}

}  // namespace

MemoryNeed need_of_evaluation(const std::vector<std::string>& paths) {
  return need_of(paths, kEvaluatedByte, "tables");
}

MemoryNeed need_of_fit(const std::vector<std::string>& paths) {
  return need_of(paths, kFittedByte, "a fit to tables");
}

MemoryNeed need_of_report(const std::vector<std::string>& paths) {
  return need_of(paths, kReportedByte, "a report on tables");
}

Tables load_tables(const std::vector<std::string>& paths) {
  require_memory(need_of_evaluation(paths));
  std::vector<std::pair<std::filesystem::path, bool>> files;  // with whether it is a folder's
  for (const std::string& p : paths) {
    if (!is_folder(p)) {
      files.push_back({p, false});
      continue;
    }
    const std::vector<std::filesystem::path> found = csv_files(p);
    if (found.empty()) throw UserError("no .csv files in " + p);
    for (const auto& f : found) files.push_back({f, true});
  }
  Tables out;
  std::vector<std::filesystem::path> all;
  for (const auto& [file, of_folder] : files) {
    all.push_back(file);
    const std::string name = file.filename().string();
    try {
      MeasurementTable table = load_measurements(file);
      leave_out(table, name);
      out.tables.push_back(std::move(table));
      out.names.push_back(name);
    } catch (const UnpricedTable& e) {
      if (!of_folder) throw;
      out.notes.push_back(name + ": left out, " + e.diagnostics()[0].what);
    }
  }
  if (out.tables.empty())
    throw UserError({Diagnostic{{}, "no table that a form prices in " + paths[0], out.notes}});
  out.hash = hash_of_files(all);
  return out;
}

}  // namespace shardline
