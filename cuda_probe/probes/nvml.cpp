#include "cuda_probe/probes/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace shardline {

// NVML's interface, as far as it is used here: its header is not part of every toolkit.
struct Nvml::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*by_bus_id)(const char*, void**) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*max_clock)(void*, int, unsigned*) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;
  int (*power_limit)(void*, unsigned*) = nullptr;
  int (*temperature)(void*, int, unsigned*) = nullptr;
  int (*ecc)(void*, int*, int*) = nullptr;
  int (*mig)(void*, unsigned*, unsigned*) = nullptr;

  template <class F>
  void load(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(dlsym(handle, name));
  }
};

namespace {

constexpr int kSmClock = 1, kMemoryClock = 2;
constexpr unsigned long long kPowerCap = 0x4, kHardwareSlowdown = 0x8, kSoftwareThermal = 0x20,
                             kHardwareThermal = 0x40, kPowerBrake = 0x80;

}  // namespace

bool is_throttled(unsigned long long reasons) {
  return (reasons & (kHardwareSlowdown | kSoftwareThermal | kHardwareThermal | kPowerBrake)) != 0;
}

bool is_power_capped(unsigned long long reasons) { return (reasons & kPowerCap) != 0; }

Nvml::Nvml(const std::string& bus_id) : library_(std::make_unique<Library>()) {
  Library& l = *library_;
  l.handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (l.handle == nullptr) {
    missing_ = "NVML (libnvidia-ml.so.1) was not found: clocks and throttling are unknown";
    return;
  }
  l.load(l.init, "nvmlInit_v2");
  l.load(l.shutdown, "nvmlShutdown");
  l.load(l.driver_version, "nvmlSystemGetDriverVersion");
  l.load(l.by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  l.load(l.clock, "nvmlDeviceGetClockInfo");
  l.load(l.max_clock, "nvmlDeviceGetMaxClockInfo");
  l.load(l.reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  if (l.reasons == nullptr) l.load(l.reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");  // before R535
  l.load(l.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  l.load(l.temperature, "nvmlDeviceGetTemperature");
  l.load(l.ecc, "nvmlDeviceGetEccMode");
  l.load(l.mig, "nvmlDeviceGetMigMode");
  const int started = l.init != nullptr ? l.init() : -1;
  if (started != 0) {
    missing_ = fmt::format("NVML does not start (error {}): clocks and throttling are unknown", started);
    l.shutdown = nullptr;
    return;
  }
  const int found = l.by_bus_id != nullptr ? l.by_bus_id(bus_id.c_str(), &device_) : -1;
  if (found != 0) {
    device_ = nullptr;
    missing_ =
        fmt::format("NVML does not know GPU {} (error {}): clocks and throttling are unknown", bus_id, found);
  }
}

Nvml::~Nvml() {
  if (library_->shutdown != nullptr) library_->shutdown();
  if (library_->handle != nullptr) dlclose(library_->handle);
}

void Nvml::describe(DeviceInfo& d) const {
  const Library& l = *library_;
  std::array<char, 96> text{};
  if (l.shutdown != nullptr && l.driver_version != nullptr &&
      l.driver_version(text.data(), static_cast<unsigned>(text.size())) == 0)
    d.driver = text.data();
  if (device_ == nullptr) return;
  const auto clock = [&](auto function, int kind) {
    unsigned mhz = 0;
    return function != nullptr && function(device_, kind, &mhz) == 0 ? static_cast<double>(mhz) : 0.0;
  };
  d.sm_clock = clock(l.clock, kSmClock);
  d.sm_clock_highest = clock(l.max_clock, kSmClock);
  d.memory_clock = clock(l.clock, kMemoryClock);
  d.memory_clock_highest = clock(l.max_clock, kMemoryClock);
  d.temperature = clock(l.temperature, 0);
  unsigned milliwatts = 0;
  if (l.power_limit != nullptr && l.power_limit(device_, &milliwatts) == 0) d.power_limit = milliwatts / 1e3;
  int now = 0, pending = 0;
  if (l.ecc != nullptr && l.ecc(device_, &now, &pending) == 0) d.ecc = now != 0 ? "on" : "off";
  unsigned mig = 0, mig_pending = 0;
  if (l.mig != nullptr && l.mig(device_, &mig, &mig_pending) == 0) d.mig = mig != 0 ? "on" : "off";
}

Nvml::State Nvml::state() const {
  State s;
  if (device_ == nullptr) return s;
  unsigned mhz = 0;
  if (library_->clock != nullptr && library_->clock(device_, kSmClock, &mhz) == 0) s.clock = mhz;
  unsigned long long reasons = 0;
  if (library_->reasons != nullptr && library_->reasons(device_, &reasons) == 0) {
    s.throttled = is_throttled(reasons);
    s.capped = is_power_capped(reasons);
  }
  return s;
}

}  // namespace shardline
