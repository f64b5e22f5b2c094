#include "planner/engines/launch_options.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shardline {

namespace {

LaunchOption& slot(LaunchOptions& options, const std::string& name) {
  const auto same = [&](const LaunchOption& o) { return o.name == name; };
  const auto at = std::find_if(options.begin(), options.end(), same);
  return at != options.end() ? *at : options.emplace_back(LaunchOption{name, "", false});
}

std::string_view section_of(std::string_view name) {
  const auto dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
}

std::string yaml_line(std::string_view key, const std::string& value) {
  return fmt::format("{}: {}", key, value.empty() ? "true" : value);
}

}  // namespace

void put(LaunchOptions& options, const std::string& name, const std::string& value) {
  LaunchOption& o = slot(options, name);
  o.value = value;
  o.variable = false;
}

void put(LaunchOptions& options, const std::string& name, long long value) {
  put(options, name, std::to_string(value));
}

void put_variable(LaunchOptions& options, const std::string& name, const std::string& variable) {
  LaunchOption& o = slot(options, name);
  o.value = "\"$" + variable + "\"";
  o.variable = true;
}

const LaunchOption* find(const LaunchOptions& options, std::string_view name) {
  for (const LaunchOption& o : options) {
    if (o.name == name) return &o;
  }
  return nullptr;
}

std::string command_text(const LaunchOption& o) {
  if (o.value.empty()) return o.name;
  return o.name + " " + (o.variable ? o.value : shell_word(o.value));
}

std::vector<std::string> yaml_lines(const LaunchOptions& options) {
  std::vector<std::string> out;
  std::vector<std::string_view> done;
  for (const LaunchOption& o : options) {
    const std::string_view section = section_of(o.name);
    if (section.empty()) {
      out.push_back(yaml_line(o.name, o.value));
      continue;
    }
    if (std::find(done.begin(), done.end(), section) != done.end()) continue;
    done.push_back(section);
    out.push_back(std::string(section) + ":");
    for (const LaunchOption& in : options) {
      if (section_of(in.name) == section)
        out.push_back("  " + yaml_line(std::string_view(in.name).substr(section.size() + 1), in.value));
    }
  }
  return out;
}

}  // namespace shardline
