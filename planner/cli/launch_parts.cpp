#include "planner/cli/launch_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planner/cli/sweep_parts.hpp"
#include "planner/scenario/shipped.hpp"

namespace shardline::cli {

std::vector<EngineProfile> engines_of(const Case& c) {
  if (c.engine) return {*c.engine};
  std::vector<EngineProfile> out;
  const std::filesystem::path folder = shipped_catalogs().engines;
  for (const std::string& name : engine_names(folder)) out.push_back(load_engine(engine_name(name), folder));
  return out;
}

std::vector<Launch> launches_of(const Case& c, const Plan& plan, const std::string& stem) {
  std::vector<Launch> out;
  const std::vector<Deployment> documented = deployments(c, plan);
  for (const EngineProfile& engine : engines_of(c)) {
    const auto of_engine = [&](const Deployment& d) { return d.profile == engine.name; };
    if (c.engine || std::any_of(documented.begin(), documented.end(), of_engine))
      out.push_back(launch_files(c, plan, engine, stem + "." + engine.name));
  }
  return out;
}

namespace {

// Prompts are cut to the budget of a step, as the pool was timed.
Launch pair_of(const Case& c, const NamedPlan& p, const std::string& stem) {
  const EngineProfile& engine = *c.engine;
  Case prompts = c;
  prompts.batch = prefill_batch({{0, c.served.input}});
  prompts.placement = nullptr;
  Plan prefill = *p.prompts;
  prefill.set(kPrefillChunk,
              static_cast<int>(std::min(engine.tokens_of_step(c.system.device), c.served.input)));
  return launch_pair({prompts, prefill}, {c, p.plan}, engine, stem + "." + engine.name);
}

}  // namespace

std::string launch_summary(const std::vector<Launch>& launches) {
  std::string out;
  for (const Launch& l : launches) {
    std::string what = l.refused.empty() ? "" : "no files: " + l.refused;
    for (const LaunchFile& f : l.files) what += (what.empty() ? "" : ", ") + f.name;
    out += fmt::format("  {}: {}\n", l.engine, what);
  }
  return out;
}

std::string write_launches(OutputFolder& files, const Study& study, const std::vector<NamedPlan>& plans) {
  std::string text = study.title + "\n";
  std::optional<OutputFolder> folder;  // where some engine runs some plan
  int number = 0;
  for (const NamedPlan& p : plans) {
    text += fmt::format("\n{}\n{}", p.heading, deployment_text(study, p.plan));
    const std::string stem = std::to_string(++number);
    const std::vector<Launch> launches = p.prompts ? std::vector<Launch>{pair_of(study.study, p, stem)}
                                                   : launches_of(study.study, p.plan, stem);
    text += launch_summary(launches);
    for (const Launch& l : launches) {
      if (!l.files.empty() && !folder) folder.emplace(files.path() / "launch");
      for (const LaunchFile& f : l.files) folder->write(f.name, f.text, f.executable);
    }
  }
  files.write("launch.txt", text);
  if (!folder) return "";
  return fmt::format("  wrote {}: {} files, named in launch.txt\n", folder->path().string(), folder->files());
}

}  // namespace shardline::cli
