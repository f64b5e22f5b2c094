#include "planner/cli/launch_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "planner/cli/sweep_parts.hpp"
#include "planner/engines/prompt_step.hpp"
#include "planner/scenario/bare_kernels.hpp"
#include "reports/terminal.hpp"

namespace shardline::cli {

namespace {

// Prompts as the pool was timed.
Launch pair_of(const Case& c, const NamedPlan& p, const std::string& stem) {
  const EngineProfile& engine = *c.engine;
  const ContextServer prompts = context_server(c, engine, *p.prompts, c.served.input);
  Case answers = c;
  answers.disaggregated = true;
  return launch_pair({prompts.study, prompts.plan, p.prompt_servers}, {answers, p.plan, p.servers}, engine,
                     stem + "." + engine.name);
}

// "    # a note", each of its lines a comment of the shell.
std::string note_text(const std::string& note, std::size_t width) {
  constexpr std::string_view kBefore = "    # ";
  std::string out;
  const std::string lines =
      width > kBefore.size() + 20 ? wrapped(note, width - kBefore.size(), "  ") : note + "\n";
  for (std::size_t at = 0, end = 0; (end = lines.find('\n', at)) != std::string::npos; at = end + 1)
    out += std::string(kBefore) + lines.substr(at, end - at) + "\n";
  return out;
}

// An engine's command, or a line of the file that it reads.
std::string line_text(const std::string& line, std::size_t width) {
  constexpr std::string_view kBefore = "    ", kFile = ", with FILE:";
  if (width == 0 || kBefore.size() + line.size() <= width || line.starts_with(' '))
    return std::string(kBefore) + line + "\n";
  if (!line.ends_with(kFile)) return wrapped_command(line, width, kBefore);
  return wrapped_command(line.substr(0, line.size() - kFile.size()), width, kBefore) + std::string(kBefore) +
         std::string(kFile.substr(2)) + "\n";
}

}  // namespace

std::string launch_text(const Plan& plan, const std::vector<Launch>& launches, std::size_t width) {
  const Strategy& s = strategy(plan.strategy);
  std::string out;
  if (launches.empty() && engines_with(s.launched_as).empty())
    return fmt::format("  no engine runs {}\n", s.name);
  if (launches.empty()) return "  no released engine documents how to start it\n";
  for (const Launch& l : launches) {
    if (!l.refused.empty())
      out += wrapped_lines(fmt::format("  {}, no launch files: {}\n", l.engine, l.refused), width);
    for (const LaunchedServer& server : l.servers) {
      out += wrapped_lines(fmt::format("  {}, {}\n", l.engine, server.title), width);
      for (const std::string& line : server.lines) out += line_text(line, width);
      for (const std::string& note : server.notes) out += note_text(note, width);
    }
  }
  return out;
}

std::string launch_summary(const std::vector<Launch>& launches) {
  std::string out;
  for (const Launch& l : launches) {
    std::string names;
    for (const LaunchFile& f : l.files) names += (names.empty() ? "" : ", ") + f.name;
    if (!names.empty()) out += fmt::format("  {}: {}\n", l.engine, names);
  }
  return out;
}

namespace {

// Which engine the plans were priced under: launch files start engines, whatever was priced.
std::string head_of(const Study& study) {
  return study.title + (study.study.engine ? "\n"
                                           : "\n  engine: " + bare_kernels_text() +
                                                 ": no times of the engines that are started below\n");
}

// Of one heading: its lines in launch.txt, with its files written.
std::string write_launch(OutputFolder& files, const std::string& heading, const Plan& plan,
                         const std::vector<Launch>& launches) {
  for (const Launch& l : launches) {
    for (const LaunchFile& f : l.files) files.write("launch/" + f.name, f.text, f.executable);
  }
  return fmt::format("\n{}\n{}{}", heading, launch_text(plan, launches), launch_summary(launches));
}

// What is said of the folder, where some engine runs some plan.
std::string wrote_launches(OutputFolder& files, const std::string& text) {
  files.write("launch.txt", text);
  const std::size_t count = files.files("launch");
  if (count == 0) return "";
  return fmt::format("  wrote {}: {} file{}, named in launch.txt\n", (files.path() / "launch").string(),
                     count, count == 1 ? "" : "s");
}

}  // namespace

std::string write_launches(OutputFolder& files, const Study& study, const std::vector<NamedPlan>& plans) {
  std::string text = head_of(study);
  int number = 0;
  for (const NamedPlan& p : plans) {
    const std::string stem = std::to_string(++number);
    const std::vector<Launch> launches = p.prompts ? std::vector<Launch>{pair_of(study.study, p, stem)}
                                                   : launches_of(study.study, p.plan, stem, p.servers);
    text += write_launch(files, p.heading, p.plan, launches);
  }
  return wrote_launches(files, text);
}

std::string write_launches(OutputFolder& files, const Study& study, const std::string& heading,
                           const Plan& plan, const std::vector<Launch>& launches) {
  return wrote_launches(files, head_of(study) + write_launch(files, heading, plan, launches));
}

}  // namespace shardline::cli
