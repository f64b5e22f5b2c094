// Which keys of a command line's settings are those of system files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "hardware/cost/measured_machine.hpp"
#include "hardware/machine/system.hpp"

namespace shardline {

namespace {

constexpr std::array<std::string_view, 5> kRoots{"device", "fabric", "runtime", "power", "calibration"};

std::string_view key_of(std::string_view setting) {
  return setting.substr(0, std::min(setting.find('='), setting.size()));
}

std::string_view first_of(std::string_view key) { return key.substr(0, std::min(key.find('.'), key.size())); }

}  // namespace

bool sets_system(std::string_view setting) {
  return std::find(kRoots.begin(), kRoots.end(), first_of(key_of(setting))) != kRoots.end();
}

std::string set_text(const System& s) {
  return s.settings.empty() ? "" : fmt::format(" with {}", fmt::join(s.settings, " and "));
}

std::vector<std::string> system_settings(const std::vector<std::string>& settings) {
  std::vector<std::string> out;
  std::copy_if(settings.begin(), settings.end(), std::back_inserter(out), sets_system);
  return out;
}

std::vector<std::string> system_keys_like(std::string_view setting) {
  const std::string_view key = key_of(setting), last = key.substr(key.rfind('.') + 1);
  std::vector<std::string> whole, names;
  for (const MachineFigure& f : machine_figures()) {
    whole.emplace_back(f.key);
    names.push_back(whole.back().substr(whole.back().rfind('.') + 1));
  }
  if (const std::string near = nearest_name(key, whole); !near.empty() && key.find('.') != key.npos)
    return {fmt::format("did you mean {} (of the system file)?", near)};
  const std::string near = nearest_name(last, names);
  std::vector<std::string> all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!near.empty() && names[i] == near) all.push_back(whole[i]);
  }
  if (all.empty()) return {};
  return {fmt::format("did you mean {} (of the system file)?", fmt::join(all, ", "))};
}

}  // namespace shardline
