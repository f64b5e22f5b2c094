#include "planner/studies/saved_question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <vector>

#include "hardware/machine/setting_paths.hpp"
#include "models/model/catalog.hpp"
#include "sim/base/set_in_text.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline {

namespace {

// As models and systems are found: the catalogue goes before a folder of the same name.
PlanQuestion asked_from_anywhere(const PlanQuestion& q, const Catalogs& catalogs) {
  PlanQuestion out = q;
  std::error_code error;
  const std::vector<std::string> known = catalog_names(catalogs.models);
  if (std::find(known.begin(), known.end(), q.model) == known.end() &&
      std::filesystem::exists(q.model, error))
    out.model = from_anywhere(q.model);
  const std::filesystem::path system(q.system);
  if (system.has_parent_path() || system.extension() == ".yaml" || system.extension() == ".yml")
    out.system = from_anywhere(q.system);
  for (std::string& setting : out.settings) setting = setting_with_whole_path(setting);
  return out;
}

// Counts of a setting ("4K") as `written` has them.
std::string counts_as(const std::string& setting, std::string (*written)(const std::string& count)) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.'; };
  std::string out;
  for (std::size_t at = 0, end = 0; at < setting.size(); at = end) {
    end = at + 1;
    if (part(setting[at]))
      end = static_cast<std::size_t>(
          std::find_if_not(setting.begin() + static_cast<std::ptrdiff_t>(at), setting.end(), part) -
          setting.begin());
    const std::string word = setting.substr(at, end - at);
    out += count_of(word) ? written(word) : word;
  }
  return out;
}

// The scenario with a setting: in a file tokens have their unit, and other counts are numbers, both of which
// a command line may leave out. `rest`: what is set beside it.
std::string with_setting(const std::string& scenario, const std::string& setting,
                         const std::vector<std::string>& rest, const Catalogs& catalogs) {
  const auto reads = [&](const std::string& text) {
    try {
      parse_scenario("the question as a scenario", text, catalogs, Overrides{{}, "", false, false, rest});
      return true;
    } catch (const UserError&) {
      return false;
    }
  };
  const std::string as_given = set_in_text(scenario, setting);
  if (reads(as_given)) return as_given;
  const std::string in_tokens =
      set_in_text(scenario, counts_as(setting, [](const std::string& c) { return c + " tokens"; }));
  if (reads(in_tokens)) return in_tokens;
  return set_in_text(scenario,
                     counts_as(setting, [](const std::string& c) { return std::to_string(*count_of(c)); }));
}

// Of the question of an answer: with whole paths in a file, as it was given on a screen.
std::string options_of(const PlanQuestion& q, const PlanAnswer& a) {
  std::string out;
  if (!a.defaults.engine && q.users > 0) out += " --users " + std::to_string(q.users);
  return out + settings_beside(q);
}

}  // namespace

std::string from_anywhere(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

std::string settings_beside(const PlanQuestion& q) {
  std::string out;
  for (const std::string& setting : system_settings(q.settings)) out += " --set " + shell_word(setting);
  return out;
}

std::string options_beside(const PlanAnswer& a) { return options_of(a.question, a); }

std::string targets_beside(const PlanAnswer& a) {
  return target_options(a.question, a.question.prefill() ? a.asked.most_time : a.question.ttft);
}

std::string constraint_settings(const PlanAnswer& a) {
  const PlanQuestion& q = a.question;
  std::string out;
  if (q.rate > 0) return out;
  const auto add = [&](const char* key, Seconds most) {
    if (most > Seconds(0))
      out += fmt::format(" --set constraints.{}={}", key, shell_word(to_string(most, 12)));
  };
  if (!q.prefill()) add("ttl", a.asked.most_time);
  add("ttft", q.prefill() ? a.asked.most_time : q.ttft);
  return out;
}

std::string load_beside(const PlanQuestion& q) {
  return q.rate > 0 ? " --rate " + rate_argument(q.rate) : "";
}

std::string saved_scenario(const PlanAnswer& a, const Catalogs& catalogs, const std::string& of_serve) {
  std::string comments;
  const auto comment = [&](const char* commands, const std::string& options) {
    if (!options.empty()) comments += "# Not in it, to be given to " + (commands + (":" + options)) + "\n";
  };
  const PlanQuestion q = asked_from_anywhere(a.question, catalogs);
  comment("sweep, as constraints would leave out what misses them", targets_beside(a));
  comment("commands that read it", options_of(q, a));
  comment("serve, which reads it", load_beside(a.question) + of_serve);
  std::string out = plan_scenario(q, a.defaults);
  out.insert(out.find('\n') + 1, comments);
  std::vector<std::string> rest = a.question.settings;
  for (const std::string& setting : a.question.settings) {
    if (sets_system(setting)) continue;
    rest.erase(std::find(rest.begin(), rest.end(), setting));
    out = with_setting(out, setting, rest, catalogs);
  }
  return out;
}

}  // namespace shardline
