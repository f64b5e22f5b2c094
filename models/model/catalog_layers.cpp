#include "models/model/catalog_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "models/model/catalog_fields.hpp"

namespace shardline::catalog {
namespace {

/// A mapping from names to kinds, not empty.
std::vector<std::string> names_of(const Reader& at) {
  std::vector<std::string> names = at.keys();
  if (at.is_map() && names.empty()) at.fault(at.path() + " is empty");
  if (static_cast<std::int64_t>(names.size()) > limits::kKinds) {
    at.fault(fmt::format("{}: {} kinds; more than {} are refused", at.path(), names.size(), limits::kKinds));
    names.clear();
  }
  return names;
}

void read_attentions(const Reader& root, Model& m, Layers& out) {
  const auto named = root.find("attentions");
  if (!named) {
    const Reader at = root.at("attention");
    out.attentions.push_back({"", read_attention(Fields(at), at, m), at});
    at.no_other_keys();
    return;
  }
  const auto shared = root.find("attention");
  for (const std::string& name : names_of(*named)) {
    const Reader at = named->at(name);
    out.attentions.push_back({name, read_attention(Fields(at, shared), shared, m), at});
    at.no_other_keys();
  }
  if (shared && !out.attentions.empty()) shared->no_other_keys();
}

void read_ffns(const Reader& root, Model& m, Layers& out) {
  const Reader ffn = root.at("ffn");
  m.ffn_kind = static_cast<FfnKind>(ffn.at("kind").one_of({"gated", "plain"}));
  out.ffn = ffn;
  out.ffn_inner = Fields(ffn).optional_count("inner", limits::kWidth);
  m.ffn_bias = Fields(ffn).flag("bias");
  ffn.no_other_keys();
  out.moe = root.find("moe");
  if (const auto named = root.find("ffns")) {
    for (const auto& other : {ffn.find("inner"), out.moe}) {
      if (other) other->fault(other->path() + ": the kinds in ffns say all of it");
    }
    for (const std::string& name : names_of(*named)) {
      const Reader at = named->at(name);
      FeedForward f;
      if (at.has("experts")) {
        f = read_experts(at);
      } else if (at.has("absent")) {
        f.absent = Fields(at).flag("absent");
        if (!f.absent) at.at("inner");  // a fault: it is missing
      } else {
        f.inner = count(at.at("inner"), limits::kWidth);
        at.find("experts");  // expected, too
        at.find("absent");
      }
      out.ffns.push_back({name, f, at});
      at.no_other_keys();
    }
    return;
  }
  FeedForward dense;
  dense.inner = out.ffn_inner;
  if (out.moe) {
    out.first_dense_layers = Fields(*out.moe).optional_count("first_dense_layers", limits::kLayers, 0);
    out.ffns.push_back({"", read_experts(*out.moe), *out.moe});
    out.moe->no_other_keys();
    if (out.first_dense_layers == 0) return;
    out.ffns.insert(out.ffns.begin(), {"", dense, ffn});
    out.ffn_order = {{{0, out.first_dense_layers}}, {{1, 1}}, std::nullopt};
  } else {
    out.ffns.push_back({"", dense, ffn});
  }
}

std::vector<Step> read_steps(const Reader& list, const std::vector<std::string>& names) {
  std::vector<Step> steps;
  const std::vector<Reader> items = list.items();
  if (list.is_sequence() && items.empty()) list.fault(list.path() + " is empty");
  for (const Reader& item : items) {
    int n = 1;
    if (item.is_map()) {
      if (const auto at = item.find("count")) n = count(*at, limits::kLayers);
      steps.emplace_back(static_cast<int>(item.at("kind").one_of(names)), n);
      item.no_other_keys();
    } else {
      steps.emplace_back(static_cast<int>(item.one_of(names)), n);
    }
  }
  return steps;
}

template <class Value>
void read_order(const std::optional<Reader>& order, const char* key, const char* list,
                const std::vector<Kind<Value>>& kinds, Order& out) {
  const bool named = !kinds.empty() && !kinds[0].name.empty();
  const auto at = order ? order->find(key) : std::nullopt;
  if (at && !named) at->fault(fmt::format("{}: there are no {} to order", at->path(), list));
  if (!named) return;
  if (!at) {
    if (kinds.size() > 1 && order) order->at(key);  // a fault: it is missing
    return;
  }
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.push_back(kind.name);
  out.at = at;
  if (!at->is_map()) {
    out.then = read_steps(*at, names);
    return;
  }
  out.first = read_steps(at->at("first"), names);
  out.then = read_steps(at->at("then"), names);
  at->no_other_keys();
}

int length(const std::vector<Step>& steps) {
  std::int64_t sum = 0;
  for (const auto& [kind, n] : steps) sum += n;
  return static_cast<int>(std::min<std::int64_t>(sum, limits::kLayers + 1));
}

/// The kind of every layer.
template <class Value>
std::vector<Value> expand(const std::vector<Kind<Value>>& kinds, const Order& order, int layers, int draft) {
  std::vector<int> index;
  const auto append = [&](const std::vector<Step>& steps) {
    for (const auto& [kind, n] : steps) index.insert(index.end(), n, kind);
  };
  append(order.first);
  while (!order.then.empty() && static_cast<int>(index.size()) < layers) append(order.then);
  index.resize(layers, 0);
  const int round = length(order.first) + length(order.then);
  const bool cut = order.at && round > layers;
  if (cut)
    order.at->fault(
        fmt::format("{}: one round is {} layers, but the model has {}", order.at->path(), round, layers));
  std::vector<Value> values;
  for (const int i : index) values.push_back(kinds[i].value);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].name.empty()) continue;
    const auto twin = std::find_if(kinds.begin(), kinds.begin() + i,
                                   [&](const auto& k) { return k.value == kinds[i].value; });
    if (twin != kinds.begin() + i)
      kinds[i].at.fault(fmt::format("{}: the same as {}", kinds[i].at.path(), twin->at.path()));
    if (!cut && draft != static_cast<int>(i) &&
        std::find(index.begin(), index.end(), static_cast<int>(i)) == index.end())
      kinds[i].at.fault(kinds[i].at.path() + ": no layer is of this kind");
  }
  return values;
}

/// The deepest node that exists on `path` ("moe.experts_per_token"), so that a rule's fault points at its
/// field; and whether that is the whole path.
std::pair<Reader, bool> deepest(Reader at, std::string_view path) {
  while (!path.empty()) {
    const auto dot = std::min(path.find('.'), path.size());
    const auto next = at.is_map() ? at.find(path.substr(0, dot)) : std::nullopt;
    if (!next) return {at, false};
    at = *next;
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return {at, true};
}

template <class Value>
std::optional<Reader> reader_of(const std::vector<Kind<Value>>& kinds, const std::vector<Value>& values,
                                std::size_t i) {
  if (i >= values.size()) return std::nullopt;
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const auto& k) { return k.value == values[i]; });
  return found == kinds.end() ? std::nullopt : std::optional(found->at);
}

/// The key of a file that gives an attention its reach. Full attention has none: its faults, if it had any,
/// would stand where a window would.
const char* key_of(const Reach& reach) {
  switch (reach.kind) {
    case ReachKind::full:
    case ReachKind::window:
      break;
    case ReachKind::chunk:
      return "chunk";
  }
  return "window";
}

/// The named kind of a draft module's layer; -1: that of the last layer.
template <class Value>
int draft_kind(const Reader& drafts, const char* key, const std::vector<Kind<Value>>& kinds) {
  const auto at = drafts.find(key);
  if (!at) return -1;
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.push_back(kind.name);
  if (!kinds.empty() && !kinds[0].name.empty()) return static_cast<int>(at->one_of(names));
  at->fault(at->path() + ": there are no named kinds to choose from");
  return -1;
}

void read_drafts(const Reader& root, Layers& out) {
  const auto at = root.find("drafts");
  if (!at) return;
  out.drafts = count(at->at("count"), 64);
  if (!at->is_map()) return;
  out.draft_attention = draft_kind(*at, "attention", out.attentions);
  out.draft_ffn = draft_kind(*at, "ffn", out.ffns);
  if (const auto one = at->find("one_choice")) out.one_choice = one->boolean();
  at->no_other_keys();
}

}  // namespace

Layers read_layers(const Reader& root, Model& m) {
  Layers out;
  read_attentions(root, m, out);
  read_ffns(root, m, out);
  read_drafts(root, out);
  const auto order = root.find("order");
  if (!order) {
    const auto several = [](const auto& kinds) { return kinds.size() > 1 && !kinds[0].name.empty(); };
    if (several(out.attentions) || several(out.ffns)) root.at("order");  // a fault: it is missing
    return out;
  }
  read_order(order, "attention", "attentions", out.attentions, out.attention_order);
  read_order(order, "ffn", "ffns", out.ffns, out.ffn_order);
  order->no_other_keys();
  return out;
}

void apply(const Layers& in, int count, Model& m) {
  if (in.moe && in.first_dense_layers >= count) {
    const std::string what =
        fmt::format("moe.first_dense_layers: {} dense layers of {} leave no layer for the experts",
                    in.first_dense_layers, count);
    deepest(*in.moe, "first_dense_layers").first.fault(what);
  }
  if (in.moe && in.first_dense_layers == 0 && in.ffn_inner > 0)
    deepest(*in.ffn, "inner").first.fault("ffn.inner: no layer is dense, so no layer has this width");
  const auto attentions = expand(in.attentions, in.attention_order, count, in.draft_attention);
  const auto ffns = expand(in.ffns, in.ffn_order, count, in.draft_ffn);
  set_layers(m, attentions, ffns);
  if (in.drafts == 0) return;
  m.drafts = DraftModules{
      in.drafts,
      in.draft_attention < 0 ? attentions.back()
                             : in.attentions[static_cast<std::size_t>(in.draft_attention)].value,
      in.draft_ffn < 0 ? ffns.back() : in.ffns[static_cast<std::size_t>(in.draft_ffn)].value, in.one_choice};
  list_draft_kind(m);
}

std::pair<Reader, std::string> locate(const Layers& in, const Reader& root, const Model& m,
                                      std::string_view field) {
  std::string path(field);
  if (field == "qk_norm") path = "attention.qk_norm";
  if (field == "attention_bias") path = "attention.bias";
  const auto close = field.find("].");
  if (close != std::string_view::npos) {
    const auto open = field.find('[');
    const bool attention = field.starts_with("attentions");
    const std::size_t index = std::stoul(std::string(field.substr(open + 1, close - open - 1)));
    const auto own =
        attention ? reader_of(in.attentions, m.attentions, index) : reader_of(in.ffns, m.ffns, index);
    path = field.substr(close + 2);
    if (own && path == "reach") path = key_of(m.attentions[index].reach);
    if (own) {
      const auto [at, whole] = deepest(*own, path);
      if (whole) return {at, at.path()};
      // What all kinds share stands under attention.
      const auto [shared, found] = deepest(root, "attention." + path);
      if (attention && found) return {shared, shared.path()};
      return {at, own->path() + "." + path};
    }
  }
  return {deepest(root, path).first, path};
}

}  // namespace shardline::catalog
