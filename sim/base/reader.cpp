#include "sim/base/reader.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/base/harmless.hpp"
#include "sim/base/json_fault.hpp"
#include "sim/base/json_tree.hpp"
#include "sim/base/read_text.hpp"
#include "sim/base/yaml_builder.hpp"
#include "sim/base/yaml_text.hpp"
#include "sim/base/yaml_tree.hpp"

namespace shardline {
namespace {

using detail::Kind;
using detail::YamlNode;
using detail::YamlText;

std::string kind_name(const YamlNode& node) {
  switch (node.kind) {
    case Kind::map:
      return "a mapping";
    case Kind::sequence:
      return "a sequence";
    case Kind::scalar:
      return "a text";
    case Kind::null:
    case Kind::absent:
      break;
  }
  return "nothing";
}

std::string found(const YamlNode& node) {
  if (node.kind != Kind::scalar) return kind_name(node);
  const auto end = std::min(node.scalar.find('\n'), node.scalar.size());
  const auto shown = detail::shortened(node.scalar.substr(0, end)) + (end < node.scalar.size() ? "..." : "");
  return node.quoted ? fmt::format("the quoted text \"{}\"", shown) : shown;
}

bool digits_only(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Reads the whole of `text`; errc::invalid_argument if something is left over.
template <class T>
std::errc read_all(std::string_view text, T& value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc{} && end != text.data() + text.size()) return std::errc::invalid_argument;
  return code;
}

/// What makes `text` a surprise to people who meant a number, or empty.
std::string number_hint(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.starts_with('+')) return "write it without the +";
  if (text.starts_with("0x") || text.starts_with("0X")) return "hexadecimal numbers are not accepted";
  if (text.starts_with("0o")) return "octal numbers are not accepted";
  if (text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9')
    return "a leading zero means octal to some readers: write it without";
  if (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    const bool plain = text.find_first_not_of("0123456789_,") == text.npos;
    if (plain && text.find_first_of("_,") != text.npos) return "write it without separators";
  }
  return {};
}

std::string range(const std::string& lowest, const std::string& highest) {
  if (lowest.empty() && highest.empty()) return "any value";
  if (lowest.empty()) return "at most " + highest;
  return highest.empty() ? "at least " + lowest : lowest + " to " + highest;
}

std::string bound(std::int64_t value, bool low) {
  using Limits = std::numeric_limits<std::int64_t>;
  return value == (low ? Limits::min() : Limits::max()) ? "" : fmt::format("{}", value);
}

constexpr double kUnbounded = 1e300;  // bounds beyond it are no bounds

std::string bound(double value, bool low) {
  return (low ? value < -kUnbounded : value > kUnbounded) ? "" : fmt::format("{}", value);
}

template <class T>
T harmless(T lowest, T highest) {
  return bound(lowest, true).empty() ? std::min(T{}, highest) : lowest;
}

std::string prefix(const YamlNode& node) {
  const std::string path = detail::path_of(node);
  return path.empty() ? "" : path + ": ";
}

// `key` is that of the node, or of what it lacks.
void add_fault(YamlText& text, const YamlNode& node, std::string key, std::string what,
               std::vector<std::string> details) {
  if (node.kind == Kind::absent) return;
  if (node.alias == &node) {
    details.push_back(fmt::format("the alias stands for the value at line {}", node.anchor_line));
  } else if (node.alias != nullptr) {
    details.push_back(fmt::format("used through the alias at line {}", node.alias->place.line + 1));
  }
  text.add_fault(detail::place_of(node), std::move(key), std::move(what), std::move(details));
}

void add_fault(YamlText& text, const YamlNode& node, std::string what, std::vector<std::string> details) {
  add_fault(text, node, detail::path_of(node), std::move(what), std::move(details));
}

void expected(YamlText& text, const YamlNode& node, std::string_view wanted,
              std::vector<std::string> details = {}) {
  add_fault(text, node, fmt::format("{}expected {}, found {}", prefix(node), wanted, found(node)),
            std::move(details));
}

bool require(YamlText& text, const YamlNode& node, Kind kind, std::string_view wanted) {
  if (node.kind == kind) return true;
  if (node.kind != Kind::absent) expected(text, node, wanted);
  return false;
}

/// The scalar of a plain (unquoted) number, or nothing after a fault.
std::optional<std::string_view> plain_number(YamlText& text, const YamlNode& node, std::string_view wanted) {
  if (!require(text, node, Kind::scalar, wanted)) return std::nullopt;
  if (!node.quoted) return node.scalar;
  double ignored = 0;
  const bool number = read_all(node.scalar, ignored) == std::errc{};
  expected(text, node, wanted,
           number ? std::vector<std::string>{"remove the quotes"} : std::vector<std::string>{});
  return std::nullopt;
}

/// A value of a command line, where "4K" is a count.
bool of_setting(const YamlNode& node) { return node.place.source > 0; }

void note_asked(const YamlNode& map, std::string_view key, const YamlNode* child) {
  if (child != nullptr) {
    if (std::exchange(child->read, true)) return;
  } else if (std::find(map.asked.begin(), map.asked.end(), key) != map.asked.end()) {
    return;
  }
  map.asked.emplace_back(key);
}

const YamlNode* child_of(const YamlNode& map, std::string_view key) {
  if (map.kind != Kind::map || !map.by_key) return nullptr;
  return map.by_key->find(key);
}

}  // namespace

bool Reader::is_map() const { return node_->kind == Kind::map; }
bool Reader::is_sequence() const { return node_->kind == Kind::sequence; }
bool Reader::is_scalar() const { return node_->kind == Kind::scalar; }
bool Reader::is_null() const { return node_->kind == Kind::null; }

bool Reader::has(std::string_view key) const { return child_of(*node_, key) != nullptr; }

std::optional<Reader> Reader::find(std::string_view key) const {
  if (!require(*text_, *node_, Kind::map, "a mapping")) return std::nullopt;
  const YamlNode* child = child_of(*node_, key);
  note_asked(*node_, key, child);
  if (child == nullptr) return std::nullopt;
  return Reader(text_, child);
}

Reader Reader::at(std::string_view key) const {
  if (const std::optional<Reader> child = find(key)) return *child;
  if (is_map()) {
    const std::string parent = path();
    add_fault(*text_, *node_, detail::below(parent, key),
              fmt::format("missing key {}{}", key, parent.empty() ? "" : " in " + parent), {});
  }
  return Reader(text_, &text_->absent);
}

std::vector<Reader> Reader::items() const {
  std::vector<Reader> out;
  if (node_->kind == Kind::scalar && !node_->quoted && !node_->scalar.empty()) {
    expected(*text_, *node_, "a sequence", {fmt::format("write [{}]", node_->scalar)});
    return out;
  }
  if (!require(*text_, *node_, Kind::sequence, "a sequence")) return out;
  for (const YamlNode* child : node_->children) out.push_back(Reader(text_, child));
  return out;
}

std::vector<std::string> Reader::keys() const {
  std::vector<std::string> out;
  if (!require(*text_, *node_, Kind::map, "a mapping")) return out;
  for (const YamlNode* child : node_->children) out.emplace_back(child->key);
  return out;
}

std::string Reader::text() const {
  if (!require(*text_, *node_, Kind::scalar, "a text")) return {};
  if (is_harmful(node_->scalar))
    fault(path() + ": control characters and marks of text direction are not accepted");
  return std::string(node_->scalar);
}

bool Reader::boolean() const {
  constexpr std::string_view kWanted = "true or false";
  if (!require(*text_, *node_, Kind::scalar, kWanted)) return false;
  const std::string_view value = node_->scalar;
  if (!node_->quoted && (value == "true" || value == "false")) return value == "true";
  std::string lower(value.substr(0, 8));
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  std::vector<std::string> hint;
  for (const std::string_view yes : {"yes", "on", "y", "true"})
    if (lower == yes) hint = {node_->quoted && value == "true" ? "remove the quotes" : "write true"};
  for (const std::string_view no : {"no", "off", "n", "false"})
    if (lower == no) hint = {node_->quoted && value == "false" ? "remove the quotes" : "write false"};
  expected(*text_, *node_, kWanted, std::move(hint));
  return false;
}

std::int64_t Reader::integer(std::int64_t lowest, std::int64_t highest) const {
  const std::int64_t fallback = harmless(lowest, highest);
  const auto value = plain_number(*text_, *node_, "an integer");
  if (!value) return fallback;
  const std::string hint = number_hint(*value);
  std::int64_t number = 0;
  std::errc code = read_all(*value, number);
  bool grammar = digits_only(value->starts_with('-') ? value->substr(1) : *value);
  if (const auto count = grammar || !of_setting(*node_) ? std::nullopt : count_of(*value); count) {
    number = *count, code = std::errc{}, grammar = true;
  }
  if (!grammar || !hint.empty()) {
    expected(*text_, *node_, "an integer", hint.empty() ? std::vector<std::string>{} : std::vector{hint});
    return fallback;
  }
  if (code == std::errc{} && number >= lowest && number <= highest) return number;
  const bool unbounded = bound(lowest, true).empty() && bound(highest, false).empty();
  expected(*text_, *node_,
           unbounded ? "an integer of 64 bits" : range(bound(lowest, true), bound(highest, false)));
  return fallback;
}

double Reader::number(double lowest, double highest) const {
  const double fallback = harmless(lowest, highest);
  const auto value = plain_number(*text_, *node_, "a number");
  if (!value) return fallback;
  const std::string hint = number_hint(*value);
  double number = 0;
  const std::errc code = read_all(*value, number);
  if (code == std::errc::invalid_argument || !hint.empty()) {
    expected(*text_, *node_, "a number", hint.empty() ? std::vector<std::string>{} : std::vector{hint});
    return fallback;
  }
  if (code != std::errc{} || !std::isfinite(number)) {
    expected(*text_, *node_, "a finite number in the range of a double");
    return fallback;
  }
  if (number >= lowest && number <= highest) return number;
  expected(*text_, *node_, range(bound(lowest, true), bound(highest, false)));
  return fallback;
}

std::int64_t Reader::tokens(std::int64_t lowest, std::int64_t highest) const {
  const std::int64_t fallback = harmless(lowest, highest);
  if (!require(*text_, *node_, Kind::scalar, "a count of tokens such as \"128Ki tokens\"")) return fallback;
  // On a command line the unit can be nothing else.
  const auto bare = of_setting(*node_) ? count_of(node_->scalar) : std::nullopt;
  const auto result = bare ? std::variant<long long, std::string>(*bare) : parse_tokens(node_->scalar);
  if (const auto* error = std::get_if<std::string>(&result)) {
    fault(prefix(*node_) + *error);
    return fallback;
  }
  const long long count = std::get<long long>(result);
  if (count >= lowest && count <= highest) return count;
  expected(*text_, *node_, range(bound(lowest, true), bound(highest, false)) + " tokens");
  return fallback;
}

template <class Q>
Q Reader::quantity(Q lowest, Q highest) const {
  const Q fallback(harmless(lowest.value, highest.value));
  if (node_->kind == Kind::absent) return fallback;
  // A value that is no scalar gets the dimension's own words, with what was found instead of "nothing".
  const auto result = parse_quantity<Q>(is_scalar() ? node_->scalar : std::string_view());
  if (const auto* error = std::get_if<std::string>(&result)) {
    const std::string_view wanted = std::string_view(*error).substr(0, error->rfind(", found "));
    fault(prefix(*node_) + (is_scalar() ? *error : fmt::format("{}, found {}", wanted, kind_name(*node_))));
    return fallback;
  }
  const Q value = std::get<Q>(result);
  if (value >= lowest && value <= highest) return value;
  const auto shown = [](Q limit, bool low) {
    return bound(limit.value, low).empty() ? std::string() : to_string(limit);
  };
  expected(*text_, *node_, range(shown(lowest, true), shown(highest, false)));
  return fallback;
}

template Seconds Reader::quantity(Seconds, Seconds) const;
template Bytes Reader::quantity(Bytes, Bytes) const;
template BytesPerSecond Reader::quantity(BytesPerSecond, BytesPerSecond) const;
template Flops Reader::quantity(Flops, Flops) const;
template FlopsPerSecond Reader::quantity(FlopsPerSecond, FlopsPerSecond) const;

std::size_t Reader::one_of(const std::vector<std::string>& names) const {
  if (!require(*text_, *node_, Kind::scalar, "a name")) return 0;
  const auto it = std::find(names.begin(), names.end(), node_->scalar);
  if (it != names.end()) return static_cast<std::size_t>(it - names.begin());
  fault(fmt::format("{}unknown name {}", prefix(*node_), detail::shortened(node_->scalar)),
        expected_one_of(node_->scalar, names));
  return 0;
}

void Reader::allow_other_keys() const { node_->all_allowed = true; }

void Reader::fault(std::string what, std::vector<std::string> details) const {
  add_fault(*text_, *node_, std::move(what), std::move(details));
}

Location Reader::location() const {
  if (node_->kind == Kind::absent) {
    Location nowhere;
    nowhere.file = text_->source.name();
    return nowhere;
  }
  return text_->location(detail::place_of(*node_), path());
}

std::string Reader::path() const { return detail::path_of(*node_); }

Document::Document(std::unique_ptr<YamlText> text) : text_(std::move(text)) {}
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;
Document::~Document() = default;

Document Document::parse(std::string name, std::string text) {
  auto tree = std::make_unique<YamlText>(detail::SourceText(std::move(name), text));
  const bool json = tree->source.flow() && detail::JsonBuilder(*tree, detail::TabsInStrings::allowed).build();
  if (json || detail::build_folded(*tree)) return Document(std::move(tree));
  tree = std::make_unique<YamlText>(std::move(tree->source));  // without what was built of it
  detail::build_tree(*tree, tree->source.text());
  return Document(std::move(tree));
}

Document Document::load(const std::filesystem::path& file) {
  return parse(file.string(), read_text(file, kLargestDocument));
}

Document Document::parse_json(std::string name, std::string text) {
  auto tree = std::make_unique<YamlText>(detail::SourceText(std::move(name), text));
  if (!detail::JsonBuilder(*tree, detail::TabsInStrings::refused).build()) {
    if (const auto fault = detail::fault_of_json(tree->source.text()))
      throw UserError(
          {Diagnostic{tree->source.location(tree->source.place(fault->offset)), fault->what, {}}});
    detail::build_tree(*tree, tree->source.text());  // what is JSON but refused: keys that are there twice
  }
  return Document(std::move(tree));
}

Document Document::load_json(const std::filesystem::path& file) {
  return parse_json(file.string(), read_text(file, kLargestDocument));
}

Reader Document::root() const { return Reader(text_.get(), text_->root); }

bool Document::faulty() const { return !text_->faults.empty(); }

void Document::finish() const {
  if (!faulty()) return;
  std::vector<const detail::Fault*> order;
  for (const detail::Fault& f : text_->faults) order.push_back(&f);
  std::stable_sort(order.begin(), order.end(), [](const detail::Fault* a, const detail::Fault* b) {
    const auto at = [](const detail::Place& p) { return std::tuple(p.source, p.line, p.column); };
    return at(a->place) < at(b->place);
  });
  std::vector<Diagnostic> out;
  for (const detail::Fault* f : order)
    out.push_back({text_->location(f->place, f->key), f->what, f->details});
  if (text_->unlisted > 0) {
    Diagnostic more;
    more.where.file = text_->source.name();
    more.what = fmt::format("{} more faults", text_->unlisted);
    out.push_back(std::move(more));
  }
  throw UserError(std::move(out));
}

}  // namespace shardline
