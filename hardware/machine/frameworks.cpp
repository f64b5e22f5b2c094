#include "hardware/machine/frameworks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "sim/base/reader.hpp"

namespace shardline {

std::filesystem::path calibrations_beside(const std::filesystem::path& catalog_dir) {
  return catalog_dir.parent_path() / "calibrations";
}

Calibration load_calibration(const std::filesystem::path& file) {
  Document document = Document::load(file);
  const Reader root = document.root();
  Calibration c = read_calibration(root.at("calibration"));
  root.no_other_keys();
  document.finish();
  return c;
}

void add_kernels(System& system, const std::string& framework, const std::filesystem::path& catalog_dir) {
  Calibration& base = system.calibration;
  if (base.name.empty()) return;
  const Architecture architecture = architecture_of(base, system.device);
  std::set<std::string> wanted{framework};
  for (const KernelRule& rule : system.kernels.rules) {
    if (!rule.of(architecture)) continue;
    for (const KernelName& name : rule.use) wanted.insert(name.framework);
  }
  for (const KernelFit& f : base.fits) wanted.erase(f.framework);
  for (const std::string& whose : wanted) {
    std::optional<Calibration> own = framework_calibration(base.name, whose, catalog_dir);
    if (!own) continue;
    if (own->machine.system != base.machine.system)
      throw UserError(fmt::format("what was fitted to {} beside {} is of {}", whose, base.machine.system,
                                  own->machine.system));
    base.fits.insert(base.fits.end(), std::make_move_iterator(own->fits.begin()),
                     std::make_move_iterator(own->fits.end()));
  }
}

void use_framework(System& system, const std::string& framework, const std::filesystem::path& catalog_dir) {
  KernelList list = load_kernel_list(framework, catalog_dir);
  Calibration& base = system.calibration;
  if (base.empty())
    throw UserError(fmt::format("system {} has no calibration: kernels of {} have no prices on it",
                                system.name, framework));
  system.kernels.named = true;
  if (framework == system.kernels.framework) return;
  for (KernelRule rule : system.kernels.rules) {
    for (KernelName& name : rule.use) {
      if (name.framework.empty()) name.framework = system.kernels.framework;
    }
    rule.borrowed = true;
    list.rules.push_back(std::move(rule));
  }
  list.named = true;
  system.kernels = std::move(list);
  add_kernels(system, framework, catalog_dir);
  const auto own = [&](const KernelFit& f) { return f.framework == framework; };
  if (std::none_of(base.fits.begin(), base.fits.end(), own))
    throw UserError({Diagnostic{
        {},
        fmt::format("no kernels of {} were measured for the calibration of {}", framework, system.name),
        {fmt::format("shardline calibrate --framework \"{} VERSION\" makes one of such tables",
                     framework)}}});
}

std::optional<Calibration> framework_calibration(const std::string& calibration, const std::string& framework,
                                                 const std::filesystem::path& catalog_dir) {
  const std::filesystem::path file =
      calibrations_beside(catalog_dir) / fmt::format("{}.{}.yaml", calibration, framework);
  if (framework.empty() || !std::filesystem::exists(file)) return std::nullopt;
  Calibration c = load_calibration(file);
  if (c.framework != framework)
    throw UserError(
        fmt::format("{} says that its kernels are of \"{}\"", file.filename().string(), c.framework));
  return c;
}

}  // namespace shardline
