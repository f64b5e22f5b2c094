// Keys that a reader did not ask for.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace

void Reader::no_other_keys() const {
  no_other_keys([](std::string_view) { return std::vector<std::string>{}; });
}

void Reader::no_other_keys(Instead instead) const {
  if (node_->all_allowed || !is_map()) return;
  std::optional<std::vector<std::string>> missing;
  for (const detail::YamlNode* child : node_->children) {
    if (child->read) continue;
    if (!missing) missing = missing_of(*text_, *node_);
    std::vector<std::string> details = instead(child->key);
    // That a key is missing makes a farther one likely: half of its letters.
    const std::string meant = nearest_within(child->key, *missing, child->key.size() / 2);
    if (details.empty()) details = expected_one_of(child->key, node_->asked);
    if (details.size() == 1 && !meant.empty()) details.push_back(fmt::format("did you mean {}?", meant));
    const std::string path = detail::path_of(*child);
    text_->add_fault(child->key_place, path, "unknown key " + path, std::move(details));
  }
}

}  // namespace shardline
