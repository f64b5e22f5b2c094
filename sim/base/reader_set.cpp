// Values from a command line in a document: nodes of a text of their own, hung into the tree.
#include <algorithm>

#include <fmt/format.h>

#include "sim/base/reader.hpp"
#include "sim/base/yaml_builder.hpp"
#include "sim/base/yaml_text.hpp"
#include "sim/base/yaml_tree.hpp"

namespace shardline {
namespace {

using detail::Kind;
using detail::Place;
using detail::YamlNode;
using detail::YamlText;

[[noreturn]] void refuse(const std::string& origin, const std::string& setting, std::size_t column,
                         std::string what) {
  // A text with control characters is refused as such.
  const detail::SourceText text(origin, setting);
  Location where = text.location({0, static_cast<int>(column)});
  where.key = setting.substr(0, std::min(setting.find('='), setting.size()));
  throw UserError({Diagnostic{std::move(where),
                              std::move(what),
                              {"expected KEY=VALUE, for instance device.memory.bandwidth=\"4 TB/s\""}}});
}

// Where the value begins. Keys have no signs that a value could begin with.
std::size_t value_at(const std::string& origin, const std::string& setting) {
  if (const std::size_t end = setting.find('\n'); end != std::string::npos)
    refuse(origin, setting, end, "a setting of several lines");
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos) refuse(origin, setting, 0, "a setting without =");
  const auto part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  const auto odd =
      std::find_if_not(setting.begin(), setting.begin() + static_cast<std::ptrdiff_t>(equals), part);
  const auto at = static_cast<std::size_t>(odd - setting.begin());
  if (at < equals) refuse(origin, setting, at, "a key of a setting is names between dots");
  const std::string key = "." + setting.substr(0, equals) + ".";
  if (const std::size_t empty = key.find(".."); empty != std::string::npos)
    refuse(origin, setting, empty, "a key of a setting has an empty name");
  if (setting.find_first_not_of(" \t", equals + 1) == std::string::npos)
    refuse(origin, setting, equals, "a setting without a value");
  return equals + 1;
}

// Nodes are handed out as views; the text that owns them may change them.
YamlNode* owned(YamlText& text, const YamlNode* node) {
  const auto in = [&](std::deque<YamlNode>& nodes) -> YamlNode* {
    const auto at = std::find_if(nodes.begin(), nodes.end(), [&](const YamlNode& n) { return &n == node; });
    return at == nodes.end() ? nullptr : &*at;
  };
  if (YamlNode* own = in(text.nodes)) return own;
  for (YamlText& other : text.set) {
    if (YamlNode* own = in(other.nodes)) return own;
  }
  SL_CHECK(false, "a node belongs to its document");
}

YamlNode* child_of(YamlText& text, const YamlNode& map, std::string_view key) {
  if (!map.by_key) return nullptr;
  const YamlNode* const child = map.by_key->find(key);
  return child == nullptr ? nullptr : owned(text, child);
}

// In place of the child of that key, or behind the others.
void hang(YamlText& text, YamlNode& map, YamlNode& node, std::string_view key, Place place) {
  node.key = key;
  node.key_place = place;
  node.parent = &map;
  detail::YamlKeys& keys = text.keys(map);
  const YamlNode* const old = keys.find(key);
  if (old == nullptr) {
    node.index = map.children.size();
    map.children.push_back(&node);
    keys.emplace(key, &node);
  } else {
    node.index = old->index;
    *std::find(map.children.begin(), map.children.end(), old) = &node;
    keys.replace(key, &node);
  }
}

// The value, with places in the whole setting.
YamlText& read_value(YamlText& document, const std::string& origin, const std::string& setting,
                     std::size_t at, int source) {
  YamlText& text = document.set.emplace_back(detail::SourceText(origin, setting));
  build_tree(text, std::string(at, ' ') + text.source.text().substr(at));
  for (YamlNode& n : text.nodes) n.place.source = n.key_place.source = source;
  for (detail::Fault& f : text.faults) {
    f.place.source = source;
    const std::string path = setting.substr(0, at - 1);  // the value's own keys are below it
    document.add_fault(f.place, f.key.starts_with('[') ? path + f.key : detail::below(path, f.key), f.what,
                       f.details);
  }
  return text;
}

}  // namespace

void Document::set(const std::string& origin, const std::string& setting) {
  const std::size_t at = value_at(origin, setting);
  const int source = static_cast<int>(text_->set.size()) + 1;
  YamlText& text = read_value(*text_, origin, setting, at, source);
  const std::string_view key = text.strings.emplace_back(setting.substr(0, at - 1));
  const auto given = [&](const YamlText& other) {
    return &other != &text && other.source.text().substr(0, at) == std::string(key) + "=";
  };
  if (std::any_of(text_->set.begin(), text_->set.end(), given))
    text_->add_fault({0, 0, source}, std::string(key), fmt::format("{} is set twice", key), {});
  YamlNode* map = owned(*text_, text_->root);
  for (std::size_t begin = 0;;) {
    if (map->kind != Kind::map) {
      text_->add_fault(
          {0, 0, source}, std::string(key),
          fmt::format("{} is no mapping that has a key {}", key.substr(0, begin - 1), key.substr(begin)),
          {fmt::format("set {} as a whole", key.substr(0, begin - 1))});
      return;
    }
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const std::string_view name = key.substr(begin, end - begin);
    const Place place{0, static_cast<int>(begin), source};
    if (end == key.size()) return hang(*text_, *map, *owned(*text_, text.root), name, place);
    YamlNode* next = child_of(*text_, *map, name);
    if (next == nullptr) {
      next = &text.nodes.emplace_back();
      next->kind = Kind::map;
      next->own_place = false;
      next->place = place;
      hang(*text_, *map, *next, name, place);
    }
    map = next;
    begin = end + 1;
  }
}

}  // namespace shardline
