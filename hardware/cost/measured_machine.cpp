#include "hardware/cost/measured_machine.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "hardware/machine/system.hpp"

namespace shardline {

namespace {

double peak(const System& s, Dtype t) { return s.device.peak[static_cast<std::size_t>(t)].value; }

constexpr MachineFigure kFigures[] = {
    {"device.memory.bandwidth", FigureUse::device,
     [](const System& s) { return s.device.memory_bandwidth.value; }},
    {"device.compute.fp4", FigureUse::device, [](const System& s) { return peak(s, Dtype::fp4); }},
    {"device.compute.fp8", FigureUse::device, [](const System& s) { return peak(s, Dtype::fp8); }},
    {"device.compute.bf16", FigureUse::device, [](const System& s) { return peak(s, Dtype::bf16); }},
    {"device.compute.exponentials", FigureUse::device,
     [](const System& s) { return s.device.exponentials.value; }},
    {"device.multiprocessors", FigureUse::device,
     [](const System& s) { return double(s.device.multiprocessors); }},
    {"fabric.nvlink.bandwidth", FigureUse::nvlink,
     [](const System& s) { return s.fabric.nvlink.bandwidth.value; }},
    {"fabric.network.bandwidth", FigureUse::network,
     [](const System& s) { return s.fabric.network.bandwidth.value; }},
    {"device.kernel_cost", FigureUse::parameter, [](const System& s) { return s.device.kernel_cost.value; }},
    {"device.memory.efficiency", FigureUse::parameter,
     [](const System& s) { return s.device.memory_efficiency; }},
    {"device.compute.efficiency", FigureUse::parameter,
     [](const System& s) { return s.device.compute_efficiency; }},
    {"device.compute.attention_efficiency", FigureUse::parameter,
     [](const System& s) { return s.device.attention_efficiency; }},
    {"device.compute.tile_efficiency", FigureUse::parameter,
     [](const System& s) { return s.device.tile_efficiency; }},
    {"device.compute.sms", FigureUse::parameter, [](const System& s) { return double(s.device.sms); }},
    {"fabric.nvlink.latency", FigureUse::parameter,
     [](const System& s) { return s.fabric.nvlink.latency.value; }},
    {"fabric.nvlink.efficiency", FigureUse::parameter,
     [](const System& s) { return s.fabric.nvlink.switches > 0 ? s.fabric.nvlink.efficiency : 0; }},
    {"fabric.network.latency", FigureUse::parameter,
     [](const System& s) { return s.fabric.network.latency.value; }},
    {"fabric.network.efficiency", FigureUse::parameter,
     [](const System& s) { return s.fabric.network.present ? s.fabric.network.efficiency : 0; }},
    {"fabric.network.spine_latency", FigureUse::parameter,
     [](const System& s) { return s.fabric.network.spine_latency.value; }},
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

MeasuredMachine measured_machine(const System& system) {
  MeasuredMachine m{system.name, system.device.name, {}};
  for (const MachineFigure& f : kFigures) m.figures.push_back(f.of(system));
  return m;
}

MeasuredMachine read_machine(const Reader& r) {
  MeasuredMachine m;
  m.system = r.at("system").text();
  m.device = r.at("device").text();
  const Reader figures = r.at("figures");
  for (const MachineFigure& f : kFigures) {
    const auto v = figures.find(f.key);
    m.figures.push_back(v ? v->number(0, std::numeric_limits<double>::max()) : 0);
  }
  figures.no_other_keys();
  r.no_other_keys();
  return m;
}

std::string machine_yaml(const MeasuredMachine& m) {
  std::string out = fmt::format(
      "machine:  # that was measured; figures in SI units\n    system: {}\n    device: \"{}\"\n    figures:",
      m.system, m.device);
  for (std::size_t i = 0; i < m.figures.size(); ++i) {
    if (m.figures[i] != 0) out += fmt::format("\n      {}: {:.7g}", kFigures[i].key, m.figures[i]);
  }
  return out;
}

}  // namespace shardline
