// Words of a text of several, such as a long list of integers in a block.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "sim/base/reader.hpp"
#include "sim/base/yaml_text.hpp"
#include "sim/base/yaml_tree.hpp"

namespace shardline {

namespace {

constexpr std::string_view kBlanks = " \t\n";

// Of `source` the byte where the word of this number stands, of a text that begins at `begin`; npos: another
// word is there, as the text has escapes or an anchor.
std::size_t place_of_word(std::string_view source, std::size_t begin, std::size_t number,
                          std::string_view word) {
  std::size_t at = begin;
  if (at < source.size() && (source[at] == '>' || source[at] == '|')) at = source.find('\n', at);
  if (at < source.size() && (source[at] == '"' || source[at] == '\'')) ++at;
  at = std::min(source.find_first_not_of(kBlanks, std::min(at, source.size())), source.size());
  for (std::size_t i = 0; i < number; ++i) {
    at = std::min(source.find_first_of(kBlanks, at), source.size());
    at = std::min(source.find_first_not_of(kBlanks, at), source.size());
  }
  return source.substr(at).starts_with(word) ? at : std::string_view::npos;
}

}  // namespace

void Reader::fault_at_word(std::size_t number, std::string_view word, std::string what) const {
  if (node_->kind == detail::Kind::absent) return;
  detail::Place place = detail::place_of(*node_);
  const detail::SourceText& source =
      place.source == 0 ? text_->source : text_->set[static_cast<std::size_t>(place.source) - 1].source;
  const std::string_view all = source.text();
  const auto begin = static_cast<std::size_t>(source.at(place).data() - all.data());
  if (const std::size_t at = place_of_word(all, begin, number, word); at != std::string_view::npos) {
    const detail::Place found = source.place(at);
    place.line = found.line;
    place.column = found.column;
  }
  text_->add_fault(place, path(), std::move(what), {});
}

}  // namespace shardline
