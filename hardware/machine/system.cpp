#include "hardware/machine/system.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <type_traits>

#include "hardware/machine/frameworks.hpp"
#include "hardware/machine/number_ranges.hpp"
#include "hardware/machine/setting_paths.hpp"
#include "sim/base/file_name.hpp"
#include "sim/base/harmless.hpp"

namespace shardline {

namespace {

constexpr long long kMostGpus = 8192;

// Of whole systems: what was fitted to one framework's kernels alone has a dot in its name.
std::vector<std::string> shipped_calibrations(const std::filesystem::path& folder) {
  std::vector<std::string> names = system_names(folder);
  std::erase_if(names, [](const std::string& n) { return n.find('.') != std::string::npos; });
  return names;
}

template <class Q>
Q positive(const Reader& r) {
  constexpr NumberRange kRange = std::is_same_v<Q, FlopsPerSecond> ? ranges::kPeak : ranges::kBytes;
  return r.quantity<Q>(Q(kRange.least), Q(kRange.most));
}

Seconds time_of(const Reader& r) {
  constexpr NumberRange kRange = ranges::kTime;
  const Seconds time = r.quantity<Seconds>(Seconds(kRange.least), Seconds(kRange.most));
  if (time > Seconds(0) && time < Seconds(kRange.shortest))
    r.fault(fmt::format("{}: {} is shorter than anything of a machine: expected 0 s, or 1 ns to 1 s",
                        r.path(), to_string(time)));
  return time;
}

double number(const Reader& r, const NumberRange& range) { return r.number(range.least, range.most); }

double fraction(const Reader& r) { return number(r, ranges::kFraction); }

int count(const Reader& r, const NumberRange& range) {
  return static_cast<int>(
      r.integer(static_cast<std::int64_t>(range.least), static_cast<std::int64_t>(range.most)));
}

Bytes traffic(const Reader& r) {
  return r.quantity<Bytes>(Bytes(ranges::kTraffic.least), Bytes(ranges::kTraffic.most));
}

/// Of the device of a catalogue file; 0 where it says none, or there is no such file.
double power_limit_of(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return 0;
  Document document = Document::load(file);
  const Reader device = document.root().at("device");
  const auto limit = device.is_map() ? device.find("power_limit_w") : std::nullopt;
  return limit ? limit->number(10, 10'000) : 0;
}

/// Kernels that a system file prefers to those of the list, each in every family that has one of this name.
std::vector<KernelRule> read_prefer(const Reader& preferred, const Calibration& c) {
  std::vector<KernelRule> rules;
  std::set<std::string> known;
  for (const KernelFit& f : c.fits) {
    if (const auto column = kernel_column(*f.form)) known.insert(f.words[*column]);
  }
  for (const Reader& item : preferred.items()) {
    const std::string kernel = item.text();
    std::set<std::string> families;
    for (const KernelFit& f : c.fits) {
      const auto column = kernel_column(*f.form);
      if (!column || f.words[*column] != kernel || !families.insert(f.form->family).second) continue;
      KernelRule rule;
      rule.family = f.form->family;
      rule.use = {{"", kernel}};
      rule.why = "the system file prefers it";
      rules.push_back(std::move(rule));
    }
    if (families.empty())
      item.fault("no fit is of kernel " + kernel,
                 expected_one_of(kernel, std::vector<std::string>(known.begin(), known.end())));
  }
  return rules;
}

/// The mapping itself, {like: another system's}, a shipped calibration's name, or the path of a file beside
/// this one. `prefer`: rules that go before those of the framework's list.
Calibration calibration_of(const Reader& r, const std::filesystem::path& folder,
                           const std::filesystem::path& catalog_dir, std::vector<KernelRule>& prefer) {
  const bool borrowed = r.is_map() && r.has("like");
  if (r.is_map() && !borrowed) return read_calibration(r);
  const Reader named = borrowed ? r.at("like") : r;
  const auto preferred = borrowed ? r.find("prefer") : std::nullopt;
  const std::filesystem::path name(named.text());
  if (borrowed) r.no_other_keys();
  if (!named.is_scalar()) return {};  // text() has said so
  const bool path = name.has_parent_path() || name.has_extension();
  const std::filesystem::path shipped = calibrations_beside(catalog_dir);
  std::error_code error;  // a name may be too long for any file
  if (!path && !std::filesystem::exists(shipped / (name.string() + ".yaml"), error)) {
    std::vector<std::string> details;
    if (!catalog_dir.empty()) details = expected_one_of(name.string(), shipped_calibrations(shipped));
    details.emplace_back("or a path ending in .yaml, or the mapping itself");
    named.fault("unknown calibration " + name.string(), std::move(details));
    return {};
  }
  Calibration c = load_calibration(path ? folder / name : shipped / (name.string() + ".yaml"));
  if (preferred) prefer = read_prefer(*preferred, c);
  if (!path) c.name = name.string();
  if (borrowed) {
    c.like = name.string();
    c.power_limit = power_limit_of(catalog_dir / (name.string() + ".yaml"));
  }
  return c;
}

// Of the numbers that a warning may name.
std::vector<KeyPlace> places_of(const Reader& root) {
  std::vector<KeyPlace> out;
  for (const MachineFigure& f : machine_figures()) {
    std::string_view rest = f.key;
    std::optional<Reader> at = root;
    while (at && !rest.empty()) {
      const std::size_t dot = std::min(rest.find('.'), rest.size());
      at = at->is_map() ? at->find(rest.substr(0, dot)) : std::nullopt;
      rest.remove_prefix(std::min(dot + 1, rest.size()));
    }
    if (at) out.push_back({f.key, at->location()});
  }
  return out;
}

System read_system(Document& document, const std::filesystem::path& folder,
                   const std::filesystem::path& catalog_dir) {
  System s;
  const Reader r = document.root();
  const Reader name = r.at("name");
  s.name = name.text();
  // Pictures are named after the system.
  if (const auto why = not_a_file_name(s.name); why && name.is_scalar() && !is_harmful(s.name))
    name.fault("name " + *why, {"expected a plain file name"});
  if (const auto summary = r.find("summary")) s.summary = summary->text();
  s.device = read_device(r.at("device"));
  s.fabric = read_fabric(r.at("fabric"));
  if (const auto runtime = r.find("runtime")) s.runtime = read_runtime(*runtime);
  if (const auto power = r.find("power"))
    s.power = read_board_power(*power, s.device.power_limit, catalog_dir);
  std::vector<KernelRule> prefer;
  if (const auto calibration = r.find("calibration"))
    s.calibration = calibration_of(*calibration, folder, catalog_dir, prefer);
  if (s.fabric.nvlink.switches == 0 && s.fabric.gpus_per_node > 1) {
    r.at("fabric").fault("fabric.nvlink is required where a node has several GPUs");
  }
  if (!s.fabric.network.present && s.fabric.nodes > 1) {
    r.at("fabric").fault("fabric.network is required where there are several nodes");
  }
  r.no_other_keys();
  document.finish();
  s.places = places_of(r);
  const std::string framework(s.calibration.framework.empty() ? std::string(kDefaultFramework)
                                                              : s.calibration.framework);
  const std::vector<std::string> lists = kernel_list_names(catalog_dir);
  if (!s.calibration.empty() && std::find(lists.begin(), lists.end(), framework) != lists.end())
    s.kernels = load_kernel_list(framework, catalog_dir);
  s.kernels.rules.insert(s.kernels.rules.begin(), prefer.begin(), prefer.end());
  return s;
}

}  // namespace

Device read_device(const Reader& r) {
  Device d;
  d.name = r.at("name").text();
  if (const auto source = r.find("source")) d.source = source->text();
  const Reader memory = r.at("memory");
  d.memory = positive<Bytes>(memory.at("capacity"));
  d.memory_bandwidth = positive<BytesPerSecond>(memory.at("bandwidth"));
  d.memory_efficiency = fraction(memory.at("efficiency"));
  d.usable_memory = fraction(memory.at("usable"));
  memory.no_other_keys();

  const Reader compute = r.at("compute");
  int units = 0;
  for (const Dtype t : {Dtype::fp4, Dtype::fp8, Dtype::bf16, Dtype::fp32}) {
    if (const auto peak = compute.find(to_string(t))) {
      d.peak[static_cast<std::size_t>(t)] = positive<FlopsPerSecond>(*peak);
      ++units;
    }
  }
  if (units == 0) compute.fault("device.compute needs the peak of at least one of fp4, fp8, bf16, fp32");
  d.exponentials = positive<FlopsPerSecond>(compute.at("exponentials"));
  d.compute_efficiency = fraction(compute.at("efficiency"));
  if (const auto v = compute.find("attention_efficiency")) d.attention_efficiency = fraction(*v);
  if (const auto v = compute.find("tile_efficiency")) d.tile_efficiency = fraction(*v);
  if (const auto v = compute.find("sms")) d.sms = count(*v, ranges::kMultiprocessors);
  compute.no_other_keys();

  if (const auto v = r.find("power_limit_w")) d.power_limit = v->number(10, 10'000);
  if (const auto v = r.find("multiprocessors")) d.multiprocessors = count(*v, ranges::kMultiprocessors);
  d.kernel_cost = time_of(r.at("kernel_cost"));
  r.no_other_keys();
  return d;
}

Passes read_passes(const Reader& r) {
  Passes p;
  const auto times = [&](const char* key, double& out) {
    if (const auto v = r.find(key)) out = number(*v, ranges::kPasses);
  };
  times("norm", p.norm);
  times("rotary", p.rotary);
  times("residual", p.residual);
  times("activation", p.activation);
  times("merge", p.merge);
  r.no_other_keys();
  return p;
}

Runtime read_runtime(const Reader& r) {
  Runtime t;
  const auto seconds = [&](const char* key, Seconds& out) {
    if (const auto v = r.find(key)) out = time_of(*v);
  };
  seconds("ring_step", t.ring_step);
  seconds("send_recv", t.send_recv);
  seconds("all_to_all", t.all_to_all);
  seconds("persistent_layer", t.persistent_layer);
  seconds("host_layer", t.host_layer);
  seconds("host_gather", t.host_gather);
  if (const auto v = r.find("persistent_traffic")) t.persistent_traffic = traffic(*v);
  seconds("distribute", t.distribute);
  if (const auto v = r.find("retaining_traffic")) t.retaining_traffic = traffic(*v);
  if (const auto v = r.find("passes")) t.passes = read_passes(*v);
  r.no_other_keys();
  return t;
}

FabricSpec read_fabric(const Reader& r) {
  FabricSpec f;
  f.nodes = static_cast<int>(r.at("nodes").integer(1, 4096));
  f.gpus_per_node = static_cast<int>(r.at("gpus_per_node").integer(1, 1024));
  if (const auto v = r.find("tray")) {
    f.tray = static_cast<int>(v->integer(1, 1024));
    if (f.gpus_per_node % f.tray != 0)
      v->fault(
          fmt::format("fabric.tray: trays of {} GPUs do not make up a node of {}", f.tray, f.gpus_per_node));
  }
  const long long gpus = static_cast<long long>(f.nodes) * f.gpus_per_node;
  if (gpus > kMostGpus) r.fault(fmt::format("fabric has {} GPUs: at most {} are possible", gpus, kMostGpus));
  if (const auto nvlink = r.find("nvlink")) {
    f.nvlink.switches = count(nvlink->at("switches"), ranges::kSwitches);
    f.nvlink.bandwidth = positive<BytesPerSecond>(nvlink->at("bandwidth"));
    f.nvlink.latency = time_of(nvlink->at("latency"));
    f.nvlink.efficiency = fraction(nvlink->at("efficiency"));
    if (const auto multicast = nvlink->find("multicast")) f.nvlink.multicast = multicast->boolean();
    nvlink->no_other_keys();
  }
  if (const auto network = r.find("network")) {
    NetworkSpec& n = f.network;
    n.present = true;
    n.bandwidth = positive<BytesPerSecond>(network->at("bandwidth"));
    n.latency = time_of(network->at("latency"));
    n.efficiency = fraction(network->at("efficiency"));
    n.host_link = positive<BytesPerSecond>(network->at("host_link"));
    if (const auto v = network->find("gpus_per_nic")) n.gpus_per_nic = count(*v, ranges::kGpusPerNic);
    if (const auto v = network->find("rail_optimised")) n.rail_optimised = v->boolean();
    if (const auto v = network->find("nodes_per_leaf")) n.nodes_per_leaf = count(*v, ranges::kNodesPerLeaf);
    if (const auto v = network->find("oversubscription"))
      n.oversubscription = number(*v, ranges::kOversubscription);
    if (const auto v = network->find("spine_latency")) n.spine_latency = time_of(*v);
    if (const auto p2p = network->find("send_recv")) {
      n.send_recv_extra = time_of(p2p->at("latency")) - n.latency;
      n.send_recv_share = fraction(p2p->at("efficiency")) / n.efficiency;
      p2p->no_other_keys();
    }
    if (const auto all = network->find("all_to_all")) {
      n.all_to_all_extra = time_of(all->at("latency")) - n.latency;
      all->no_other_keys();
    }
    network->no_other_keys();
  }
  r.no_other_keys();
  return f;
}

System parse_system(const std::string& file_name, const std::string& text,
                    const std::filesystem::path& catalog_dir) {
  Document document = Document::parse(file_name, text);
  return read_system(document, std::filesystem::path(file_name).parent_path(), catalog_dir);
}

System load_system(const std::string& name_or_path, const std::filesystem::path& catalog_dir,
                   const std::vector<std::string>& settings) {
  const std::filesystem::path file = system_file(name_or_path, catalog_dir);
  Document document = Document::load(file);
  for (const std::string& setting : settings) document.set(kSettingOrigin, setting_with_whole_path(setting));
  System s = read_system(document, file.parent_path(), catalog_dir);
  s.settings = settings;
  add_kernels(s, s.kernels.framework, catalog_dir);
  return s;
}

}  // namespace shardline
