// Internal to reader.cpp: the located tree behind Reader.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory_resource>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/base/error.hpp"
#include "sim/base/yaml_text.hpp"

namespace shardline::detail {

constexpr std::size_t kMostFaults = 200;

enum class Kind { absent, null, scalar, sequence, map };

struct YamlNode;
/// Of one mapping, in the memory of its YamlText, which alone frees it. Files have tens of thousands of
/// mappings of two or three keys, which are compared one by one, and single ones of tens of thousands, which
/// are looked up in a table of places.
class YamlKeys {
 public:
  explicit YamlKeys(std::pmr::memory_resource* memory) : nodes_(memory), slots_(memory) {}

  const YamlNode* find(std::string_view key) const {
    const std::size_t place = place_of(key, slots_.empty() ? 0 : hash(key));
    return place == nodes_.size() ? nullptr : nodes_[place].second;
  }
  /// False: the key is there, and keeps its node.
  bool emplace(std::string_view key, const YamlNode* node) {
    const std::uint32_t own = slots_.empty() ? 0 : hash(key);
    if (place_of(key, own) < nodes_.size()) return false;
    if (nodes_.empty()) nodes_.reserve(kFew / 2);
    nodes_.emplace_back(key, node);
    if (nodes_.size() > kFew && 2 * nodes_.size() > slots_.size()) {
      spread();
    } else if (!slots_.empty()) {
      put(own, nodes_.size());
    }
    return true;
  }
  /// The node of a key that is there.
  void replace(std::string_view key, const YamlNode* node) {
    nodes_[place_of(key, slots_.empty() ? 0 : hash(key))].second = node;
  }

 private:
  static constexpr std::size_t kFew = 8;
  struct Slot {
    std::uint32_t hash = 0, place = 0;  // place + 1; 0: nothing is here
  };

  static std::uint32_t hash(std::string_view key) {
    return static_cast<std::uint32_t>(std::hash<std::string_view>{}(key));
  }
  // That of the key in nodes_, or how many there are.
  std::size_t place_of(std::string_view key, std::uint32_t own) const {
    if (slots_.empty()) {
      const auto at =
          std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& n) { return n.first == key; });
      return static_cast<std::size_t>(at - nodes_.begin());
    }
    for (std::size_t at = own;; ++at) {
      const Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.place == 0) return nodes_.size();
      if (slot.hash == own && nodes_[slot.place - 1].first == key) return slot.place - 1;
    }
  }
  void put(std::uint32_t own, std::size_t place) {
    std::size_t at = own;
    while (slots_[at & (slots_.size() - 1)].place != 0) ++at;
    slots_[at & (slots_.size() - 1)] = {own, static_cast<std::uint32_t>(place)};
  }
  // Over a table that stays less than half full.
  void spread() {
    const std::size_t count = std::bit_ceil(4 * nodes_.size());
    if (slots_.empty()) {
      slots_.resize(count);
      for (std::size_t i = 0; i < nodes_.size(); ++i) put(hash(nodes_[i].first), i + 1);
      return;
    }
    const std::pmr::vector<Slot> before(slots_);
    slots_.assign(count, {});
    for (const Slot& slot : before)
      if (slot.place != 0) put(slot.hash, slot.place);
    put(hash(nodes_.back().first), nodes_.size());
  }

  std::pmr::vector<std::pair<std::string_view, const YamlNode*>> nodes_;
  std::pmr::vector<Slot> slots_;  // a power of two; none where the keys are few
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
      ++unlisted;
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
