#include "planner/studies/line_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "hardware/machine/system.hpp"
#include "sim/base/argument_names.hpp"
#include "sim/base/error.hpp"

namespace shardline {

namespace {

// Keys of a scenario that the line writes from what it was asked, each with the option that says it; an empty
// one is of the model, which has none.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kOfLine{{
    {"system", "system"},
    {"models", ""},
    {"engine.name", "engine"},
    {"engine.version", "engine"},
    {"engine", "engine"},
    {"costs", "costs"},
    {"any_gpus", "any-gpus"},
    {"any_context", "any-context"},
    {"workload.input", "input"},
    {"workload.output", "output"},
    {"workload.users", "users"},
    {"constraints.ttl", "ttl"},
    {"constraints.ttft", "ttft"},
    {"gpu_hour_price", "gpu-hour"},
}};

// Maps that hold some of these, and would say what the line says otherwise.
constexpr std::array<std::string_view, 2> kMaps{"workload", "constraints"};

[[noreturn]] void refuse(const std::string& setting, std::string_view key, std::string what,
                         std::string detail) {
  Diagnostic d;
  d.where.file = kSettingOrigin;
  d.where.line = d.where.column = 1;
  d.where.source_line = setting;
  d.where.key = key;
  d.what = std::move(what);
  d.details = {std::move(detail)};
  throw UserError({std::move(d)});
}

std::string_view key_of(std::string_view setting) {
  const std::string_view key = setting.substr(0, std::min(setting.find('='), setting.size()));
  return key.substr(0, key.find_last_not_of(' ') + 1);
}

std::string_view value_of(std::string_view setting) {
  const std::size_t equals = setting.find('=');
  return equals == setting.npos ? std::string_view() : setting.substr(equals + 1);
}

}  // namespace

void require_beside_line(const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const std::string_view of = key_of(setting);
    if (std::find(kMaps.begin(), kMaps.end(), of) != kMaps.end())
      refuse(setting, of,
             fmt::format("{} as a whole holds what a question of one line says by its options", of),
             fmt::format("set its other keys one by one: {}.KEY=VALUE", of));
    const auto at =
        std::find_if(kOfLine.begin(), kOfLine.end(), [&](const auto& key) { return key.first == of; });
    if (at == kOfLine.end()) continue;
    const std::string option = argument_name(at->second);
    std::string detail = fmt::format("{} in its place", argument_given(at->second, value_of(setting)));
    if (at->second.empty())
      detail = "name another model in place of this one";
    else if (at->first == "engine.version" ||
             (at->first == "engine" && value_of(setting).find('{') != of.npos))
      detail = fmt::format("for instance {}", argument_given(at->second, "vllm 0.24.0"));
    else if (at->second.starts_with("any-"))
      detail = option + " lifts that rule";
    refuse(setting, of,
           fmt::format("{} is said by {} in a question of one line", at->first,
                       at->second.empty() ? "its model" : option),
           std::move(detail));
  }
}

bool sets_key(const std::vector<std::string>& settings, std::string_view key) {
  return std::any_of(settings.begin(), settings.end(), [&](const std::string& setting) {
    const std::string_view of = key_of(setting);
    return of == key || (of.starts_with(key) && of.substr(key.size()).starts_with('.'));
  });
}

std::string scenario_settings_text(const std::vector<std::string>& settings) {
  std::vector<std::string> own;
  std::copy_if(settings.begin(), settings.end(), std::back_inserter(own),
               [](const std::string& s) { return !sets_system(s); });
  return own.empty() ? "" : fmt::format("; with {}", fmt::join(own, " and "));
}

}  // namespace shardline
