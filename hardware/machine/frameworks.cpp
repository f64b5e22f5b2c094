#include "hardware/machine/frameworks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <system_error>

#include "sim/base/parsed_documents.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

namespace {

// What was fitted to a framework's kernels for a calibration, as framework_calibration().
using FitsOf =
    std::function<std::optional<Calibration>(const std::string& calibration, const std::string& framework)>;

void add_fits(System& system, const std::string& framework, const FitsOf& fits_of) {
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
    std::optional<Calibration> own = fits_of(base.name, whose);
    if (!own) continue;
    if (own->machine.system != base.machine.system)
      throw UserError(fmt::format("what was fitted to {} beside {} is of {}", whose, base.machine.system,
                                  own->machine.system));
    std::vector<KernelFit>& fits = base.fits.edit();
    fits.insert(fits.end(), own->fits.begin(), own->fits.end());
  }
}

void use_list(System& system, KernelList list, const FitsOf& fits_of) {
  const std::string framework = list.framework;
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
  add_fits(system, framework, fits_of);
  const auto own = [&](const KernelFit& f) { return f.framework == framework; };
  if (std::none_of(base.fits.begin(), base.fits.end(), own))
    throw UserError({Diagnostic{
        {},
        fmt::format("no kernels of {} were measured for the calibration of {}", framework, system.name),
        {fmt::format("shardline calibrate --framework \"{} VERSION\" makes one of such tables",
                     framework)}}});
}

std::filesystem::path fits_file(const std::string& calibration, const std::string& framework,
                                const std::filesystem::path& catalog_dir) {
  return calibrations_beside(catalog_dir) / fmt::format("{}.{}.yaml", calibration, framework);
}

FitsOf fits_in(const std::filesystem::path& catalog_dir) {
  return [&catalog_dir](const std::string& calibration, const std::string& framework) {
    return framework_calibration(calibration, framework, catalog_dir);
  };
}

}  // namespace

std::filesystem::path calibrations_beside(const std::filesystem::path& catalog_dir) {
  return catalog_dir.parent_path() / "calibrations";
}

Calibration load_calibration(const std::filesystem::path& file) {
  static ParsedDocuments<Calibration> known;
  return *known.load(file, [](const Document& document) {
    const Reader root = document.root();
    Calibration c = read_calibration(root.at("calibration"));
    root.no_other_keys();
    document.finish();
    return c;
  });
}

void add_kernels(System& system, const std::string& framework, const std::filesystem::path& catalog_dir) {
  add_fits(system, framework, fits_in(catalog_dir));
}

void use_framework(System& system, const std::string& framework, const std::filesystem::path& catalog_dir) {
  use_list(system, load_kernel_list(framework, catalog_dir), fits_in(catalog_dir));
}

std::vector<std::string> MeasuredFrameworks::names(const System& own) const {
  if (own.kernels.named || own.calibration.empty() || own.calibration.name.empty()) return {};
  std::vector<std::string> out = kernel_list_names(catalog_dir_);
  std::erase_if(out, [&](const std::string& framework) {
    std::error_code error;
    return framework == own.kernels.framework ||
           !std::filesystem::exists(fits_file(own.calibration.name, framework, catalog_dir_), error);
  });
  return out;
}

std::vector<System> MeasuredFrameworks::others(const System& own) const {
  const std::vector<std::string> frameworks = names(own);
  const std::lock_guard<std::mutex> lock(mutex_);
  const FitsOf fits_of = [&](const std::string& calibration, const std::string& framework) {
    const auto [at, fresh] = fits_.try_emplace({calibration, framework});
    if (fresh) at->second = framework_calibration(calibration, framework, catalog_dir_);
    return at->second;
  };
  std::vector<System> out;
  for (const std::string& framework : frameworks) {
    const auto [list, fresh] = lists_.try_emplace(framework);
    if (fresh) list->second = load_kernel_list(framework, catalog_dir_);
    use_list(out.emplace_back(own), list->second, fits_of);
  }
  return out;
}

std::optional<Calibration> framework_calibration(const std::string& calibration, const std::string& framework,
                                                 const std::filesystem::path& catalog_dir) {
  const std::filesystem::path file = fits_file(calibration, framework, catalog_dir);
  std::error_code error;
  if (framework.empty() || !std::filesystem::exists(file, error)) return std::nullopt;
  Calibration c = load_calibration(file);
  if (c.framework != framework)
    throw UserError(
        fmt::format("{} says that its kernels are of \"{}\"", file.filename().string(), c.framework));
  return c;
}

}  // namespace shardline
