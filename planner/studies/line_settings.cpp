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
    const auto at = std::find_if(kOfLine.begin(), kOfLine.end(),
                                 [&](const auto& key) { return key.first == key_of(setting); });
    if (at == kOfLine.end()) continue;
    Diagnostic d;
    d.where.file = kSettingOrigin;
    d.where.line = d.where.column = 1;
    d.where.source_line = setting;
    d.where.key = at->first;
    const std::string option = argument_name(at->second);
    d.what = fmt::format("{} is said by {} in a question of one line", at->first,
                         at->second.empty() ? "its model" : option);
    const bool flag = at->second.starts_with("any-");
    if (at->second.empty())
      d.details = {"name another model in place of this one"};
    else if (at->first == "engine.version")
      d.details = {fmt::format("for instance {}", argument_given(at->second, "vllm 0.24.0"))};
    else
      d.details = {flag ? option + " lifts that rule"
                        : fmt::format("{} in its place", argument_given(at->second, value_of(setting)))};
    throw UserError({std::move(d)});
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
