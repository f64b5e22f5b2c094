#include "reports/manifest.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "reports/json.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/reader.hpp"
#include "sim/base/sha256.hpp"

namespace shardline {

namespace {

constexpr const char* kSchema = "shardline.manifest/1";

// A name that leads out of the folder is none of ours.
bool inside(const std::string& name) {
  const std::filesystem::path path(name);
  return !name.empty() && path.is_relative() && path.lexically_normal() == path && *path.begin() != "..";
}

Manifest read(const std::filesystem::path& file) {
  const Document document = Document::load(file);
  const Reader root = document.root();
  root.at("schema").one_of({kSchema});
  Manifest out;
  for (const Reader& item : root.at("files").items()) {
    const std::string name = item.at("name").text();
    if (!inside(name)) item.fault("a name outside of the folder");
    const auto bytes = item.at("bytes").integer(0, std::int64_t{1} << 50);
    const auto earlier = item.find("earlier");
    out[name] = {static_cast<std::uint64_t>(bytes), item.at("sha256").text(), earlier && earlier->boolean()};
    item.no_other_keys();
  }
  root.no_other_keys();
  document.finish();
  return out;
}

}  // namespace

ManifestEntry manifest_entry(std::string_view text) { return {text.size(), sha256(text), false}; }

ManifestEntry manifest_entry_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UserError(fmt::format("cannot read {}: {}", file.string(), std::strerror(errno)));
  Sha256 hash;
  std::string piece(std::size_t{1} << 20, '\0');
  std::uint64_t bytes = 0;
  while (in) {
    check_cancelled();
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto had = static_cast<std::size_t>(in.gcount());
    hash.add(std::string_view(piece).substr(0, had));
    bytes += had;
  }
  return {bytes, hash.hex(), false};
}

std::string to_json(const Manifest& manifest) {
  std::string out = fmt::format("{{\n  \"schema\": \"{}\",\n  \"files\": [", kSchema);
  const char* separator = "\n";
  for (const auto& [name, entry] : manifest) {
    out +=
        fmt::format("{}    {{\"name\": {}, \"bytes\": {}, \"sha256\": \"{}\"{}}}", separator,
                    json_string(name), entry.bytes, entry.sha256, entry.earlier ? ", \"earlier\": true" : "");
    separator = ",\n";
  }
  return out + "\n  ]\n}\n";
}

std::optional<Manifest> manifest_of(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path file = folder / kManifest;
  if (std::filesystem::symlink_status(file, error).type() != std::filesystem::file_type::regular)
    return std::nullopt;
  try {
    return read(file);
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace shardline
