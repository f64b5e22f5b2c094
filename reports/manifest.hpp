// The list of the files of an output folder, with their hashes: what belongs to it, and whether it is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace shardline {

inline constexpr const char* kManifest = "manifest.json";

struct ManifestEntry {
  std::uint64_t bytes = 0;
  std::string sha256;
  bool earlier = false;  // written by a run before the last one, which may have answered another question
};

/// By name within the folder, "launch/1-vllm.sh"; the manifest itself is not in it.
using Manifest = std::map<std::string, ManifestEntry>;

ManifestEntry manifest_entry(std::string_view text);
/// Of a file that is there. Throws UserError where it cannot be read.
ManifestEntry manifest_entry_of(const std::filesystem::path& file);
std::string to_json(const Manifest& manifest);
/// Of a folder. Nothing where it has no manifest, or one that is not ours: then no file of it is known.
std::optional<Manifest> manifest_of(const std::filesystem::path& folder);

}  // namespace shardline
