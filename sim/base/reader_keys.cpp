// Keys that a reader did not ask for.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/nearest.hpp"
#include "sim/base/reader.hpp"
#include "sim/base/yaml_tree.hpp"

namespace shardline {

namespace {

// Keys of the mapping that were required and are not there.
std::vector<std::string> missing_of(const detail::YamlText& text, const detail::YamlNode& map) {
  std::vector<std::string> out;
  if (text.faults.empty()) return out;
  const std::string path = detail::path_of(map);
  for (const std::string& key : map.asked) {
    const std::string whole = detail::below(path, key);
    const bool missing = std::any_of(text.faults.begin(), text.faults.end(), [&](const detail::Fault& f) {
      return f.key == whole && f.what.starts_with("missing key ");
    });
    if (missing) out.push_back(key);
  }
  return out;
}

// What to write in place of an unknown key of a mapping that was asked for others.
std::vector<std::string> meant_by(std::string_view key, const std::vector<std::string>& missing,
                                  const std::vector<std::string>& asked, const Reader::Instead& instead) {
  std::vector<std::string> details = instead(key);
  // That a key is missing makes a farther one likely: half of its letters.
  const std::string meant = nearest_within(key, missing, key.size() / 2);
  if (details.empty()) details = expected_one_of(key, asked);
  if (details.size() == 1 && !meant.empty()) details.push_back(fmt::format("did you mean {}?", meant));
  return details;
}

}  // namespace

void Reader::no_other_keys() const {
  no_other_keys([](std::string_view) { return std::vector<std::string>{}; });
}

void Reader::no_other_keys(Instead instead) const {
  if (node_->all_allowed || !is_map()) return;
  std::optional<std::vector<std::string>> missing;
  CancelCheck check;
  for (const detail::YamlNode* child : node_->children) {
    check();
    if (child->read) continue;
    if (!missing) missing = missing_of(*text_, *node_);
    const std::string path = detail::path_of(*child);
    // Of a million unknown keys only some are told: what was meant takes longer to find than to read them.
    std::vector<std::string> details;
    if (!text_->listed_all()) details = meant_by(child->key, *missing, node_->asked, instead);
    text_->add_fault(child->key_place, path, "unknown key " + path, std::move(details));
  }
}

}  // namespace shardline
