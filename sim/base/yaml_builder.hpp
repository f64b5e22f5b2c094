// Internal to reader.cpp: builds the located tree from the events of yaml-cpp's parser.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <istream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "sim/base/asking_text.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"
#include "sim/base/folded.hpp"
#include "sim/base/yaml_text.hpp"
#include "sim/base/yaml_tree.hpp"

namespace shardline::detail {

constexpr std::size_t kDeepest = 64;
constexpr std::size_t kMostNodes = 1'000'000;

/// Builds the tree of one document. Faults of content are collected; limits throw UserError.
class TreeBuilder : public YAML::EventHandler {
 public:
  /// `folded`: whose values are not in the text that is parsed; nothing: all are.
  explicit TreeBuilder(YamlText& text, FoldedBlocks* folded = nullptr) : text_(text), folded_(folded) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (!started_) {
      started_ = true;
      return;
    }
    const bool marked = text_.source.at(place(mark)).starts_with("---");
    refuse(mark, marked ? "several documents in one file" : "text after the end of the document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode& node = create(Kind::null, mark, anchor);
    node.own_place = explicit_null(text_.source.at(node.place));
    attach(node);
    const bool block = node.parent != nullptr && node.parent->kind == Kind::map && !stack_.back().flow;
    if (block && !node.own_place && !stack_.back().dropped && !colon_follows(node.key_place, node.key))
      text_.add_fault(node.key_place, path_of(node),
                      fmt::format("missing colon after {}", shortened(node.key)), {});
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    if (value.find('\0') != std::string::npos) refuse(mark, "a text with a NUL character");
    if (tag == "!" && after_quotes(text_.source.at(place(mark))) == std::string_view::npos)
      refuse(mark, "the quoted text is never closed");
    if (!stack_.empty() && stack_.back().node->kind == Kind::map && !stack_.back().have_key) {
      if (anchor != YAML::NullAnchor) {  // an alias may repeat a key's text as a value
        YamlNode& node = create(Kind::scalar, mark, anchor);
        node.quoted = tag == "!";
        node.scalar = keep(value);
        node.parent = stack_.back().node;
      }
      take_key(mark, tag == "?", value);
      return;
    }
    YamlNode& node = create(Kind::scalar, mark, anchor);
    node.quoted = tag == "!";
    node.scalar = keep(value.empty() ? folded_at(mark) : value);
    attach(node);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(Kind::sequence, mark, tag, anchor, style);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(Kind::map, mark, tag, anchor, style);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark, "an alias without its anchor");
    const YamlNode& target = *found->second;
    if (target.open) refuse(mark, "an alias of a value that contains it");
    if (stack_.size() + static_cast<std::size_t>(target.height) > kDeepest) refuse_depth(mark);
    YamlNode& node = copy(mark, target, nullptr);
    node.place = place(mark);
    node.own_place = true;
    node.anchor_line = target.place.line + 1;
    attach(node);
  }

 private:
  std::string folded_at(const YAML::Mark& mark) {
    if (folded_ == nullptr || !text_.source.at(place(mark)).starts_with(">-\n")) return {};
    const auto found = folded_->at.find(mark.line);
    if (found == folded_->at.end()) return {};
    found->second.taken = true;
    return FoldedBlocks::value(found->second);
  }

  struct Frame {
    YamlNode* node;
    bool flow = false;
    bool have_key = false;
    bool dropped = false;  // the value of a refused key is read but not kept
    Place key_place{-1, 0};
    std::string_view key = {};
  };

  static Place place(const YAML::Mark& mark) { return {mark.line, mark.column}; }

  static bool explicit_null(std::string_view at) {
    if (at.starts_with('~')) return true;
    for (const std::string_view word : {"null", "Null", "NULL"}) {
      if (at.starts_with(word))
        return at.size() == word.size() || std::string_view(" \t\n,]}").find(at[word.size()]) != at.npos;
    }
    return false;
  }

  /// Bytes up to the end of the scalar that starts `at`, if it is quoted (0 if not); npos if the closing
  /// quote is missing, which yaml-cpp accepts at the end of a text.
  static std::size_t after_quotes(std::string_view at) {
    std::size_t i = 0;
    if (at.starts_with('&')) {
      i = std::min(at.find_first_of(" \t\n"), at.size());
      i = std::min(at.find_first_not_of(" \t\n", i), at.size());
    }
    if (i == at.size() || (at[i] != '"' && at[i] != '\'')) return 0;
    const char quote = at[i];
    for (++i; i < at.size(); ++i) {
      if (at[i] == '\\' && quote == '"') {
        ++i;
      } else if (at[i] == quote) {
        if (quote == '"' || i + 1 == at.size() || at[i + 1] != quote) return i + 1;
        ++i;
      }
    }
    return std::string_view::npos;
  }

  /// yaml-cpp takes the last line of a block mapping for a key even where the colon is missing.
  bool colon_follows(Place key_place, std::string_view key) const {
    std::string_view at = text_.source.at(key_place);
    if (at.starts_with('&')) return true;
    const std::size_t quotes = after_quotes(at);
    at.remove_prefix(std::min(quotes != 0 ? quotes : key.size(), at.size()));
    const std::size_t next = at.find_first_not_of(" \t\n");
    return next != at.npos && at[next] == ':';
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string what) const {
    throw UserError({Diagnostic{text_.source.location(place(mark)), std::move(what), {}}});
  }
  [[noreturn]] void refuse_depth(const YAML::Mark& mark) const {
    refuse(mark, fmt::format("nested deeper than {} levels", kDeepest));
  }

  std::string_view keep(std::string_view value) { return text_.strings.emplace_back(value); }

  YamlNode& create(Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    check_();  // an alias of a few bytes may stand for a million values
    if (text_.nodes.size() >= kMostNodes)
      refuse(mark, fmt::format("more than {} values, aliases expanded", kMostNodes));
    YamlNode& node = text_.nodes.emplace_back();
    node.kind = kind;
    node.place = place(mark);
    if (anchor != YAML::NullAnchor) anchors_[anchor] = &node;
    return node;
  }

  YamlNode& copy(const YAML::Mark& mark, const YamlNode& from, const YamlNode* alias) {
    YamlNode& to = create(from.kind, mark, YAML::NullAnchor);
    to.quoted = from.quoted;
    to.own_place = from.own_place;
    to.height = from.height;
    to.place = from.place;
    to.scalar = from.scalar;
    to.alias = alias == nullptr ? &to : alias;
    for (const YamlNode* child : from.children) {
      YamlNode& c = copy(mark, *child, to.alias);
      c.key = child->key;
      c.key_place = child->key_place;
      link(to, c);
    }
    return to;
  }

  void link(YamlNode& parent, YamlNode& child) {
    child.parent = &parent;
    child.index = parent.children.size();
    parent.children.push_back(&child);
    if (parent.kind == Kind::map) text_.keys(parent).emplace(child.key, &child);
  }

  void attach(YamlNode& node) {
    if (stack_.empty()) {
      text_.root = &node;
      return;
    }
    Frame& top = stack_.back();
    node.parent = top.node;
    if (top.node->kind == Kind::sequence) {
      link(*top.node, node);
    } else if (!top.have_key) {
      text_.add_fault(node.place, path_of(*top.node), "a key must be text", {});
      top = {.node = top.node, .flow = top.flow, .have_key = true, .dropped = true, .key_place = node.place};
    } else {
      node.key = top.key;
      node.key_place = top.key_place;
      if (!top.dropped) link(*top.node, node);
      top.have_key = false;
    }
  }

  void take_key(const YAML::Mark& mark, bool plain, const std::string& value) {
    Frame& top = stack_.back();
    top.have_key = true;
    top.dropped = false;
    top.key_place = place(mark);
    top.key = keep(value);
    if (plain && value == "<<") {
      top.dropped = true;
      text_.add_fault(top.key_place, below(path_of(*top.node), value), "merge keys (<<) are not supported",
                      {"write the merged keys out"});
    } else if (top.node->by_key) {
      const YamlNode* const first = top.node->by_key->find(value);
      if (first == nullptr) return;
      top.dropped = true;
      const std::string path = path_of(*first);
      text_.add_fault(top.key_place, path, "duplicate key " + path,
                      {fmt::format("first given at line {}", first->key_place.line + 1)});
    }
  }

  void open(Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YAML::EmitterStyle::value style) {
    check_tag(mark, tag);
    if (stack_.size() >= kDeepest) refuse_depth(mark);
    YamlNode& node = create(kind, mark, anchor);
    node.open = true;
    attach(node);
    const bool flow = style == YAML::EmitterStyle::Flow;
    node.own_place = flow || node.key_place.line < 0;
    stack_.push_back({.node = &node, .flow = flow});
  }

  // The path of the value that comes next.
  std::string here() const {
    if (stack_.empty()) return "";
    const Frame& top = stack_.back();
    const std::string path = path_of(*top.node);
    if (top.node->kind == Kind::sequence) return fmt::format("{}[{}]", path, top.node->children.size());
    return top.have_key ? below(path, shortened(top.key)) : path;
  }

  void close() {
    YamlNode& node = *stack_.back().node;
    stack_.pop_back();
    node.open = false;
    for (const YamlNode* child : node.children) node.height = std::max(node.height, child->height + 1);
    if (node.height == 0) node.height = 1;
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    const bool bare = tag == "!" && text_.source.at(place(mark)).starts_with('!');
    if (tag.empty() || tag == "?" || (tag == "!" && !bare)) return;
    constexpr std::string_view kCore = "tag:yaml.org,2002:";
    const std::string name = tag.starts_with(kCore) ? "!!" + tag.substr(kCore.size()) : tag;
    text_.add_fault(place(mark), here(), fmt::format("tags such as {} are not supported", shortened(name)),
                    {});
  }

  YamlText& text_;
  CancelCheck check_;
  FoldedBlocks* folded_;
  bool started_ = false;
  std::vector<Frame> stack_;
  std::unordered_map<YAML::anchor_t, YamlNode*> anchors_;
};

/// yaml-cpp's messages name its grammar; these name what the user wrote.
inline std::string readable(const std::string& message) {
  struct Row {
    std::string_view theirs;
    std::string_view ours;
  };
  static constexpr std::array kRows = {
      Row{"end of map not found", "expected a key here (wrong indentation, or a missing colon?)"},
      Row{"end of map flow not found", "expected , or } here, as a mapping is open"},
      Row{"end of sequence not found", "expected - here (wrong indentation?)"},
      Row{"end of sequence flow not found", "expected , or ] here, as a list is open"},
      Row{"illegal map value",
          "unexpected colon (text that holds one needs quotes, or the line above lacks its own)"},
      Row{"illegal map key", "unexpected key"},
      Row{"illegal block entry", "unexpected list entry"},
      Row{"illegal flow end", "closing bracket that matches no open one"},
      Row{"illegal EOF in scalar", "the quoted text is never closed"},
      Row{"illegal document indicator in scalar", "document marker inside quoted text"},
      Row{"unknown token", "unexpected character (text that starts with it needs quotes)"},
      Row{"illegal tab when looking for indentation", "tab in indentation: YAML indents with spaces"},
  };
  for (const Row& row : kRows)
    if (message == row.theirs) return std::string(row.ours);
  if (message.starts_with("invalid unicode"))
    return "unsupported \\u escape (write characters beyond U+FFFF as themselves)";
  return message;
}

[[noreturn]] inline void syntax_error(const YamlText& text, const YAML::Exception& error) {
  Place place{error.mark.line, error.mark.column};
  std::string what = readable(error.msg);
  const std::string_view line = text.source.line(place.line);
  const std::size_t indent = std::min(line.find_first_not_of(" \t"), line.size());
  const bool flow = text.source.flow() || error.msg.ends_with("flow not found");
  if (const std::size_t tab = line.substr(0, indent).find('\t'); !flow && tab != line.npos) {
    place.column = static_cast<int>(tab);
    what = "tab in indentation: YAML indents with spaces";
  }
  const std::string_view at = text.source.at(place);
  if (error.msg.starts_with(YAML::ErrorMsg::UNKNOWN_ANCHOR))
    what = fmt::format("unknown alias {}", shortened(at.substr(0, at.find_first_of(" \t\n,]}"))));
  if (at.find_first_not_of(" \t\n") == at.npos) {
    place = text.source.last_place();
    if (error.msg.ends_with("flow not found")) what = "the text ends before } or ]";
  }
  throw UserError({Diagnostic{text.source.location(place), fmt::format("syntax error: {}", what), {}}});
}

inline void parse_events(const std::string& text, TreeBuilder& builder) {
  check_cancelled();
  AskingText pieces(text);
  std::istream input(&pieces);
  input.exceptions(std::ios::badbit);
  YAML::Parser parser(input);
  pieces.ask();
  parser.HandleNextDocument(builder);
  parser.HandleNextDocument(builder);  // the builder refuses a second document
}

/// The tree of a text with folded blocks of integers, without those of the parser: the same tree as
/// build_tree() makes, in less time. False: there are none, or something is wrong, of which build_tree() then
/// says what; the text has to be read from its source again.
inline bool build_folded(YamlText& text) {
  FoldedBlocks folded = cut_folded_blocks(text.source.text());
  if (folded.at.empty()) return false;
  TreeBuilder builder(text, &folded);
  try {
    parse_events(folded.rest, builder);
  } catch (const YAML::Exception&) {
    return false;
  } catch (const UserError&) {
    return false;
  }
  return folded.all_taken() && text.root != nullptr && text.faults.empty();
}

/// Reads `parsed`, whose places are those of `text`, into its tree; throws UserError for syntax errors. An
/// empty document is a fault.
inline void build_tree(YamlText& text, const std::string& parsed) {
  TreeBuilder builder(text);
  try {
    parse_events(parsed, builder);
  } catch (const YAML::Exception& error) {
    syntax_error(text, error);
  }
  if (text.root != nullptr && text.root->kind != Kind::null) return;
  // A mapping without keys, so that who reads it says which ones it needs.
  YamlNode& empty = text.nodes.emplace_back();
  empty.kind = Kind::map;
  text.root = &empty;
  text.add_fault({0, 0}, {}, "empty document", {});
}

}  // namespace shardline::detail
