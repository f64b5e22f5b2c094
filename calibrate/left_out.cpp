#include "calibrate/left_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace shardline {

namespace {

/// A time of so many times the shortest is a kernel's more than the host's, which launches beside it.
constexpr double kAboveHost = 3;
constexpr std::string_view kRenamed = "moe_";  // before torch_flow, in newer tables of TensorRT-LLM

struct Row {
  const MeasurementTable& table;
  std::size_t at;
  double shortest;  // seconds, of the rows with the same words

  std::string_view word(std::string_view column) const { return table.word(column)[at]; }
  double number(std::string_view column) const { return table.number(column)[at]; }
  double seconds() const { return table.median[at].value; }
  bool of(std::string_view engine) const { return table.engines[at] == engine; }
  bool of(std::string_view engine, std::string_view version) const {
    return of(engine) && table.versions[at] == version;
  }
};

struct Rule {
  const char* family;
  const char* reason;
  bool (*applies)(const Row&);
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// One layer of vLLM 0.14.0's MLA collectors costs its host 100 us.
bool launched_by_host(const Row& r) { return r.of("vllm", "0.14.0") && r.word("scope") == "kernel"; }

constexpr Rule kLeftOut[] = {
    {"allreduce", "launched eagerly: host time",
     [](const Row& r) { return r.word("implementation").ends_with("_eager"); }},
    {"nccl", "an all-reduce of int8 on more than four GPUs: switches add no such numbers",
     [](const Row& r) {
       return r.word("op") == "all_reduce" && r.word("dtype") == "int8" && r.number("gpus") > 4;
     }},
    {"mla_prefill", "kernels of vLLM 0.14.0: 100 us of host time", launched_by_host},
    {"mla_decode", "kernels of vLLM 0.14.0: 100 us of host time", launched_by_host},
    {"mla_prefill", "a wide-EP module below three times its shortest row: host time",
     [](const Row& r) {
       return r.word("scope") == "module_wideep" && r.seconds() < kAboveHost * r.shortest;
     }},
    {"mla_prefill", "SGLang's absorbed form on Hopper, which it does not run for prompts",
     [](const Row& r) {
       return r.of("sglang") && r.word("scope") == "kernel" && r.word("kernel") == "flash_attention";
     }},
    {"mla_prefill", "absorbed kernels of vLLM, which it takes for short prompts",
     [](const Row& r) { return r.of("vllm") && contains(r.word("kernel"), "MLA"); }},
    {"mla_prefill", "a cached prefix, which the form has no term for",
     [](const Row& r) { return r.number("kv_cached") > 0; }},
    {"attention_prefill", "a kernel for decode",
     [](const Row& r) { return r.word("kernel").ends_with("decode"); }},
    {"alltoall", "a congested network of 64 GPUs",
     [](const Row& r) { return r.word("implementation") == "deepep_v050_normal" && r.number("gpus") >= 64; }},
    {"quantize", "SGLang's static path of unfused operations, which its kernels do not run",
     [](const Row& r) { return r.of("sglang"); }},
};

// By row: the shortest time of those with the same engine and words.
std::vector<double> shortest_times(const MeasurementTable& t) {
  std::map<std::vector<std::string>, double> least;
  std::vector<std::vector<std::string>> keys(t.size());
  for (std::size_t row = 0; row < t.size(); ++row) {
    keys[row] = {t.engines[row], t.versions[row]};
    for (const auto& column : t.words) {
      if (!column.empty()) keys[row].push_back(column[row]);
    }
    const auto [at, fresh] = least.emplace(keys[row], t.median[row].value);
    if (!fresh) at->second = std::min(at->second, t.median[row].value);
  }
  std::vector<double> out;
  for (const auto& key : keys) out.push_back(least.at(key));
  return out;
}

template <class T>
void keep(std::vector<T>& column, const std::vector<bool>& kept) {
  if (column.empty()) return;  // of the other kind
  std::size_t to = 0;
  for (std::size_t from = 0; from < kept.size(); ++from) {
    if (!kept[from]) continue;
    if (to != from) column[to] = std::move(column[from]);
    ++to;
  }
  column.erase(column.begin() + static_cast<std::ptrdiff_t>(to), column.end());
}

void rename_kernels(MeasurementTable& t) {
  if (t.family->name != std::string_view("moe")) return;
  for (std::size_t i = 0; i < t.family->columns.size(); ++i) {
    if (t.family->columns[i].name != std::string_view("kernel")) continue;
    for (std::string& kernel : t.words[i]) {
      if (kernel.starts_with("moe_torch_flow")) kernel.erase(0, kRenamed.size());
    }
  }
}

}  // namespace

void leave_out(MeasurementTable& t, const std::string& file) {
  rename_kernels(t);
  std::vector<const Rule*> rules;
  for (const Rule& r : kLeftOut) {
    if (t.family->name == std::string_view(r.family)) rules.push_back(&r);
  }
  if (rules.empty()) return;
  const std::vector<double> shortest = shortest_times(t);
  std::vector<bool> kept(t.size(), true);
  std::map<const Rule*, std::size_t> counts;
  for (std::size_t row = 0; row < t.size(); ++row) {
    const auto applied = std::find_if(rules.begin(), rules.end(), [&](const Rule* r) {
      return r->applies({t, row, shortest[row]});
    });
    if (applied == rules.end()) continue;
    kept[row] = false;
    ++counts[*applied];
  }
  if (counts.empty()) return;
  for (auto& column : t.numbers) keep(column, kept);
  for (auto& column : t.words) keep(column, kept);
  keep(t.engines, kept);
  keep(t.versions, kept);
  keep(t.median, kept);
  keep(t.low, kept);
  keep(t.high, kept);
  keep(t.samples, kept);
  for (const Rule* r : rules) {
    if (const auto n = counts.find(r); n != counts.end())
      t.notes.push_back(
          fmt::format("{}: {} row{} left out: {}", file, n->second, n->second == 1 ? "" : "s", r->reason));
  }
}

}  // namespace shardline
