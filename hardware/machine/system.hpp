// A system is a device and a fabric of such devices, read from YAML (hardware/catalog or a user's file).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hardware/cost/calibration.hpp"
#include "hardware/cost/kernel_list.hpp"
#include "hardware/machine/board_power.hpp"
#include "hardware/machine/device.hpp"
#include "hardware/machine/topology.hpp"

namespace shardline {

/// Where a system file gives a number.
struct KeyPlace {
  std::string key;  // of machine_figures()
  Location where;
};

/// What an engine's host adds to a step, beside its kernels (planner/README.md [P18]); zero: bare kernels.
struct StepHost {
  Seconds step;          // of every step
  Seconds request;       // for each request that decodes in it
  Seconds prompt_token;  // for each token of prompts in it
  Seconds launch;        // to start a kernel that is in no graph
  ErrorBand band = {};   // of ln(true / these), nominal 90 %
  std::string of = {};   // "vLLM 0.24.0"
};

struct System {
  std::string name;
  std::string summary;
  Device device;
  FabricSpec fabric;
  Runtime runtime;
  BoardPower power;              // of a GPU's board; empty: nothing is known of it
  StepHost host;                 // of the engine that runs on it
  Calibration calibration;       // empty: costs follow from the parameters above alone
  KernelList kernels;            // which of the calibration's kernels are run
  std::vector<KeyPlace> places;  // of machine_figures() that the file gives
  /// "device.memory.bandwidth=4 TB/s": what was set in place of what the file says.
  std::vector<std::string> settings;
  int gpus() const { return fabric.nodes * fabric.gpus_per_node; }
};

/// Reads a system document. Shipped calibrations that it names are those beside `catalog_dir`. Throws
/// UserError with every fault.
System parse_system(const std::string& file_name, const std::string& text,
                    const std::filesystem::path& catalog_dir = {});

/// `name_or_path` is a catalogue name or a path to a .yaml file. `settings` are KEY=VALUE in place of what
/// the file says (Document::set); the fits of its calibration then price a machine with other figures, as
/// those of another system (Calibration::kin). Throws UserError (unknown names with did-you-mean).
System load_system(const std::string& name_or_path, const std::filesystem::path& catalog_dir,
                   const std::vector<std::string>& settings = {});

/// What faults of a setting are located in: "--set:1:25".
inline constexpr const char* kSettingOrigin = "--set";
/// Whether the key of a setting is one of system files: device, fabric, runtime, calibration.
bool sets_system(std::string_view setting);
/// " with device.memory.bandwidth=4 TB/s and ...", behind a system's name; empty where nothing was set.
std::string set_text(const System& system);
/// Those of them.
std::vector<std::string> system_settings(const std::vector<std::string>& settings);
/// "did you mean device.memory.bandwidth?" of "bandwith=4 TB/s"; empty: its key is like none of a system
/// file.
std::vector<std::string> system_keys_like(std::string_view setting);

/// The file that load_system() reads for this name.
std::filesystem::path system_file(const std::string& name_or_path, const std::filesystem::path& catalog_dir);

/// Names in `catalog_dir`, sorted.
std::vector<std::string> system_names(const std::filesystem::path& catalog_dir);

}  // namespace shardline
