// Where files of systems lie, and what they are called.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "hardware/machine/system.hpp"
#include "sim/base/error.hpp"
#include "sim/base/folder.hpp"

namespace shardline {

namespace {

// How to ask for GPUs that the catalogue has not.
constexpr const char* kOwnSystem =
    "GPUs that are none of these need a .yaml file with their figures: a copy of one of hardware/catalog "
    "(below "
    "the data folder that shardline --version names) with another name, device and fabric, and without power "
    "and calibration; then its path in place of the name";

// "h100-hgx" of "8xH100" and "DGX-H100": the system whose GPU the name has in it, of several of one GPU
// that of a vendor's node.
std::string with_gpu_of(const std::string& found, const std::vector<std::string>& names) {
  std::string low = found, best;
  for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::size_t longest = 0;
  for (const std::string& name : names) {
    const std::string gpu = name.substr(0, name.find('-'));
    // A Grace Blackwell's GPU is that of its letters behind the G: "B300" of gb300.
    const bool of_superchip = gpu.starts_with("gb") && low == gpu.substr(1);
    if ((low.find(gpu) == std::string::npos && !of_superchip) || gpu.size() < longest) continue;
    const std::string rest = name.substr(gpu.size());
    const bool whole = rest == "-hgx" || rest == "-sxm" || rest == "-nvl72";
    if (gpu.size() > longest || whole) best = name;
    longest = gpu.size();
  }
  return best;
}

// GPUs that are sold and of which no system of the catalogue is, though letters of its name may be near: H20
// is no H200. By name and size of their model alone, whatever a vendor writes around it.
bool is_other_gpu(const std::string& found) {
  constexpr std::array kOthers{"h20",  "h800", "b100", "l4",  "l20", "l40",
                               "l40s", "a10",  "a30",  "a40", "v100"};
  std::string word;
  for (const char c : found) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) break;  // "H20-SXM", "H20_96GB"
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return std::find(kOthers.begin(), kOthers.end(), word) != kOthers.end();
}

}  // namespace

std::filesystem::path system_file(const std::string& name_or_path, const std::filesystem::path& catalog_dir) {
  const std::filesystem::path path(name_or_path);
  std::error_code error;
  if (path.has_parent_path()) return path;
  const std::vector<std::string> names = system_names(catalog_dir);
  if (path.extension() == ".yaml" || path.extension() == ".yml") {
    const auto shipped = name_in_any_case(path.stem().string(), names);
    if (shipped && std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found)
      throw UserError({Diagnostic{{},
                                  fmt::format("cannot read {}: no such file", name_or_path),
                                  {fmt::format("did you mean {}, a system of the catalogue?", *shipped)}}});
    return path;
  }
  const auto named = name_in_any_case(name_or_path, names);
  if (!named) {
    std::vector<std::string> details = expected_one_of(name_or_path, names);
    if (is_other_gpu(name_or_path)) details.resize(1);  // the nearest name is of another GPU
    const std::string near = details.size() == 1 ? with_gpu_of(name_or_path, names) : "";
    if (!near.empty()) details.push_back(fmt::format("did you mean {}?", near));
    if (name_or_path.find(',') != name_or_path.npos)
      details.emplace_back("one at a time: ask for each by itself");
    details.push_back(details.size() == 1 ? kOwnSystem : "or the path of a .yaml file");
    throw UserError({Diagnostic{{}, "unknown system " + name_or_path, std::move(details)}});
  }
  return catalog_dir / (*named + ".yaml");
}

std::vector<std::string> system_names(const std::filesystem::path& catalog_dir) {
  std::vector<std::string> names;
  std::error_code error;
  for (const std::filesystem::path& entry : folder_entries(catalog_dir, error)) {
    if (entry.extension() == ".yaml") names.push_back(entry.stem().string());
  }
  if (error) throw UserError("cannot read the folder " + catalog_dir.string() + ": " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace shardline
