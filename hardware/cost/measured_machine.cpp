#include "hardware/cost/measured_machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hardware/machine/system.hpp"
#include "sim/base/yaml_scalar.hpp"

namespace shardline {

namespace {

double peak(const System& s, Dtype t) { return s.device.peak[static_cast<std::size_t>(t)].value; }

// Messages between nodes of their own latency and bandwidth are kept beside those of a collective's step. A
// file that gives none has those of the step.
double given(const NetworkSpec& n, Seconds extra) {
  return extra == Seconds(0) ? 0 : (n.latency + extra).value;
}

Seconds beside(const NetworkSpec& n, double latency) {
  return latency > 0 ? Seconds(latency) - n.latency : Seconds(0);
}

void set_network_latency(System& s, double v) {
  NetworkSpec& n = s.fabric.network;
  const double send_recv = given(n, n.send_recv_extra), all_to_all = given(n, n.all_to_all_extra);
  n.latency = Seconds(v);
  n.send_recv_extra = beside(n, send_recv);
  n.all_to_all_extra = beside(n, all_to_all);
}

void set_network_efficiency(System& s, double v) {
  NetworkSpec& n = s.fabric.network;
  if (n.send_recv_share != 1) n.send_recv_share *= n.efficiency / v;
  n.efficiency = v;
}

constexpr FigureUse kParameter = FigureUse::parameter;
constexpr bool kNeeded = true;

// A file that gives none has one pass over memory.
template <double Passes::*Kind>
constexpr MachineFigure passes(const char* key) {
  return {key, kParameter, ranges::kPasses,
          [](const System& s) { return s.runtime.passes.*Kind == 1 ? 0 : s.runtime.passes.*Kind; },
          [](System& s, double v) { s.runtime.passes.*Kind = v > 0 ? v : 1; }};
}

constexpr MachineFigure kFigures[] = {
    {"device.memory.bandwidth", FigureUse::device, ranges::kBytes,
     [](const System& s) { return s.device.memory_bandwidth.value; }},
    {"device.compute.fp4", FigureUse::device, ranges::kPeak,
     [](const System& s) { return peak(s, Dtype::fp4); }},
    {"device.compute.fp8", FigureUse::device, ranges::kPeak,
     [](const System& s) { return peak(s, Dtype::fp8); }},
    {"device.compute.bf16", FigureUse::device, ranges::kPeak,
     [](const System& s) { return peak(s, Dtype::bf16); }},
    {"device.compute.exponentials", FigureUse::device, ranges::kPeak,
     [](const System& s) { return s.device.exponentials.value; }},
    {"device.multiprocessors", FigureUse::device, ranges::kMultiprocessors,
     [](const System& s) { return double(s.device.multiprocessors); }},
    {"fabric.nvlink.bandwidth", FigureUse::nvlink, ranges::kBytes,
     [](const System& s) { return s.fabric.nvlink.bandwidth.value; }},
    {"fabric.network.bandwidth", FigureUse::network, ranges::kBytes,
     [](const System& s) { return s.fabric.network.bandwidth.value; }},
    {"device.kernel_cost", kParameter, ranges::kTime,
     [](const System& s) { return s.device.kernel_cost.value; },
     [](System& s, double v) { s.device.kernel_cost = Seconds(v); }},
    {"device.memory.efficiency", kParameter, ranges::kFraction,
     [](const System& s) { return s.device.memory_efficiency; },
     [](System& s, double v) { s.device.memory_efficiency = v; }, kNeeded},
    {"device.compute.efficiency", kParameter, ranges::kFraction,
     [](const System& s) { return s.device.compute_efficiency; },
     [](System& s, double v) { s.device.compute_efficiency = v; }, kNeeded},
    {"device.compute.attention_efficiency", kParameter, ranges::kFraction,
     [](const System& s) { return s.device.attention_efficiency; },
     [](System& s, double v) { s.device.attention_efficiency = v; }},
    {"device.compute.tile_efficiency", kParameter, ranges::kFraction,
     [](const System& s) { return s.device.tile_efficiency; },
     [](System& s, double v) { s.device.tile_efficiency = v; }},
    {"device.compute.sms", kParameter, ranges::kMultiprocessors,
     [](const System& s) { return double(s.device.sms); },
     [](System& s, double v) { s.device.sms = static_cast<int>(v); }},
    {"fabric.nvlink.switches", kParameter, ranges::kSwitches,
     [](const System& s) { return double(s.fabric.nvlink.switches); },
     [](System& s, double v) { s.fabric.nvlink.switches = static_cast<int>(v); }, kNeeded},
    {"fabric.nvlink.latency", kParameter, ranges::kTime,
     [](const System& s) { return s.fabric.nvlink.latency.value; },
     [](System& s, double v) { s.fabric.nvlink.latency = Seconds(v); }},
    {"fabric.nvlink.efficiency", kParameter, ranges::kFraction,
     [](const System& s) { return s.fabric.nvlink.switches > 0 ? s.fabric.nvlink.efficiency : 0; },
     [](System& s, double v) { s.fabric.nvlink.efficiency = v; }, kNeeded},
    {"fabric.nvlink.multicast", kParameter, ranges::kFlag,
     [](const System& s) { return double(s.fabric.nvlink.multicast); },
     [](System& s, double v) { s.fabric.nvlink.multicast = v > 0; }},
    {"fabric.network.latency", kParameter, ranges::kTime,
     [](const System& s) { return s.fabric.network.latency.value; }, set_network_latency},
    {"fabric.network.efficiency", kParameter, ranges::kFraction,
     [](const System& s) { return s.fabric.network.present ? s.fabric.network.efficiency : 0; },
     set_network_efficiency, kNeeded},
    {"fabric.network.host_link", kParameter, ranges::kBytes,
     [](const System& s) { return s.fabric.network.host_link.value; },
     [](System& s, double v) { s.fabric.network.host_link = BytesPerSecond(v); }, kNeeded},
    {"fabric.network.gpus_per_nic", kParameter, ranges::kGpusPerNic,
     [](const System& s) {
       return s.fabric.network.gpus_per_nic == 1 ? 0 : double(s.fabric.network.gpus_per_nic);
     },
     [](System& s, double v) { s.fabric.network.gpus_per_nic = v > 0 ? static_cast<int>(v) : 1; }},
    {"fabric.network.rail_optimised", kParameter, ranges::kFlag,
     [](const System& s) { return s.fabric.network.present ? double(s.fabric.network.rail_optimised) : 0; },
     [](System& s, double v) { s.fabric.network.rail_optimised = v > 0; }},
    {"fabric.network.nodes_per_leaf", kParameter, ranges::kNodesPerLeaf,
     [](const System& s) { return double(s.fabric.network.nodes_per_leaf); },
     [](System& s, double v) { s.fabric.network.nodes_per_leaf = static_cast<int>(v); }},
    {"fabric.network.oversubscription", kParameter, ranges::kOversubscription,
     [](const System& s) {
       return s.fabric.network.oversubscription == 1 ? 0 : s.fabric.network.oversubscription;
     },
     [](System& s, double v) { s.fabric.network.oversubscription = v > 0 ? v : 1; }},
    {"fabric.network.spine_latency", kParameter, ranges::kTime,
     [](const System& s) { return s.fabric.network.spine_latency.value; },
     [](System& s, double v) { s.fabric.network.spine_latency = Seconds(v); }},
    {"fabric.network.send_recv.latency", kParameter, ranges::kTime,
     [](const System& s) { return given(s.fabric.network, s.fabric.network.send_recv_extra); },
     [](System& s, double v) { s.fabric.network.send_recv_extra = beside(s.fabric.network, v); }},
    {"fabric.network.send_recv.efficiency", kParameter, ranges::kFraction,
     [](const System& s) {
       const NetworkSpec& n = s.fabric.network;
       return n.send_recv_share == 1 ? 0 : n.send_recv_share * n.efficiency;
     },
     [](System& s, double v) {
       s.fabric.network.send_recv_share = v > 0 ? v / s.fabric.network.efficiency : 1;
     }},
    {"fabric.network.all_to_all.latency", kParameter, ranges::kTime,
     [](const System& s) { return given(s.fabric.network, s.fabric.network.all_to_all_extra); },
     [](System& s, double v) { s.fabric.network.all_to_all_extra = beside(s.fabric.network, v); }},
    {"runtime.ring_step", kParameter, ranges::kTime,
     [](const System& s) { return s.runtime.ring_step.value; },
     [](System& s, double v) { s.runtime.ring_step = Seconds(v); }},
    {"runtime.send_recv", kParameter, ranges::kTime,
     [](const System& s) { return s.runtime.send_recv.value; },
     [](System& s, double v) { s.runtime.send_recv = Seconds(v); }},
    {"runtime.all_to_all", kParameter, ranges::kTime,
     [](const System& s) { return s.runtime.all_to_all.value; },
     [](System& s, double v) { s.runtime.all_to_all = Seconds(v); }},
    {"runtime.persistent_layer", kParameter, ranges::kTime,
     [](const System& s) { return s.runtime.persistent_layer.value; },
     [](System& s, double v) { s.runtime.persistent_layer = Seconds(v); }},
    {"runtime.host_layer", kParameter, ranges::kTime,
     [](const System& s) { return s.runtime.host_layer.value; },
     [](System& s, double v) { s.runtime.host_layer = Seconds(v); }},
    {"runtime.host_gather", kParameter, ranges::kTime,
     [](const System& s) { return s.runtime.host_gather.value; },
     [](System& s, double v) { s.runtime.host_gather = Seconds(v); }},
    {"runtime.distribute", kParameter, ranges::kTime,
     [](const System& s) { return s.runtime.distribute.value; },
     [](System& s, double v) { s.runtime.distribute = Seconds(v); }},
    {"runtime.persistent_traffic", kParameter, ranges::kTraffic,
     [](const System& s) { return s.runtime.persistent_traffic.value; },
     [](System& s, double v) { s.runtime.persistent_traffic = Bytes(v); }},
    {"runtime.retaining_traffic", kParameter, ranges::kTraffic,
     [](const System& s) { return s.runtime.retaining_traffic.value; },
     [](System& s, double v) { s.runtime.retaining_traffic = Bytes(v); }},
    passes<&Passes::norm>("runtime.passes.norm"),
    passes<&Passes::rotary>("runtime.passes.rotary"),
    passes<&Passes::residual>("runtime.passes.residual"),
    passes<&Passes::activation>("runtime.passes.activation"),
    passes<&Passes::merge>("runtime.passes.merge"),
};

// Files hold seven digits.
bool same(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b)); }

bool counts(const Form& form, FigureUse use) {
  const std::string_view family = form.family;
  const bool messages = family == "nccl" || family == "allreduce" || family == "alltoall";
  return use == FigureUse::device || (use == FigureUse::nvlink && messages) ||
         (use == FigureUse::network && family == "alltoall");
}

}  // namespace

std::span<const MachineFigure> machine_figures() { return kFigures; }

bool MeasuredMachine::has_measured(const System& s, const Form& form) const {
  if (empty() || s.device.name != device) return false;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const MachineFigure& f = kFigures[i];
    // Groups inside a node say nothing of a network, nor one without any of those inside.
    if (f.use == FigureUse::network && (figures[i] == 0 || f.of(s) == 0)) continue;
    if (counts(form, f.use) && !same(figures[i], f.of(s))) return false;
  }
  return true;
}

bool MeasuredMachine::same_processor(const System& s) const {
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const std::string_view key = kFigures[i].key;
    const bool counts = kFigures[i].use == FigureUse::device && key != "device.memory.bandwidth";
    if (counts && !same(figures[i], kFigures[i].of(s))) return false;
  }
  return !empty();
}

std::vector<std::string> MeasuredMachine::differences(const System& s) const {
  std::vector<std::string> out;
  if (empty()) return out;
  if (s.device.name != device) out.emplace_back("device.name");
  for (std::size_t i = 0; i < figures.size(); ++i) {
    const MachineFigure& f = kFigures[i];
    if (f.use == FigureUse::parameter || same(figures[i], f.of(s))) continue;
    if (f.use == FigureUse::network && (figures[i] == 0 || f.of(s) == 0)) continue;
    out.emplace_back(f.key);
  }
  return out;
}

std::optional<double> MeasuredMachine::figure(std::size_t i) const {
  if (empty() || (kFigures[i].needed && figures[i] == 0)) return std::nullopt;
  const std::string_view key = kFigures[i].key;
  for (const std::string_view links : {"fabric.nvlink.", "fabric.network."}) {
    if (!key.starts_with(links)) continue;
    for (std::size_t k = 0; k < figures.size(); ++k) {
      if (kFigures[k].key == std::string(links) + "bandwidth" && figures[k] == 0) return std::nullopt;
    }
  }
  return figures[i];
}

MeasuredMachine measured_machine(const System& system) {
  MeasuredMachine m{system.name, system.device.name, {}};
  for (const MachineFigure& f : kFigures) m.figures.push_back(f.of(system));
  return m;
}

namespace {

// A figure that stands there is one that a system file may have: what a price does with any other is no
// answer.
double read_figure(const Reader& r, const NumberRange& range) {
  if (range.whole)
    return static_cast<double>(
        r.integer(static_cast<std::int64_t>(range.least), static_cast<std::int64_t>(range.most)));
  const double value = r.number(range.least, range.most);
  if (value > 0 && value < range.shortest)
    r.fault(fmt::format("{}: {} s is shorter than anything of a machine: expected 0, or {} to {}", r.path(),
                        value, range.shortest, range.most));
  return value;
}

}  // namespace

MeasuredMachine read_machine(const Reader& r) {
  MeasuredMachine m;
  m.system = r.at("system").text();
  m.device = r.at("device").text();
  const Reader figures = r.at("figures");
  for (const MachineFigure& f : kFigures) {
    const auto v = figures.find(f.key);
    m.figures.push_back(v ? read_figure(*v, f.range) : 0);
  }
  figures.no_other_keys();
  r.no_other_keys();
  return m;
}

std::string machine_yaml(const MeasuredMachine& m) {
  std::string out = fmt::format(
      "machine:  # that was measured; figures in SI units\n    system: {}\n    device: {}\n    figures:",
      yaml_word(m.system), yaml_quoted(m.device));
  for (std::size_t i = 0; i < m.figures.size(); ++i) {
    if (m.figures[i] != 0) out += fmt::format("\n      {}: {:.7g}", kFigures[i].key, m.figures[i]);
  }
  return out;
}

}  // namespace shardline
