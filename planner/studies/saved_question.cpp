#include "planner/studies/saved_question.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "models/model/catalog.hpp"
#include "sim/base/set_in_text.hpp"
#include "sim/base/shell_word.hpp"

namespace shardline {

namespace {

std::string from_anywhere(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

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
  return out;
}

}  // namespace

std::string settings_beside(const PlanQuestion& q) {
  std::string out;
  for (const std::string& setting : system_settings(q.settings)) out += " --set " + shell_word(setting);
  return out;
}

std::string options_beside(const PlanAnswer& a) {
  const PlanQuestion& q = a.question;
  std::string out = target_options(q, q.prefill() ? a.asked.most_time : q.ttft);
  if (!a.defaults.engine && q.users > 0) out += " --users " + std::to_string(q.users);
  return out + settings_beside(q);
}

std::string load_beside(const PlanQuestion& q) {
  return q.rate > 0 ? " --rate " + rate_argument(q.rate) : "";
}

std::string saved_scenario(const PlanAnswer& a, const Catalogs& catalogs, const std::string& of_serve) {
  std::string comments;
  const auto comment = [&](const char* commands, const std::string& options) {
    if (!options.empty()) comments += "# Not in it, to be given to " + (commands + (":" + options)) + "\n";
  };
  comment("commands that read it", options_beside(a));
  comment("serve, which reads it", load_beside(a.question) + of_serve);
  std::string out = plan_scenario(asked_from_anywhere(a.question, catalogs), a.defaults);
  out.insert(out.find('\n') + 1, comments);
  for (const std::string& setting : a.question.settings)
    if (!sets_system(setting)) out = set_in_text(std::move(out), setting);
  return out;
}

}  // namespace shardline
