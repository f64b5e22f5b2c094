// Internal to reader.cpp: the located tree behind Reader.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory_resource>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/hashed_places.hpp"
#include "sim/base/yaml_text.hpp"

namespace shardline::detail {

constexpr std::size_t kMostFaults = 200;

enum class Kind { absent, null, scalar, sequence, map };

struct YamlNode;
/// Of one mapping, in the memory of its YamlText, which alone frees it. Files have tens of thousands of
/// mappings of two or three keys, which are compared one by one, and single ones of tens of thousands, which
/// are looked up by their hash.
class YamlKeys {
 public:
  explicit YamlKeys(std::pmr::memory_resource* memory) : nodes_(memory), places_(memory) {}

  const YamlNode* find(std::string_view key) const {
    const std::size_t place = place_of(key);
    return place == nodes_.size() ? nullptr : nodes_[place].second;
  }
  /// False: the key is there, and keeps its node.
  bool emplace(std::string_view key, const YamlNode* node) {
    if (place_of(key) < nodes_.size()) return false;
    if (nodes_.empty()) nodes_.reserve(kFew / 2);
    nodes_.emplace_back(key, node);
    if (nodes_.size() <= kFew) return true;
    for (std::size_t i = places_.empty() ? 0 : nodes_.size() - 1; i < nodes_.size(); ++i)
      places_.add(HashedPlaces::hash(nodes_[i].first), i);
    return true;
  }
  /// The node of a key that is there.
  void replace(std::string_view key, const YamlNode* node) { nodes_[place_of(key)].second = node; }

 private:
  static constexpr std::size_t kFew = 8;

  // That of the key in nodes_, or how many there are.
  std::size_t place_of(std::string_view key) const {
    const auto same = [&](const auto& node) { return node.first == key; };
    if (places_.empty())
      return static_cast<std::size_t>(std::find_if(nodes_.begin(), nodes_.end(), same) - nodes_.begin());
    const auto is_there = [&](std::size_t place) { return same(nodes_[place]); };
    return places_.find(HashedPlaces::hash(key), is_there).value_or(nodes_.size());
  }

  std::pmr::vector<std::pair<std::string_view, const YamlNode*>> nodes_;
  HashedPlaces places_;  // none where the keys are few
};

/// Children and keys are owned by YamlText; strings point into it too.
struct YamlNode {
  Kind kind = Kind::absent;
  bool quoted = false;    // also block scalars
  bool own_place = true;  // false: faults of the whole node point at its key (or else its parent)
  bool open = false;      // still being read; an alias of it would be a cycle
  mutable bool read = false;
  mutable bool all_allowed = false;
  int height = 0;         // levels below this node
  std::size_t index = 0;  // among its siblings
  Place place;
  Place key_place{-1, 0};  // line -1: not the child of a mapping
  std::string_view key;
  std::string_view scalar;
  const YamlNode* parent = nullptr;
  const YamlNode* alias = nullptr;  // the alias through which this copy is reached (itself for the alias)
  int anchor_line = 0;              // of an alias: where its value stands
  std::vector<const YamlNode*> children;
  YamlKeys* by_key = nullptr;              // null: no mapping, or an empty one
  mutable std::vector<std::string> asked;  // names a getter wanted, in order
};

struct Fault {
  Place place;
  std::string key;  // its path
  std::string what;
  std::vector<std::string> details;
};

struct YamlText {
  explicit YamlText(SourceText s) : source(std::move(s)) {}

  SourceText source;
  // Hundreds of thousands of keys are given back at once: one by one they take as long as to read them.
  std::pmr::monotonic_buffer_resource memory;
  std::deque<YamlNode> nodes;
  std::deque<std::string> strings;
  const YamlNode* root = nullptr;
  YamlNode absent;
  std::vector<Fault> faults;
  std::set<std::tuple<int, int, int, std::string>> known;  // a getter called twice faults once
  std::deque<YamlText> set;  // what was set behind the text, whose nodes are part of this tree
  std::size_t unlisted = 0;

  /// The keys of `map`, which may be none so far.
  YamlKeys& keys(YamlNode& map) {
    if (map.by_key == nullptr)
      map.by_key = std::pmr::polymorphic_allocator<>(&memory).new_object<YamlKeys>(&memory);
    return *map.by_key;
  }

  /// As many faults as are told: more are counted.
  bool listed_all() const { return faults.size() >= kMostFaults; }

  void add_fault(Place place, std::string key, std::string what, std::vector<std::string> details) {
    if (!known.emplace(place.source, place.line, place.column, what).second) return;
    if (!listed_all()) {
      faults.push_back({place, std::move(key), std::move(what), std::move(details)});
    } else {
      // Hundreds of thousands take a second.
      if (++unlisted % 256 == 0) check_cancelled();
      known.erase({place.source, place.line, place.column, what});
    }
  }

  Location location(Place place, std::string key) const {
    const auto of = static_cast<std::size_t>(place.source);
    Location out = (of == 0 ? source : set[of - 1].source).location(place);
    out.key = std::move(key);
    return out;
  }
};

inline Place place_of(const YamlNode& node) {
  const YamlNode* n = &node;
  while (!n->own_place && n->key_place.line < 0 && n->parent != nullptr) n = n->parent;
  return n->own_place || n->key_place.line < 0 ? n->place : n->key_place;
}

/// Of a key of the mapping at `path`.
inline std::string below(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

inline std::string path_of(const YamlNode& node) {
  std::vector<const YamlNode*> chain;
  for (const YamlNode* n = &node; n->parent != nullptr; n = n->parent) chain.push_back(n);
  std::string out;
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    if ((*it)->key_place.line < 0) {
      out += fmt::format("[{}]", (*it)->index);
    } else {
      out = below(out, shortened((*it)->key));
    }
  }
  return out;
}

}  // namespace shardline::detail
