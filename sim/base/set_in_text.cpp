#include "sim/base/set_in_text.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace shardline {

namespace {

// A map that is not there yet is made by the first key below it.
void put(YAML::Node map, std::string_view key, const YAML::Node& value) {
  const std::size_t dot = key.find('.');
  const std::string first(key.substr(0, dot));
  if (dot == std::string_view::npos)
    map[first] = value;
  else
    put(map[first], key.substr(dot + 1), value);
}

// The line of the key, without its end; where there is none, the end of the text.
std::pair<std::size_t, std::size_t> line_of(const std::string& text, const std::string& key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (text.compare(at, key.size() + 1, key + ":") == 0) return {at, end - at};
    at = end + 1;
  }
  return {text.size(), 0};
}

}  // namespace

std::string set_in_text(std::string text, const std::string& setting) {
  const std::size_t equals = setting.find('=');
  const std::string key = setting.substr(0, equals), top = key.substr(0, key.find('.'));
  const auto [at, length] = line_of(text, top);
  YAML::Node said = YAML::Load(text.substr(at, length));
  if (!said.IsMap()) said = YAML::Node(YAML::NodeType::Map);
  put(said, key, YAML::Load(setting.substr(equals + 1)));
  YAML::Emitter line;
  line.SetSeqFormat(YAML::Flow);
  line.SetMapFormat(YAML::Flow);
  line << said[top];
  std::string out = top + ": " + line.c_str() + "  # --set";
  if (length == 0) {
    if (!text.empty() && text.back() != '\n') text += '\n';
    out += '\n';
  }
  return text.replace(at, length, out);
}

}  // namespace shardline
