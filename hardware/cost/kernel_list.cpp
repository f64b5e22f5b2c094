#include "hardware/cost/kernel_list.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "sim/base/folder.hpp"
#include "sim/base/parsed_documents.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

namespace {

constexpr std::array<std::string_view, 3> kArchitectures{"ampere", "hopper", "blackwell"};
constexpr std::string_view kLibrary = "nccl", kNcclFamily = "nccl";
constexpr std::string_view kKernelColumns[] = {"kernel", "implementation"};

std::vector<std::string> architecture_names() { return {kArchitectures.begin(), kArchitectures.end()}; }

KernelName read_name(const Reader& r) {
  const std::string text = r.text();
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return {"", text};
  return {text.substr(0, slash), text.substr(slash + 1)};
}

// least_X and most_X, each if it is given.
void read_range(const Reader& when, std::string_view unit, double least_of_all, double most_of_all,
                double& least, double& most) {
  if (const auto v = when.find(fmt::format("least_{}", unit))) least = v->number(least_of_all, most_of_all);
  if (const auto v = when.find(fmt::format("most_{}", unit))) most = v->number(least_of_all, most_of_all);
  if (least > most) when.fault(fmt::format("no size is from {} to {}", least, most));
}

// A condition that nothing asks of a family's ops is no key of its rules.
KernelSizes read_sizes(const Reader& when, std::string_view family) {
  constexpr double kMost = 1e15, kMostRanks = 8192;
  KernelSizes s;
  if (const auto unit = size_unit(family)) read_range(when, *unit, 0, kMost, s.least, s.most);
  if (family == "alltoall" || family == "moe") {
    if (const auto v = when.find("step"))
      s.step = v->one_of({"decode", "prompts"}) == 1 ? StepRule::prompts : StepRule::decode;
  }
  if (family == "moe") {
    read_range(when, "ep", 1, kMostRanks, s.least_ranks, s.most_ranks);
    if (const auto v = when.find("tokens"))
      s.tokens = v->one_of({"here", "dispatched"}) == 1 ? TokensRule::dispatched : TokensRule::here;
    return s;
  }
  if (const auto v = when.find("gpus")) {
    for (const Reader& n : v->items()) s.gpus.push_back(static_cast<int>(n.integer(2, 8192)));
  }
  if (family == "allreduce") {
    if (const auto v = when.find("most_gpus_per_node")) s.most_node = v->number(1, kMostRanks);
  }
  return s;
}

std::vector<Architecture> read_architectures(const Reader& v) {
  std::vector<Architecture> out;
  for (const Reader& one : v.is_sequence() ? v.items() : std::vector<Reader>{v}) {
    const std::size_t i = one.one_of(architecture_names());
    out.push_back(static_cast<Architecture>(std::min(i, kArchitectures.size() - 1)));
  }
  return out;
}

void read_when(const Reader& when, const Form& form, KernelRule& rule) {
  if (const auto v = when.find("architecture")) rule.architectures = read_architectures(*v);
  const auto kernel = kernel_column(form);
  for (std::size_t w = 0; w < form.words.size(); ++w) {
    if (w == kernel) continue;
    if (const auto v = when.find(form.words[w])) rule.words.emplace_back(form.words[w], v->text());
  }
  rule.sizes = read_sizes(when, form.family);
  when.no_other_keys();
}

KernelRule read_rule(const Reader& r, const Form& form) {
  KernelRule rule;
  rule.family = form.family;
  const Reader use = r.at("use");
  for (const Reader& name : use.items()) rule.use.push_back(read_name(name));
  if (use.is_sequence() && rule.use.empty()) use.fault("use is empty", {"expected names of kernels"});
  if (const auto when = r.find("when")) read_when(*when, form, rule);
  if (const auto v = r.find("by_model")) rule.by_model = v->boolean();
  rule.why = r.at("why").text();
  r.no_other_keys();
  return rule;
}

// Types of weights, as a checkpoint has them.
std::vector<Dtype> read_absorbed(const Reader& r) {
  constexpr std::array kWeights{Dtype::fp8, Dtype::fp8_dynamic, Dtype::fp8_block};
  std::vector<Dtype> out;
  for (const Reader& one : r.at("weights").items())
    out.push_back(
        kWeights[std::min(one.one_of({"fp8_static", "fp8_dynamic", "fp8_block"}), kWeights.size() - 1)]);
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
  return out;
}

RowsOfOnePass read_index_rows(const Reader& r) {
  constexpr int kMostRows = 64;
  RowsOfOnePass out;
  out.architectures = read_architectures(r.at("architecture"));
  if (const auto rows = r.find("rows"))
    for (const Reader& n : rows->items()) out.rows.push_back(n.integer(2, kMostRows));
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
  return out;
}

KernelList read_list(const Document& document) {
  KernelList list;
  const Reader root = document.root();
  list.framework = root.at("name").text();
  list.version = root.at("version").text();
  if (const auto summary = root.find("summary")) static_cast<void>(summary->text());
  if (const auto v = root.find("mxfp4_in_fp8")) {
    list.mxfp4_in_fp8 = read_architectures(v->at("architecture"));
    static_cast<void>(v->at("why").text());
    v->no_other_keys();
  }
  if (const auto v = root.find("mla_absorbed_in_bf16")) list.absorbed_in_bf16 = read_absorbed(*v);
  if (const auto v = root.find("mla_partial_unmeasured")) {
    list.other_partial_mla = read_architectures(v->at("architecture"));
    static_cast<void>(v->at("why").text());
    v->no_other_keys();
  }
  if (const auto v = root.find("index_rows_together"))
    for (const Reader& one : v->items()) list.index_rows.push_back(read_index_rows(one));
  const Reader kernels = root.at("kernels");
  std::vector<std::string> families;
  for (const Form& form : forms()) families.emplace_back(form.family);
  for (const std::string& key : kernels.is_map() ? kernels.keys() : std::vector<std::string>{}) {
    const Form* form = find_form(key);
    if (form == nullptr) continue;  // no_other_keys() says so
    for (const Reader& item : kernels.at(key).items()) list.rules.push_back(read_rule(item, *form));
  }
  for (const std::string& family : families) static_cast<void>(kernels.find(family));
  kernels.no_other_keys();
  root.no_other_keys();
  document.finish();
  return list;
}

bool matches(const KernelFit& f, std::span<const std::string_view> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "*" && f.words[i] != words[i]) return false;
  }
  return true;
}

bool holds(const KernelRule& rule, const KernelFit& f) {
  return std::all_of(rule.words.begin(), rule.words.end(), [&](const auto& word) {
    const auto at = std::find(f.form->words.begin(), f.form->words.end(), word.first);
    return f.words[static_cast<std::size_t>(at - f.form->words.begin())] == word.second;
  });
}

// Whose kernel a name is: without a framework the list's own comes before one of a calibration that says
// none.
const KernelFit* named(std::span<const KernelFit* const> candidates, const KernelRule& rule,
                       const KernelName& name, const std::string& own, std::optional<std::size_t> column) {
  const KernelFit* found = nullptr;
  for (const KernelFit* f : candidates) {
    if (!holds(rule, *f) || (column && f->words[*column] != name.kernel)) continue;
    const std::string& framework = name.framework.empty() ? own : name.framework;
    if (f->framework == framework) return f;
    if (found == nullptr && (f->framework.empty() || (rule.asked && name.framework.empty()))) found = f;
  }
  return found;
}

std::string called(const KernelFit& f, std::optional<std::size_t> column) {
  const std::string kernel = column ? f.words[*column] : f.name();
  return f.framework.empty() ? kernel : f.framework + "/" + kernel;
}

}  // namespace

Architecture architecture_of(const Device& d) {
  const auto has = [&](Dtype t) { return d.peak[static_cast<std::size_t>(t)].value > 0; };
  return has(Dtype::fp4)   ? Architecture::blackwell
         : has(Dtype::fp8) ? Architecture::hopper
                           : Architecture::ampere;
}

Architecture architecture_of(const Calibration& c, const Device& d) {
  const auto measured = [&](std::string_view key) {
    const auto figures = machine_figures();
    for (std::size_t i = 0; i < figures.size() && i < c.machine.figures.size(); ++i) {
      if (figures[i].key == key) return c.machine.figures[i] > 0;
    }
    return false;
  };
  if (c.machine.empty()) return architecture_of(d);
  return measured("device.compute.fp4")   ? Architecture::blackwell
         : measured("device.compute.fp8") ? Architecture::hopper
                                          : Architecture::ampere;
}

std::string_view to_string(Architecture a) { return kArchitectures[static_cast<std::size_t>(a)]; }

long long KernelList::index_passes(long long rows, Architecture architecture) const {
  constexpr long long kRowsOfAPass = 2;  // kNextNAtom of DeepGEMM's paged kernel
  for (const RowsOfOnePass& r : index_rows) {
    if (!is_one_of(architecture, r.architectures)) continue;
    if (r.rows.empty() || std::find(r.rows.begin(), r.rows.end(), rows) != r.rows.end())
      return (rows + kRowsOfAPass - 1) / kRowsOfAPass;
  }
  return rows;
}

bool KernelRule::of(Architecture a) const { return architectures.empty() || is_one_of(a, architectures); }

bool is_one_of(Architecture a, std::span<const Architecture> some) {
  return std::find(some.begin(), some.end(), a) != some.end();
}

bool KernelSizes::any() const {
  return least <= 0 && most == kAny && gpus.empty() && least_ranks <= 0 && most_ranks == kAny &&
         most_node == kAny && step == StepRule::any && tokens == TokensRule::any;
}

bool KernelSizes::hold(const OpSize& op) const {
  return least <= op.size && op.size <= most && least_ranks <= op.expert_ranks &&
         op.expert_ranks <= most_ranks && op.node <= most_node &&
         (step == StepRule::any || op.prompts == (step == StepRule::prompts)) &&
         (tokens == TokensRule::any || op.dispatched == (tokens == TokensRule::dispatched)) &&
         (gpus.empty() || std::find(gpus.begin(), gpus.end(), op.group) != gpus.end());
}

std::optional<std::size_t> kernel_column(const Form& form) {
  for (std::size_t w = 0; w < form.words.size(); ++w) {
    for (const std::string_view column : kKernelColumns) {
      if (form.words[w] == column) return w;
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> size_unit(std::string_view family) {
  if (family == "moe" || family == "alltoall") return "tokens";  // of the group; of a rank
  if (family == "allreduce") return "bytes";
  return std::nullopt;
}

std::vector<ChosenKernel> choose_kernels(const Calibration& calibration, const KernelList& list,
                                         Architecture architecture, const Form& form,
                                         std::span<const std::string_view> words,
                                         const std::function<bool(const KernelFit&)>& is,
                                         const KernelFit* library) {
  const auto column = kernel_column(form);
  std::vector<const KernelFit*> candidates;
  for (const KernelFit& f : calibration.fits) {
    if (f.form == &form && matches(f, words) && (!is || is(f))) candidates.push_back(&f);
  }
  std::vector<ChosenKernel> out;
  if (candidates.empty()) return out;
  const auto chosen = [&](const KernelFit* f, std::size_t rule, const KernelSizes& sizes, bool instead,
                          bool borrowed) {
    out.push_back(
        {f, rule, sizes, borrowed || (!f->framework.empty() && f->framework != list.framework), instead});
  };
  bool unmet = false;  // something was asked for that no candidate is
  for (std::size_t i = 0; i < list.rules.size(); ++i) {
    const KernelRule& rule = list.rules[i];
    if (rule.family != form.family || !rule.of(architecture)) continue;
    const std::size_t before = out.size();
    for (const KernelName& name : rule.use) {
      const KernelFit* found = library != nullptr && name.kernel == kLibrary
                                   ? library
                                   : named(candidates, rule, name, list.framework, column);
      if (found == nullptr) continue;
      chosen(found, i, rule.sizes, unmet && !rule.asked, rule.borrowed && found->form->family != kNcclFamily);
      if (!rule.by_model) break;
    }
    unmet = unmet || (rule.asked && out.size() == before);
    if (out.size() > before && rule.sizes.any()) return out;
  }
  // No rule is left for the other sizes, or for any.
  const auto other = [&](const KernelFit* f) {
    return called(*f, column) != called(*candidates.front(), column);
  };
  if (std::any_of(candidates.begin(), candidates.end(), other)) {
    std::set<std::string> names;
    for (const KernelFit* f : candidates) names.insert(called(*f, column));
    const std::vector<std::string> types(words.begin(), words.end());
    throw UserError({Diagnostic{
        {},
        fmt::format("{} {}: {} kernels were measured, and the list of {} {}", form.family,
                    fmt::join(types, " "), names.size(),
                    list.framework.empty() ? "no framework" : list.framework,
                    out.empty() ? "names none of them" : "names none for other sizes"),
        {fmt::format("measured: {}", fmt::join(names, ", ")),
         fmt::format("name one in a scenario: kernels: {{{}: {}}}", form.family, *names.begin())}}});
  }
  chosen(candidates.front(), list.rules.size(), {}, unmet, false);
  return out;
}

KernelList parse_kernel_list(const std::string& file_name, const std::string& text) {
  return read_list(Document::parse(file_name, text));
}

std::vector<std::string> kernel_list_names(const std::filesystem::path& catalog_dir) {
  std::vector<std::string> out;
  for (const std::filesystem::path& entry : entries_if_there(catalog_dir.parent_path() / "kernels")) {
    if (entry.extension() == ".yaml") out.push_back(entry.stem().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

KernelList load_kernel_list(const std::string& framework, const std::filesystem::path& catalog_dir) {
  const std::vector<std::string> names = kernel_list_names(catalog_dir);
  if (std::find(names.begin(), names.end(), framework) == names.end())
    throw UserError({Diagnostic{{}, "unknown framework " + framework, expected_one_of(framework, names)}});
  static ParsedDocuments<KernelList> known;
  return *known.load(catalog_dir.parent_path() / "kernels" / (framework + ".yaml"), read_list);
}

}  // namespace shardline
