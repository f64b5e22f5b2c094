#include "reports/output_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reports/atomic_file.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/file_name.hpp"

namespace shardline {

namespace {

constexpr std::size_t kMostShown = 8;  // files of an earlier run; the manifest has all

// gnuplot's own messages end in newlines.
std::string without_end(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

// For whom may read it.
void let_run(const std::filesystem::path& file) {
  using std::filesystem::perms;
  const perms read = std::filesystem::status(file).permissions();
  perms run = perms::none;
  for (const auto& [may_read, may_run] :
       {std::pair{perms::owner_read, perms::owner_exec}, std::pair{perms::group_read, perms::group_exec},
        std::pair{perms::others_read, perms::others_exec}}) {
    if ((read & may_read) != perms::none) run |= may_run;
  }
  std::error_code error;  // where no file can be made to run, `bash FILE` still does
  std::filesystem::permissions(file, run, std::filesystem::perm_options::add, error);
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

OutputFolder::OutputFolder(std::filesystem::path folder) : folder_(std::move(folder)), stage_(folder_) {}

void OutputFolder::write(const std::string& name, std::string_view text, bool executable) {
  check_cancelled();  // a file of megabytes takes tens of milliseconds to make, to hash and to write
  const std::filesystem::path path(name);
  for (const auto& part : path) {
    if (const auto fault = not_a_file_name(part.string()))
      throw UserError(fmt::format("a file of {} cannot have a name that {}", folder_.string(), *fault));
  }
  refuse_to_lose(folder_ / path, "choose another folder");
  write_staged_file(stage_.path(), folder_, path, text);
  if (executable) let_run(stage_.path() / path);
  written_[name] = manifest_entry(text);
}

void OutputFolder::draw(const Plot& plot, const std::string& stem) {
  for (const char* kind : {"svg", "png"}) add(render(plot, kind), stem + "." + kind);
}

void OutputFolder::add(const Rendered& picture, const std::string& name) {
  if (picture.error.empty()) {
    write(name, picture.bytes);
  } else {
    leave_out_file(name, without_end(picture.error));
  }
}

void OutputFolder::leave_out(const std::string& stem, const std::string& reason) {
  leave_out_file(stem + ".svg", reason);
  leave_out_file(stem + ".png", reason);
}

void OutputFolder::leave_out_file(const std::string& name, const std::string& reason) {
  const auto same = [&](const auto& entry) { return entry.first == reason; };
  auto at = std::find_if(left_out_.begin(), left_out_.end(), same);
  if (at == left_out_.end()) at = left_out_.insert(at, {reason, {}});
  at->second.push_back(name);
}

std::vector<std::string> OutputFolder::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : written_) {
    if (name.find('/') == std::string::npos) out.push_back(name);
  }
  return out;
}

std::size_t OutputFolder::files(const std::string& below) const {
  return static_cast<std::size_t>(std::count_if(written_.begin(), written_.end(), [&](const auto& entry) {
    return entry.first.starts_with(below + "/");
  }));
}

std::string OutputFolder::publish(std::string_view indent) {
  std::set<std::string> left_out;
  for (const auto& [reason, names] : left_out_) left_out.insert(names.begin(), names.end());
  std::string out;
  if (!written_.empty()) {
    const StagedFolder::Published published = stage_.publish(written_, left_out);
    std::vector<std::string> listed = names();
    listed.emplace_back(kManifest);
    out +=
        fmt::format("{}wrote {}: {}\n", indent, folder_.string(), fmt::join(sorted(std::move(listed)), ", "));
    if (const std::vector<std::string>& earlier = published.earlier; !earlier.empty()) {
      const auto shown = static_cast<std::ptrdiff_t>(std::min(earlier.size(), kMostShown));
      const std::size_t more = earlier.size() - static_cast<std::size_t>(shown);
      out += fmt::format("{}also there, of an earlier run: {}{}\n", indent,
                         fmt::join(earlier.begin(), earlier.begin() + shown, ", "),
                         more > 0 ? fmt::format(" and {} more", more) : "");
    }
    if (!published.kept.empty()) out += fmt::format("{}warning: {}\n", indent, published.kept);
  }
  for (const auto& [reason, names] : left_out_)
    out += fmt::format("{}warning: no {}: {}\n", indent, fmt::join(sorted(names), ", "), reason);
  return out;
}

}  // namespace shardline
