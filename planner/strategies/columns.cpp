#include "planner/strategies/columns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace shardline {

namespace {

std::vector<Degree> degrees_of(StepKind kind) {
  std::vector<Degree> out;
  for (std::size_t d = 0; d < kDegrees.size(); ++d) {
    const auto degree = static_cast<Degree>(d);
    for (const Strategy* s : strategies()) {
      if (!s->runs(kind) || !s->degrees.has(degree)) continue;
      out.push_back(degree);
      break;
    }
  }
  return out;
}

// In the order in which the table's rows name them.
template <class Wanted>
std::vector<const Option*> options_where(Wanted wanted) {
  std::vector<const Option*> out;
  for (const Strategy* s : strategies()) {
    for (const Option* option : s->options) {
      if (wanted(*s, *option) && std::find(out.begin(), out.end(), option) == out.end())
        out.push_back(option);
    }
  }
  return out;
}

std::vector<const Option*> options_of(StepKind kind) {
  return options_where([&](const Strategy& s, const Option& o) { return s.runs(kind) && o.means(kind); });
}

const char* key_of(Degree d) { return kDegrees[static_cast<std::size_t>(d)].key; }

}  // namespace

std::vector<std::string> plan_columns(StepKind kind) {
  std::vector<std::string> out;
  for (const Degree d : degrees_of(kind)) out.emplace_back(key_of(d));
  for (const Option* option : options_of(kind)) out.emplace_back(option->key);
  return out;
}

std::vector<std::string> plan_cells(const Plan& plan, StepKind kind) {
  std::vector<std::string> out;
  for (const Degree d : degrees_of(kind)) {
    const int value = plan.*kDegrees[static_cast<std::size_t>(d)].member;
    out.push_back(value > 0 ? std::to_string(value) : "");
  }
  const Strategy& s = strategy(plan.strategy);
  for (const Option* option : options_of(kind))
    out.push_back(s.reads(*option) ? value_text(*option, plan.options) : "");
  return out;
}

std::vector<OptionRow> option_rows() {
  std::vector<OptionRow> out;
  for (const Option* option : options_where([](const Strategy&, const Option&) { return true; })) {
    std::vector<const char*> names;
    for (const Strategy* s : strategies()) {
      if (s->reads(*option)) names.push_back(s->name);
    }
    out.push_back(
        {option->key, fmt::format("{}", fmt::join(names, ", ")), values_text(*option), option->help});
  }
  return out;
}

std::string kinds_text(const Strategy& s) {
  std::string text;
  for (const auto& [kind, name] :
       {std::pair{StepKind::decode, "decode"}, {StepKind::prefill, "prefill"}, {StepKind::mixed, "mixed"}})
    if (s.runs(kind)) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::string keys_text(const Strategy& s) {
  std::vector<const char*> degrees, options;
  for (std::size_t d = 0; d < kDegrees.size(); ++d) {
    if (s.degrees.has(static_cast<Degree>(d))) degrees.push_back(kDegrees[d].key);
  }
  for (const Option* option : s.options) options.push_back(option->key);
  std::string text = fmt::format("{}", fmt::join(degrees, ", "));
  return options.empty() ? text : fmt::format("{}; {}", text, fmt::join(options, ", "));
}

}  // namespace shardline
