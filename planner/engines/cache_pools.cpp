#include "planner/engines/cache_pools.hpp"

#include <algorithm>
#include <array>

namespace shardline {

namespace {

constexpr long long kMostTokensLate = 1'000'000;
constexpr int kMostStates = 64, kMostSteps = 16;

bool among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A type of some of a kind of caches, on the devices that it is said of.
std::map<Architecture, Dtype> read_types(const Reader& r) {
  constexpr std::array kTypes{Dtype::bf16, Dtype::fp8};
  std::map<Architecture, Dtype> out;
  for (const Architecture a : {Architecture::ampere, Architecture::hopper, Architecture::blackwell}) {
    if (const auto type = r.find(std::string(to_string(a)))) out[a] = kTypes[type->one_of({"bf16", "fp8"})];
  }
  if (out.empty()) r.fault(r.path() + ": expected a type for some of ampere, hopper and blackwell");
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
  return out;
}

// Architectures, each once: a name that stands twice is a slip of whoever wrote the profile.
void read_architectures(const Reader& r, std::vector<std::string>& out) {
  for (const Reader& item : r.items()) {
    const std::string name = item.text();
    if (name.empty()) item.fault(item.path() + ": expected an architecture, as GptOssForCausalLM");
    if (among(out, name)) item.fault(item.path() + ": " + name + " stands here twice");
    out.push_back(name);
  }
}

void read_windows(const Reader& r, WindowCaches& w) {
  if (const auto v = r.find("of")) {
    w.of_some = true;
    read_architectures(*v, w.of);
  }
  if (const auto v = r.find("split")) w.split = v->boolean();
  if (const auto v = r.find("late")) w.late = v->tokens(0, kMostTokensLate);
  if (const auto v = r.find("piece")) w.piece = v->boolean();
  if (const auto v = r.find("steps")) w.steps = static_cast<int>(v->integer(0, kMostSteps));
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
}

void read_states(const Reader& r, StateCaches& s) {
  const auto states = [&](const char* key) { return static_cast<int>(r.at(key).integer(1, kMostStates)); };
  s.told = true;
  s.plain = states("plain");
  s.buffered = states("buffered");
  s.buffered_waiting = states("buffered_waiting");
  if (s.buffered < s.buffered_waiting || s.buffered_waiting < s.plain)
    r.fault(r.path() + ": expected plain <= buffered_waiting <= buffered");
  read_architectures(r.at("buffered_of"), s.buffered_of);
  s.of_all_stages = r.at("of_all_stages").boolean();
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
}

}  // namespace

bool CachePools::keeps_windows_whole(const std::string& architecture) const {
  return windows.of_some && !among(windows.of, architecture);
}

bool CachePools::buffers_states(const std::string& architecture) const {
  return among(states.buffered_of, architecture);
}

CachePools read_cache_pools(const Reader& memory) {
  CachePools out;
  if (const auto v = memory.find("windows")) read_windows(*v, out.windows);
  if (const auto v = memory.find("states")) read_states(*v, out.states);
  if (const auto v = memory.find("pages")) {
    out.page = v->at("tokens").tokens(1, kMostTokensLate);
    out.latent_page = v->at("mla").tokens(1, kMostTokensLate);
    static_cast<void>(v->at("why").text());
    v->no_other_keys();
  }
  if (const auto v = memory.find("indexes")) {
    out.index_everywhere = v->at("everywhere").boolean();
    static_cast<void>(v->at("why").text());
    v->no_other_keys();
  }
  if (const auto v = memory.find("sparse_latents")) {
    out.sparse_latents = read_types(*v);
  }
  if (const auto v = memory.find("compressed")) {
    out.compressed_block = v->at("tokens").tokens(1, kMostTokensLate);
    static_cast<void>(v->at("why").text());
    v->no_other_keys();
  }
  return out;
}

}  // namespace shardline
