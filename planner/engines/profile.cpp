#include "planner/engines/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/strategies/strategy.hpp"
#include "sim/base/folder.hpp"
#include "sim/base/parsed_documents.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

namespace {

constexpr long long kMostTokens = 1'000'000;
constexpr long long kMostOfRange = 1'000'000'000;
// For reports alone, which read them: calibrate/validate/served_tables.hpp.
constexpr std::array kReported{"layouts",      "measured",     "left_out", "other_host",
                               "tpot_covered", "ttft_covered", "versions"};

Seconds time_at(const Reader& r, const char* key) {
  return r.at(key).quantity<Seconds>(Seconds(0), Seconds(10));
}

ErrorBand read_band(const Reader& r) {
  const std::vector<Reader> ends = r.items();
  if (ends.size() != 2) {
    r.fault(r.path() + ": expected two numbers, the low and the high end");
    return {};
  }
  const ErrorBand band{ends[0].number(-5, 5), ends[1].number(-5, 5)};
  if (band.low > band.high) r.fault(r.path() + ": the low end is above the high one");
  return band;
}

ServedBand read_served_band(const Reader& r) {
  ServedBand out;
  out.rows = static_cast<int>(r.at("rows").integer(0, 1'000'000));
  if (out.rows > 0) out.band = read_band(r.at("band"));
  r.no_other_keys();
  return out;
}

TtftBand read_ttft_band(const Reader& r) {
  constexpr std::array<const char*, 3> kLengths{"any", "drawn", "equal"};
  TtftBand out;
  out.lengths = r.at("lengths").text();
  if (std::find(kLengths.begin(), kLengths.end(), out.lengths) == kLengths.end())
    r.at("lengths").fault("unknown lengths " + out.lengths, {"expected any, drawn or equal"});
  out.from = r.at("from").integer(1, kMostOfRange);
  out.to = r.at("to").integer(out.from, kMostOfRange);
  out.measured.rows = static_cast<int>(r.at("rows").integer(1, 1'000'000));
  out.measured.band = read_band(r.at("band"));
  for (const Reader& model : r.at("models").items()) out.models.push_back(model.text());
  if (const auto tested = r.find("tested")) out.tested = static_cast<int>(tested->integer(0, 1'000'000));
  r.no_other_keys();
  return out;
}

MeasuredRange read_range(const Reader& r) {
  const std::vector<Reader> ends = r.items();
  if (ends.size() != 2) {
    r.fault(r.path() + ": expected two numbers, the least and the most that was measured");
    return {};
  }
  MeasuredRange out{ends[0].integer(1, kMostOfRange), ends[1].integer(1, kMostOfRange)};
  if (out.from > out.to) r.fault(r.path() + ": the least is more than the most");
  return out;
}

void read_host(const Reader& r, EngineProfile& p) {
  p.host = {time_at(r, "step"), time_at(r, "request"), time_at(r, "prompt_token"), time_at(r, "path")};
  p.source = r.at("source").text();
  if (const auto error = r.find("error")) {
    p.error.rows = static_cast<int>(error->at("rows").integer(1, 1'000'000));
    p.error.tpot = read_band(error->at("tpot"));
    const Reader ttft = error->at("ttft");
    p.error.drawn = read_served_band(ttft.at("drawn"));
    p.error.equal = read_served_band(ttft.at("equal"));
    for (const Reader& line : ttft.at("by_users").items())
      p.error.ttft_by_users.push_back(read_ttft_band(line));
    ttft.no_other_keys();
    p.error.covered = error->at("covered").number(0, 1);
    const Reader loops = error->at("loops");
    p.error.loops = {read_range(loops.at("input")), read_range(loops.at("output")),
                     read_range(loops.at("users")), read_range(loops.at("gpus"))};
    loops.no_other_keys();
    for (const Reader& line : error->at("tables").items()) {
      const int rows = static_cast<int>(line.at("rows").integer(1, 1'000'000));
      p.error.tables.push_back({line.at("of").text(), rows, line.at("median").number(0, 100),
                                line.at("p90").number(0, 100), line.at("bias").number(-1, 100)});
      line.no_other_keys();
    }
    for (const char* key : kReported) static_cast<void>(error->find(key));
    error->no_other_keys();
  }
  r.no_other_keys();
}

// A value for each architecture.
template <class Value, class Read>
void read_each(const Reader& r, std::map<Architecture, Value>& out, Read read) {
  const std::array<std::pair<const char*, Architecture>, 3> names{{{"ampere", Architecture::ampere},
                                                                   {"hopper", Architecture::hopper},
                                                                   {"blackwell", Architecture::blackwell}}};
  for (const auto& [name, architecture] : names) out[architecture] = read(r.at(name));
  r.no_other_keys();
}

// Servers whose steps wait for the host though those of others do not.
void read_between(const Reader& r, EngineProfile& p) {
  for (const Reader& item : r.items()) {
    const std::string name = item.text();
    if (name == "context_servers") {
      p.waits_in_context_servers = true;
    } else if (name == "stages") {
      p.waits_in_stages = true;
    } else if (name == "unbuffered_states") {
      p.waits_without_buffers = true;
    } else if (find_strategy(name)) {
      p.waits_in_strategies.push_back(name);
    } else {
      item.fault("unknown servers " + name,
                 {"expected context_servers, stages, unbuffered_states or the name of a strategy"});
    }
  }
}

void read_steps(const Reader& r, EngineProfile& p) {
  p.prefill = r.at("prefill").one_of({"mixed", "first"}) == 1 ? PrefillPolicy::first : PrefillPolicy::mixed;
  p.admission = r.at("admission").one_of({"used", "whole"}) == 1 ? Admission::whole : Admission::used;
  read_each(r.at("tokens"), p.step_tokens, [](const Reader& v) { return v.tokens(16, kMostTokens); });
  p.host_waited_for = r.at("host").one_of({"beside", "between"}) == 1;
  if (const auto between = r.find("between")) read_between(*between, p);
  const Reader overlap = r.at("overlap");
  p.overlaps_since = overlap.at("since").text();
  static_cast<void>(overlap.at("why").text());
  overlap.no_other_keys();
  if (const auto of = r.find("tokens_of")) p.shared_budget = of->one_of({"group", "server"}) == 1;
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
}

void read_graphs(const Reader& r, EngineProfile& p) {
  p.graphs = read_graph_sizes(r);
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
}

void read_eager(const Reader& r, EngineProfile& p) {
  read_each(r.at("launch"), p.launch,
            [](const Reader& v) { return v.quantity<Seconds>(Seconds(0), Seconds(1e-3)); });
  if (const auto v = r.find("pieces")) {
    PromptGraphs& g = p.prompt_graphs;
    g.tokens = v->at("tokens").tokens(1, kMostTokens);
    g.latent_tokens = g.tokens;
    if (const auto mla = v->find("mla")) g.latent_tokens = mla->tokens(1, kMostTokens);
    if (const auto also = v->find("attention_dp")) g.attention_dp = also->boolean();
    if (const auto also = v->find("stages")) g.stages = also->boolean();
    if (const auto also = v->find("disaggregated")) g.disaggregated = also->boolean();
    v->no_other_keys();
  }
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
}

void read_two_batches(const Reader& r, EngineProfile& p) {
  p.two_batches =
      r.at("decode").one_of({"swapped", "lagging"}) == 1 ? TwoBatches::lagging : TwoBatches::swapped;
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
}

void read_stages(const Reader& r, EngineProfile& p) {
  using More = PipelineStages::More;
  constexpr std::array kMore{More::first, More::before_last, More::last};
  p.stages = {true, r.at("choice").boolean(), r.at("each").one_of({"slice", "whole"}) == 1,
              kMore[r.at("more").one_of({"first", "before_last", "last"})]};
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
}

void read_room(const Reader& r, DispatchRoom& room) {
  room.known = true;
  room.of_group = r.at("of").one_of({"rank", "group"}) == 1;
  room.least = r.at("least").tokens(1, kMostTokens);
  room.many = r.at("many").quantity<Bytes>(Bytes(0), Bytes(1e11));
  room.opens_fabric = r.at("fabric").boolean();
  r.no_other_keys();
}

void read_exchange(const Reader& r, EngineProfile& p) {
  constexpr std::array kGathers{TokenExchange::Gathers::untold, TokenExchange::Gathers::across};
  TokenExchange& e = p.tokens_to_experts;
  e.gathers = kGathers[r.at("gathered").one_of({"untold", "across"})];
  e.as_dispatched = r.at("sent").one_of({"dispatched", "activations"}) == 0;
  e.sums_prompts = r.at("prompts").one_of({"gathered", "summed"}) == 1;
  e.of_server = r.at("kernels_of").one_of({"step", "server"}) == 1;
  constexpr std::array kBeside{TokenExchange::Beside::group, TokenExchange::Beside::part,
                               TokenExchange::Beside::all};
  const Reader beside = r.at("beside");
  e.beside_gathered = kBeside[beside.at("gathered").one_of({"group", "part", "all"})];
  e.beside_dispatched = kBeside[beside.at("dispatched").one_of({"group", "part"})];
  beside.no_other_keys();
  if (const auto v = r.find("room")) read_room(*v, e.room);
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
}

// Latents that a rank has whole it need not expand, and no kernel was measured that expands a cached prefix.
ContextRanks read_context_ranks(const Reader& r) {
  ContextRanks out;
  out.whole = r.at("caches").one_of({"own", "whole"}) == 1;
  out.absorbed = r.at("mla").one_of({"expanded", "absorbed"}) == 1;
  out.one_prompt = r.at("prompts").one_of({"several", "one"}) == 1;
  if (out.whole && !out.absorbed)
    r.at("mla").fault(r.path() + ".mla: expected absorbed, as caches are whole");
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
  return out;
}

void read_fuses(const Reader& fuses, EngineProfile& p) {
  p.fuses_elementwise = fuses.at("elementwise").boolean();
  p.fuses_split_merge = fuses.at("split_merge").boolean();
  const auto sums = fuses.find("norms_in_sums_of"), above = fuses.find("norms_in_sums_above");
  p.sums_take_norms = !sums && !above;
  for (const Reader& name : sums ? sums->items() : std::vector<Reader>{})
    p.sums_take_norms_of.push_back(name.text());
  if (above) {
    for (const std::string& name : above->keys())
      p.sums_take_norms_above.emplace_back(name, static_cast<int>(above->at(name).integer(1, 1 << 20)));
  }
  static_cast<void>(fuses.at("why").text());
  fuses.no_other_keys();
}

// What bare kernels do not have.
void read_around(const Reader& root, EngineProfile& p) {
  p.version = root.at("version").text();
  p.framework = root.at("kernels").text();
  read_steps(root.at("steps"), p);
  read_graphs(root.at("graphs"), p);
  if (const auto v = root.find("drafts")) p.drafts = read_draft_steps(*v);
  read_eager(root.at("eager"), p);
  if (const auto v = root.find("two_batches")) read_two_batches(*v, p);
  read_stages(root.at("stages"), p);
  if (const auto v = root.find("expert_tokens")) read_exchange(*v, p);
  const Reader memory = root.at("memory");
  p.memory_rule = memory.at("of").one_of({"total", "free"}) == 1 ? MemoryRule::free : MemoryRule::total;
  p.memory = memory.at("part").number(0.1, 1);
  if (const auto shared = memory.find("part_of_shared_context"))
    p.memory_of_shared_context = shared->number(0.1, 1);
  p.kept = read_kept(memory.at("kept"));
  p.pools = read_cache_pools(memory);
  if (const auto v = root.find("context_parallel")) p.context = read_context_ranks(*v);
  if (p.waits_without_buffers && !p.pools.states.told)
    memory.fault("steps.between has unbuffered_states: expected memory.states, which says what has buffers");
  static_cast<void>(memory.at("why").text());
  memory.no_other_keys();
  read_host(root.at("host"), p);
}

EngineProfile read_engine(const Document& document) {
  EngineProfile p;
  const Reader root = document.root();
  p.name = root.at("name").text();
  p.title = root.at("title").text();
  read_fuses(root.at("fuses"), p);
  if (p.name != kIdealEngine) read_around(root, p);
  for (const Reader& line : root.at("assumes").items()) p.assumes.push_back(line.text());
  root.no_other_keys();
  document.finish();
  return p;
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  for (const std::filesystem::path& entry : entries_if_there(folder)) {
    if (entry.extension() == ".yaml") out.push_back(entry);
  }
  return out;
}

// The page of a sweep names an engine a hundred times.
std::shared_ptr<const EngineProfile> engine_in(const std::filesystem::path& file) {
  static ParsedDocuments<EngineProfile> known;
  return known.load(file, read_engine);
}

}  // namespace

const TtftBand* ServedBands::ttft_band(bool equal_lengths, double users) const {
  for (const TtftBand& b : ttft_by_users) {
    const bool of = b.lengths == "any" || (b.lengths == "equal") == equal_lengths;
    if (of && users >= static_cast<double>(b.from) && users <= static_cast<double>(b.to)) return &b;
  }
  return nullptr;
}

ServedBand ServedBands::ttft(bool equal_lengths, double users) const {
  const TtftBand* band = ttft_band(equal_lengths, users);
  return band != nullptr ? band->measured : ServedBand{};
}

bool EngineProfile::waits_in_version(const std::string& other) const {
  return host_waited_for || earlier_version(other, overlaps_since);
}

bool EngineProfile::takes_norms(const std::string& model_architecture, int hidden) const {
  if (sums_take_norms || std::find(sums_take_norms_of.begin(), sums_take_norms_of.end(),
                                   model_architecture) != sums_take_norms_of.end())
    return true;
  return std::any_of(sums_take_norms_above.begin(), sums_take_norms_above.end(), [&](const auto& above) {
    return above.first == model_architecture && hidden > above.second;
  });
}

long long EngineProfile::padded(long long requests, long long each) const {
  if (each > 1) {
    const long long graph = graph_of_drafts(drafts, graphs, requests, each);
    return graph == 0 ? requests : graph;
  }
  const auto at = std::lower_bound(graphs.begin(), graphs.end(), requests);
  return at == graphs.end() ? requests : *at;
}

bool EngineProfile::has_graph(long long requests, long long each) const {
  if (each > 1) return graph_of_drafts(drafts, graphs, requests, each) > 0;
  return graphs.empty() || requests <= graphs.back();
}

Seconds EngineProfile::launch_time(const Device& device) const {
  const auto at = launch.find(architecture_of(device));
  return at == launch.end() ? Seconds(0) : at->second;
}

long long EngineProfile::tokens_of_step(const Device& device) const {
  return step_tokens.at(architecture_of(device));
}

Bytes EngineProfile::room_for_kv(const Device& device, Bytes weights, Bytes others, const KeptOf& of) const {
  const Bytes aside = kept.set_aside(of);
  const Bytes rest = weights + kept.context(of) +
                     (kept.holds_activations ? std::max(aside, kept.fixed + others) : aside + others);
  const double part = memory_part(of);
  return memory_rule == MemoryRule::total ? device.memory * part - rest : (device.memory - rest) * part;
}

EngineProfile parse_engine(const std::string& file_name, const std::string& text) {
  return read_engine(Document::parse(file_name, text));
}

std::vector<EngineProfile> load_engines(const std::filesystem::path& folder) {
  std::vector<EngineProfile> out;
  for (const auto& file : files_of(folder)) {
    if (const auto p = engine_in(file); p->name != kIdealEngine) out.push_back(*p);
  }
  return out;
}

std::vector<std::string> engine_names(const std::filesystem::path& folder) {
  std::vector<std::string> out;
  for (const EngineProfile& p : load_engines(folder)) out.push_back(p.name + " " + p.version);
  return out;
}

EngineProfile load_engine(const std::string& name, const std::string& version,
                          const std::filesystem::path& folder) {
  if (same_engine(name, kIdealEngine) && !version.empty())
    throw UserError("ideal has no versions: it is bare kernels, expected engine: ideal");
  std::vector<std::string> names, versions;
  std::string titled;  // the engine whose title begins as the name does: "tensorrt" of TensorRT-LLM
  for (const auto& file : files_of(folder)) {
    const auto p = engine_in(file);
    if (name.size() > 2 && same_engine(name, p->title.substr(0, name.size()))) titled = p->name;
    const bool meant = same_engine(name, p->name) || same_engine(name, p->title);
    if (meant && (version.empty() || p->version == version)) return *p;
    names.push_back(p->name);
    if (meant) versions.push_back(p->version);
  }
  if (!versions.empty()) {
    std::vector<std::string> details = expected_one_of(version, versions);
    details.emplace_back(
        "a profile's rules are of the version that they were read in; nobody has read those of others");
    throw UserError({Diagnostic{{}, fmt::format("no profile of {} {}", name, version), std::move(details)}});
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<std::string> details = expected_one_of(name, names);
  if (details.size() == 1 && !titled.empty()) details.push_back(fmt::format("did you mean {}?", titled));
  if (name.find(',') != name.npos) details.emplace_back("one at a time: ask for each by itself");
  throw UserError({Diagnostic{{}, "unknown engine " + name, std::move(details)}});
}

}  // namespace shardline
