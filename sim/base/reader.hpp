// A located, closed-world view of a YAML (or JSON) text over yaml-cpp's event parser.
//
// yaml-cpp 0.7 keeps the first of duplicate keys, reads 010 as 8, gives missing nodes no position and an
// alias its anchor's; the tree here is built from parser events so that each of these is caught and located.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/units.hpp"

namespace shardline {

namespace detail {
struct YamlNode;
struct YamlText;
}  // namespace detail

/// A view of one node. All getters record a fault and return a harmless value when the input is wrong, so
/// that one run reports every fault of a file; call Document::finish() before trusting any value.
class Reader {
 public:
  bool is_map() const;
  bool is_sequence() const;
  bool is_scalar() const;
  bool is_null() const;

  /// True if this mapping has `key`. Marks nothing as read.
  bool has(std::string_view key) const;
  /// The child under `key`; a fault naming this mapping's position if it is missing. Marks it as read.
  Reader at(std::string_view key) const;
  std::optional<Reader> find(std::string_view key) const;
  /// Elements of a sequence (a fault if it is none).
  std::vector<Reader> items() const;
  /// Keys of a mapping in file order (a fault if it is none). Does not mark them as read.
  std::vector<std::string> keys() const;

  // Scalars of this node. `lowest`/`highest` are inclusive.
  std::string text() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t lowest, std::int64_t highest) const;
  double number(double lowest, double highest) const;
  std::int64_t tokens(std::int64_t lowest, std::int64_t highest) const;
  template <class Q>
  Q quantity(Q lowest, Q highest) const;
  /// Index into `names`; a fault with did-you-mean otherwise.
  std::size_t one_of(const std::vector<std::string>& names) const;

  /// Faults for every key of this mapping that no getter asked for (asked-for names are the expected ones).
  void no_other_keys() const;
  /// The same; what `instead` says of a key stands in place of the expected ones.
  using Instead = std::vector<std::string> (*)(std::string_view key);
  void no_other_keys(Instead instead) const;
  /// no_other_keys() is skipped and every key accepted (for foreign formats such as config.json).
  void allow_other_keys() const;

  /// Records a fault at this node (or at its key).
  void fault(std::string what, std::vector<std::string> details = {}) const;
  /// The same at one of the blank-separated words of this text, counted from 0; at the node where the word
  /// does not stand so in the file (a text with escapes).
  void fault_at_word(std::size_t number, std::string_view word, std::string what) const;
  Location location() const;
  std::string path() const;  // "plan.kv_parallel", "gpus[2]"

 private:
  friend class Document;
  Reader(detail::YamlText* text, const detail::YamlNode* node) : text_(text), node_(node) {}
  detail::YamlText* text_;
  const detail::YamlNode* node_;  // a missing child is a shared "absent" node that faults nothing further
};

/// One parsed text. Syntax errors throw UserError at once; all other faults are collected until finish().
class Document {
 public:
  /// `name` is what messages show. Texts above 16 MiB or nested deeper than 64 levels are refused.
  static Document parse(std::string name, std::string text);
  static Document load(const std::filesystem::path& file);
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;
  ~Document();

  /// A value from elsewhere, "device.memory.bandwidth=4 TB/s", in place of the key's own or beside the other
  /// keys: YAML on one line. Faults of it are located in this text under the name `origin`. Before anything
  /// is read. Throws UserError where it is no KEY=VALUE or the value is no YAML; a key that is none is found,
  /// as any other, by who reads.
  void set(const std::string& origin, const std::string& setting);

  /// The same of JSON (RFC 8259): what is none is refused where it ends to be, and so is a key that is there
  /// twice. Infinity, -Infinity and NaN are no numbers of JSON, but Python's json writes and reads them, and
  /// so do those who read config.json (transformers' Mamba2Config writes "time_step_limit": [0.0, Infinity]):
  /// they are read as texts, which no getter takes for a number.
  static Document parse_json(std::string name, std::string text);
  static Document load_json(const std::filesystem::path& file);

  Reader root() const;
  /// True if some getter recorded a fault.
  bool faulty() const;
  /// Throws UserError with every fault, ordered by position.
  void finish() const;

 private:
  explicit Document(std::unique_ptr<detail::YamlText> text);
  std::unique_ptr<detail::YamlText> text_;
};

}  // namespace shardline
