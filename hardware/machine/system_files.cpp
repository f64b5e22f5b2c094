// Where files of systems lie, and what they are called.
#include <fmt/format.h>

#include <algorithm>
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
    if (low.find(gpu) == std::string::npos || gpu.size() < longest) continue;
    const std::string rest = name.substr(gpu.size());
    const bool whole = rest == "-hgx" || rest == "-sxm" || rest == "-nvl72";
    if (gpu.size() > longest || whole) best = name;
    longest = gpu.size();
  }
  return best;
}

}  // namespace

std::filesystem::path system_file(const std::string& name_or_path, const std::filesystem::path& catalog_dir) {
  const std::filesystem::path path(name_or_path);
  if (path.has_parent_path() || path.extension() == ".yaml" || path.extension() == ".yml") return path;
  const std::vector<std::string> names = system_names(catalog_dir);
  if (std::find(names.begin(), names.end(), name_or_path) == names.end()) {
    std::vector<std::string> details = expected_one_of(name_or_path, names);
    const std::string near = details.size() == 1 ? with_gpu_of(name_or_path, names) : "";
    if (!near.empty()) details.push_back(fmt::format("did you mean {}?", near));
    if (name_or_path.find(',') != name_or_path.npos)
      details.emplace_back("one at a time: ask for each by itself");
    details.push_back(details.size() == 1 ? kOwnSystem : "or the path of a .yaml file");
    throw UserError({Diagnostic{{}, "unknown system " + name_or_path, std::move(details)}});
  }
  return catalog_dir / (name_or_path + ".yaml");
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
