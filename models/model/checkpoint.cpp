#include "models/model/checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "models/model/checkpoint_names.hpp"
#include "models/model/checkpoint_rules.hpp"
#include "models/model/model.hpp"

namespace shardline {

using checkpoint::Matrix;
using checkpoint::MatrixPart;
using checkpoint::Patterns;
using checkpoint::set;
using checkpoint::TypeRules;

DraftMatrices drafts_as_model(const Checkpoint& c) {
  return {c.attention, c.out_proj, c.dense_ffn, c.experts, c.shared};
}

namespace {

// Counts the matrices of a class by type; the order is that of the first layers, for equal files equal.
using Votes = std::vector<std::pair<MatrixType, int>>;

void count(Votes& votes, MatrixType type) {
  const auto at = std::find_if(votes.begin(), votes.end(), [&](const auto& v) { return v.first == type; });
  if (at == votes.end()) {
    votes.emplace_back(type, 1);
  } else {
    ++at->second;
  }
}

std::string type_text(MatrixType t) {
  if (t.math == arithmetic_of(t.weights)) return std::string(to_string(t.weights));
  return fmt::format("{} in {}", to_string(t.weights), to_string(t.math));
}

MatrixType most(Votes votes, const char* what, std::vector<std::string>& notes) {
  std::sort(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.weights, a.first.math) < std::pair(b.first.weights, b.first.math);
  });
  MatrixType best;
  int most_votes = 0;
  std::string text;
  for (const auto& [type, n] : votes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, type_text(type));
    // Of equally many the wider one: what is counted then fits.
    if (n > most_votes ||
        (n == most_votes && bytes_per_element(type.weights) > bytes_per_element(best.weights)))
      best = type, most_votes = n;
  }
  if (votes.size() > 1)
    notes.push_back(
        fmt::format("matrices of {} differ in type ({}): {} is taken for all", what, text, type_text(best)));
  return best;
}

constexpr std::size_t kParts = 8;
using PartVotes = std::array<Votes, kParts>;

Votes& of(PartVotes& votes, MatrixPart part) { return votes[static_cast<std::size_t>(part)]; }

/// Projections to and from the experts' latents have no class of their own: where the file has them
/// otherwise, a note says so.
void note_latents(const Votes& votes, const Checkpoint& c, std::vector<std::string>& notes) {
  if (std::all_of(votes.begin(), votes.end(), [&](const auto& v) { return v.first == c.shared; })) return;
  notes.push_back(
      fmt::format("projections to and from the experts' latents are stored in {}: they are counted as shared "
                  "experts, in {}",
                  type_text(votes.front().first), type_text(c.shared)));
}

/// Nothing where they are as the model's own.
std::optional<DraftMatrices> drafts_of(PartVotes& votes, const Checkpoint& c,
                                       std::vector<std::string>& notes) {
  const DraftMatrices own = drafts_as_model(c);
  DraftMatrices out = own;
  const auto choose = [&](MatrixPart part, const char* what, MatrixType& to) {
    if (!of(votes, part).empty()) to = most(of(votes, part), what, notes);
  };
  choose(MatrixPart::attention, "attention of multi-token prediction", out.attention);
  choose(MatrixPart::out_proj, "output projections of multi-token prediction", out.out_proj);
  choose(MatrixPart::dense, "dense networks of multi-token prediction", out.dense_ffn);
  choose(MatrixPart::experts, "experts of multi-token prediction", out.experts);
  choose(MatrixPart::shared, "shared experts of multi-token prediction", out.shared);
  if (out == own) return std::nullopt;
  return out;
}

Checkpoint classes(const TypeRules& rules, std::span<const Matrix> matrices,
                   std::vector<std::string>& notes) {
  PartVotes own, drafts;
  Checkpoint c;
  for (const Matrix& one : matrices) {
    if (one.part == MatrixPart::head) {
      if (rules.head) c.head = rules.of(one.names);
      continue;
    }
    if (rules.only_routed && one.part != MatrixPart::experts) continue;
    count(of(one.draft ? drafts : own, one.part), rules.of(one.names));
  }
  c.kv = rules.kv;
  const auto choose = [&](MatrixPart part, const char* what, MatrixType& out) {
    if (!of(own, part).empty()) out = most(of(own, part), what, notes);
  };
  choose(MatrixPart::experts, "experts", c.experts);
  if (rules.only_routed) return c;
  choose(MatrixPart::attention, "attention", c.attention);
  choose(MatrixPart::out_proj, "output projections", c.out_proj);
  choose(MatrixPart::dense, "dense layers", c.dense_ffn);
  choose(MatrixPart::shared, "shared experts", c.shared);
  if (!of(own, MatrixPart::index).empty()) {
    const MatrixType index = most(of(own, MatrixPart::index), "the sparse attention's index", notes);
    if (index != c.attention) c.index = index;
  }
  if (!of(own, MatrixPart::shared).empty()) note_latents(of(own, MatrixPart::latents), c, notes);
  c.drafts = drafts_of(drafts, c, notes);
  return c;
}

/// Lists that name nothing of the model are most often those of other names than are known here.
void note_unmatched(const TypeRules& rules, const Model& m, const std::vector<Matrix>& matrices,
                    std::vector<std::string>& notes) {
  if (rules.excluded.empty() && rules.listed.empty() && rules.only.empty()) return;
  const auto look = [&](const Patterns& patterns, const char* what, const char* effect) {
    std::vector<std::string_view> none = patterns.without_match(matrices);
    // Of modules that are not counted: drafts that config.json does not tell of.
    if (!m.drafts) {
      const std::string behind = fmt::format("layers.{}", m.layers());
      std::erase_if(none, [&](std::string_view text) { return text.find(behind) != text.npos; });
    }
    std::erase_if(none, [&](std::string_view text) { return text.find("mtp") != text.npos; });
    if (none.empty()) return;
    notes.push_back(fmt::format(
        "{} of {} entries that say what {} match no matrix that is known here of {}: {}{}; {}", none.size(),
        patterns.size(), what, m.architecture.empty() ? "this model" : m.architecture, none.front(),
        none.size() > 1 ? ", ..." : "", effect));
  };
  look(rules.excluded, "is left out", "they leave nothing out");
  look(rules.listed, "has a type of its own", "they give nothing a type");
  look(rules.only, "is quantised alone", "they quantise nothing");
}

}  // namespace

std::optional<Checkpoint> read_checkpoint(const Reader& reader, const Model& m,
                                          std::vector<std::string>& notes, std::string* unread) {
  if (!reader.is_map()) {
    reader.fault((reader.path().empty() ? "" : reader.path() + ": ") + "expected a mapping");
    return std::nullopt;
  }
  // hf_quant_config.json has its content one level deeper.
  const auto inner = set(reader, "quantization");
  const Reader& at = inner ? *inner : reader;
  TypeRules rules;
  const bool read = read_rules(at, rules);
  notes.insert(notes.end(), rules.notes.begin(), rules.notes.end());
  if (read) {
    const std::vector<Matrix> matrices = checkpoint::matrices_of(m);
    Checkpoint out = classes(rules, matrices, notes);
    out.method = checkpoint::method_of(at);
    out.zero_points = rules.zero_points;
    note_unmatched(rules, m, matrices, notes);
    return out;
  }
  if (unread != nullptr)
    *unread = rules.why;
  else
    notes.push_back(fmt::format(
        "the checkpoint's quantisation is not read ({}): say in the scenario's precision what it is",
        rules.why));
  return std::nullopt;
}

}  // namespace shardline
