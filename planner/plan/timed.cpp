#include "planner/plan/timed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/base/error.hpp"

namespace shardline {
namespace {

constexpr std::size_t kMostRanges = 6;  // of layers that a message lists

/// Blocks are chosen by one head of the index for each KV head, the query's own always among them: how many
/// tokens a row attends to is known then.
std::string untimed_index(const Attention& a) {
  if (!a.index) return "";
  const SparseIndex& x = *a.index;
  if (x.block == 1) return "attention to single keys of KV heads, which an index chooses,";
  if (x.heads != a.kv_heads)
    return fmt::format("{} of {} heads for {} KV heads", name_of(a), x.heads, a.kv_heads);
  return x.local_blocks == 0 ? name_of(a) + " that may leave a query's own block out" : "";
}

/// What of an attention is not lowered; empty: all of it is. Without a default, so that a new kind must say.
std::string untimed_part(const Attention& a) {
  switch (a.kind) {
    case AttentionKind::mla:
      return "";
    case AttentionKind::gqa:
      return untimed_index(a);
    case AttentionKind::compressed:
    case AttentionKind::mamba:
    case AttentionKind::delta:
      break;
    case AttentionKind::none:
      break;
  }
  return "";
}

/// "layers 0-2, 6, 10-12"; of many ranges the first ones and how many layers there are.
std::string layers_text(const Model& m, int LayerRun::*kind, int index) {
  std::vector<std::string> ranges;
  int layer = 0, count = 0;
  for (std::size_t i = 0; i < m.runs.size();) {
    const int first = layer;
    const bool here = m.runs[i].*kind == index;
    for (; i < m.runs.size() && (m.runs[i].*kind == index) == here; ++i) layer += m.runs[i].count;
    if (!here) continue;
    count += layer - first;
    ranges.push_back(layer == first + 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, layer - 1));
  }
  const bool many = ranges.size() > kMostRanges;
  if (many) ranges.resize(kMostRanges);
  return fmt::format("layer{} {}{}", count == 1 ? "" : "s", fmt::join(ranges, ", "),
                     many ? fmt::format(", ... ({} layers)", count) : "");
}

}  // namespace

std::vector<std::string> untimed(const Model& m) {
  constexpr const char* kVerdict = "is read, but no plan of it can be timed yet";
  std::vector<std::string> out;
  for (std::size_t i = 0; i < m.attentions.size(); ++i) {
    const std::string part = untimed_part(m.attentions[i]);
    if (!part.empty())
      out.push_back(fmt::format("{}: {} {}", layers_text(m, &LayerRun::attention, static_cast<int>(i)), part,
                                kVerdict));
  }
  return out;
}

void require_timed(const Model& m) {
  std::vector<std::string> parts = untimed(m);
  if (parts.empty()) return;
  Diagnostic d;
  d.what = fmt::format("model {}: {}", m.name, parts.front());
  d.details.assign(parts.begin() + 1, parts.end());
  throw UserError(std::vector<Diagnostic>{std::move(d)});
}

}  // namespace shardline
