#include "planner/studies/listing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "models/model/catalog.hpp"
#include "planner/scenario/shipped.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

std::string attention_text(const Model& m) {
  const auto other = [](const Attention& a) { return a.index || a.compression || a.recurrent() || a.none(); };
  if (std::any_of(m.attentions.begin(), m.attentions.end(), other)) {
    std::vector<std::string> named;
    for (int i = 0; i < std::ssize(m.attentions); ++i)
      if (!of_drafts_alone(m, i))
        named.push_back(fmt::format("{} {}", layers_of_attention(m, i),
                                    name_of(m.attentions[static_cast<std::size_t>(i)])));
    return fmt::format("{}", fmt::join(named, ", "));
  }
  const auto latents = [](const Attention& a) { return has_latents(a); };
  const bool all = std::all_of(m.attentions.begin(), m.attentions.end(), latents);
  const char* const family = all ? "MLA" : has_latents(m) ? "MLA, GQA" : "GQA";
  if (one_attention(m) && !has_local_attention(m)) return family;
  std::vector<std::string> kinds;
  for (int i = 0; i < std::ssize(m.attentions); ++i)
    kinds.push_back(fmt::format("{} {}", layers_of_attention(m, i),
                                to_string(m.attentions[static_cast<std::size_t>(i)].reach)));
  return fmt::format("{}: {}", family, fmt::join(kinds, ", "));
}

std::vector<ListedModel> list_models(const Catalogs& catalogs) {
  std::vector<ListedModel> out;
  for (const std::string& name : catalog_names(catalogs.models)) {
    const Model m = load_model(name, catalogs.models);
    ListedModel& listed = out.emplace_back(ListedModel{name, m, parameter_count(m), active_parameters(m)});
    for (int i = 0; i < std::ssize(m.attentions); ++i) {
      const Attention& a = m.attentions[static_cast<std::size_t>(i)];
      const double layers = layers_of_attention(m, i) * bytes_per_element(Dtype::fp4);
      if (a.compression) {  // a window of single tokens beside rows that grow with the length
        listed.kv_local += Bytes(layers * a.head_dim * static_cast<double>(a.reach.tokens));
        listed.kv_per_token += Bytes(layers * (kv_elements_per_layer(a) - a.head_dim));
        continue;
      }
      const Bytes of_token(layers * kv_elements_per_layer(a));
      switch (a.reach.kind) {
        case ReachKind::full:
          listed.kv_per_token += of_token;
          break;
        case ReachKind::window:
        case ReachKind::chunk:
          listed.kv_local += of_token * static_cast<double>(a.reach.tokens);
          break;
      }
    }
  }
  return out;
}

std::vector<ListedSystem> list_systems(const Catalogs& catalogs) {
  std::vector<ListedSystem> out;
  for (const std::string& name : system_names(catalogs.systems))
    out.push_back({name, load_system(name, catalogs.systems)});
  return out;
}

std::string calibration_text(const System& s) {
  if (s.calibration.empty()) return "none";
  return s.calibration.like.empty() ? "own" : "like " + s.calibration.like;
}

namespace {

// What a shipped scenario says of itself, without its models and systems: those of all take a second to read.
std::string summary_of(const std::string& scenario) {
  const Document document = Document::load(shipped_catalogs().scenarios / (scenario + ".yaml"));
  const auto summary = document.root().find("summary");
  return summary ? summary->text() : "";
}

}  // namespace

std::vector<ListedScenario> list_scenarios() {
  std::vector<ListedScenario> out;
  for (const std::string& name : scenario_names()) out.push_back({name, summary_of(name)});
  return out;
}

}  // namespace shardline
