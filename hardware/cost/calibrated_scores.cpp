// Scores of an index, the choice among them, and attention to all rows, beyond what blocks were measured
// with: of DeepSeek-V4 in steps that decode, of prompts. hardware/README.md [H73].
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/sparse_models.hpp"
#include "hardware/cost/forms/sparse_module.hpp"

namespace shardline {

namespace {

enum : std::size_t { kBatch, kKeys, kHeads };  // of a block of a step that decodes [H71]

// Of a block of prompts [H72], and the axes of its fit.
enum : std::size_t { kPrompts, kFresh, kCached, kPromptHeads };
enum : std::size_t { kRowsAxis, kKeysAxis };

// Of the peak of FP8, scores and choice together: about what the fastest measured blocks reach in what lies
// before their prompts. SGLang's of DeepSeek-V3.2, 4,096 tokens: .47 to .56 on H100, .46 to .52 on H200.
constexpr double kLongerPeak = 0.5;

constexpr double kQuarter = 0.25;

// Keys of the longest cache, in steps of so many doublings, that the block was measured with at about as many
// rows; nothing where there is none, or where its rows reach as far as these keys: it is the rows or the
// heads then that nobody measured.
std::optional<double> longest_measured(const KernelFit& fit, std::span<const double> at, double step) {
  std::array<double, kMostAxes> place{};
  for (std::size_t a = 0; a < at.size(); ++a)
    place[a] = std::clamp(at[a], fit.range_low[a], fit.range_high[a]);
  const auto axes = std::span<const double>(place).first(at.size());
  place[kKeysAxis] = at[kKeysAxis];
  if (!fit.outside(axes)) return std::nullopt;
  for (int i = 0;; ++i) {
    place[kKeysAxis] = fit.range_high[kKeysAxis] - step * i;
    if (place[kKeysAxis] < fit.range_low[kKeysAxis]) return std::nullopt;
    if (place[kKeysAxis] < at[kKeysAxis] && !fit.outside(axes)) return std::exp2(place[kKeysAxis]);
  }
}

// Index keys that a row has before it, of those that `x` has more than `shorter`.
double more_pairs(std::span<const double> x, std::span<const double> shorter, Count ratio) {
  return x[kPrompts] * x[kFresh] * (x[kCached] - shorter[kCached]) /
         static_cast<double>(std::max<Count>(1, ratio));
}

}  // namespace

// A block has each row's keys; rows of a request that verify drafts may share a pass over them, where all
// requests have as many. (Of CSA the kernel's own rows say what several rows take; the choice among blocks
// has another kernel.)
double CalibratedCost::part_of_passes(const IndexLogitsShape& s) const {
  if (s.prompts || s.ratio > 0 || s.block > 1 || s.requests <= 0 || s.q_rows % s.requests != 0) return 1;
  const Count rows = s.q_rows / s.requests;
  return static_cast<double>(system_->kernels.index_passes(rows, architecture_of(system_->device))) /
         static_cast<double>(rows);
}

// Rows of prompts behind long caches are few, and say little of what scores take: of vLLM's, which end at
// 32,768 keys, scores are a tenth. As far as rows go the price is theirs; from there on scores and choice
// grow with the arithmetic of the one and the bytes of the other, if the fit's do not grow faster.
double CalibratedCost::longer_prompts(const Use& u, const PricedOp& op, std::span<const double> x) const {
  const auto* const scores = std::get_if<IndexLogitsShape>(&op.shape);
  const auto* const choice = std::get_if<TopKShape>(&op.shape);
  if (pricing_ == Pricing::floor || (scores == nullptr && choice == nullptr)) return 0;
  const IndexedBlock block = scores != nullptr ? scores->measured() : choice->measured();
  if (!block.prompts || block.block > 1) return 0;  // the choice among blocks has another kernel
  double at[kMostAxes], at_edge[kMostAxes];
  u.fit->form->coordinates(x, u.context, at);
  const std::size_t axes = u.fit->form->axes.size();
  const auto here = std::span<const double>(at).first(axes);
  if (!u.fit->outside(here)) return 0;
  const std::optional<double> keys = longest_measured(*u.fit, here, kQuarter);
  if (!keys) return 0;
  const std::array<double, 4> edge{x[kPrompts], x[kFresh], std::clamp(*keys - x[kFresh], 0.0, x[kCached]),
                                   x[kPromptHeads]};
  u.fit->form->coordinates(edge, u.context, at_edge);
  const auto parts = [&](std::span<const double> of, const double* place) {
    SparseParts p = sparse_prefill_parts(of, u.context, u.parameters);
    const double correction = std::exp(u.correction.at(std::span<const double>(place, axes)));
    p.index *= correction;
    p.top_k *= correction;
    return p;
  };
  const SparseParts measured = parts(edge, at_edge);
  const double pairs = more_pairs(x, edge, block.ratio);
  constexpr double kScoreBytes = 4;
  const double chosen = measured.top_k + kScoreBytes * pairs / u.context.bandwidth;
  if (choice != nullptr) return chosen;
  const double arithmetic = 2 * static_cast<double>(scores->heads) * static_cast<double>(scores->dim) *
                            pairs / (kLongerPeak * narrow_peak());
  return measured.index + measured.top_k + arithmetic - std::max(chosen, parts(x, at).top_k);
}

// The most tokens of all requests that the block was surely measured with, at its fewest heads: a place is
// inside where a cell of a doubling has rows, or one that touches it, which have half as many of each at
// least.
double CalibratedCost::most_tokens_of(const Use& block) {
  const KernelFit& fit = *block.fit;
  constexpr double kTouching = 4;
  double most = kTouching;
  for (double batch = 1; batch <= std::exp2(fit.range_high[kBatch]); batch *= 2) {
    for (double tokens = 1; tokens <= std::exp2(fit.range_high[kKeys]); tokens *= 2) {
      double at[kMostAxes];
      const std::array<double, 3> x{batch, tokens, std::exp2(fit.range_low[kHeads])};
      fit.form->coordinates(x, block.context, at);
      const auto place = std::span<const double>(at).first(fit.form->axes.size());
      if (batch * tokens > most && !fit.outside(place)) most = batch * tokens;
    }
  }
  return most / kTouching;
}

const CalibratedCost::ScoreUse& CalibratedCost::score_use(const Use& block) {
  const auto found =
      std::find_if(scores_.begin(), scores_.end(), [&](const ScoreUse& s) { return s.block == block.fit; });
  if (found != scores_.end()) return *found;
  const auto same = [&](const KernelFit& f) { return f.framework == block.fit->framework; };
  std::vector<Use> all = uses("sparse_kernel", {"v4_index_logits", block.fit->words[0], "*"}, same);
  return scores_.emplace_back(
      ScoreUse{block.fit, most_tokens_of(block), all.empty() ? Use{} : std::move(all.front())});
}

// A kernel of the block's framework that was timed alone [H68]; where none was, keys of so many bytes
// a request at the memory's rate.
double CalibratedCost::scores_alone(const Use& u, double requests, double rows, double tokens,
                                    double bytes) const {
  if (!u) return requests * bytes / memory_.value;
  const std::array<double, 3> x{requests, rows, std::max(0.0, tokens - rows)};
  double at[kMostAxes];
  u.fit->form->coordinates(x, u.context, at);
  const std::span<const double> axes = std::span<const double>(at).first(u.fit->form->axes.size());
  return u.fit->form->seconds(x, u.context, u.parameters) * std::exp(u.correction.at(axes));
}

double CalibratedCost::decoding_scores(const Use& u, const IndexLogitsShape& s, std::span<const double> x) {
  const ScoreUse& alone = score_use(u);
  const double requests = std::max(1.0, static_cast<double>(s.requests)), tokens = x[kKeys];
  const double rows = static_cast<double>(s.q_rows) / requests;
  const double bytes =
      static_cast<double>(s.key_bytes) * tokens / static_cast<double>(std::max<Count>(1, s.ratio));
  const std::array<double, 3> measured{std::clamp(alone.most_tokens / tokens, 1.0, requests), tokens,
                                       x[kHeads]};
  double at[kMostAxes];
  u.fit->form->coordinates(measured, u.context, at);
  const std::span<const double> axes = std::span<const double>(at).first(u.fit->form->axes.size());
  const double block = sparse_decode_parts(measured, u.context, u.parameters, SparseShard{}).index *
                       std::exp(u.correction.at(axes));
  return block + std::max(0.0, scores_alone(alone.use, requests, rows, tokens, bytes) -
                                   scores_alone(alone.use, measured[kBatch], 1, tokens, bytes));
}

const CalibratedCost::Use& CalibratedCost::rows_use(const Use& block) {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(), [&](const RowsUse& r) { return r.block == block.fit; });
  if (found != rows_.end()) return found->use;
  const auto same = [&](const KernelFit& f) { return f.framework == block.fit->framework; };
  // Of Pro no kernel was timed alone: Flash's rows are as wide.
  std::vector<Use> all = uses("sparse_kernel", {"v4_hca_attention", "deepseek-v4-flash", "*"}, same);
  return rows_.emplace_back(RowsUse{block.fit, all.empty() ? Use{} : std::move(all.front())}).use;
}

// Blocks of short caches say little of how attention to all rows grows: 65,536 tokens are 640 rows, of which
// the slowest thread block has a few, and a million 7,940. The block is that of the longest cache, and the
// kernel's own growth comes on top.
std::optional<double> CalibratedCost::longer_rows(const Use& u, double attended, std::span<const double> x) {
  constexpr double kFine = 1. / 32;   // of a doubling: what is a step in the price is hardly one in time
  constexpr double kTimedHeads = 64;  // of a thread block, filled or not
  const SparseLayer* const layer = find_sparse_layer(u.fit->words[0], u.fit->words[1]);
  double at[kMostAxes];
  u.fit->form->coordinates(x, u.context, at);
  const std::size_t axes = u.fit->form->axes.size();
  const auto here = std::span<const double>(at).first(axes);
  if (layer == nullptr || layer->selected > 0 || !u.fit->outside(here)) return std::nullopt;
  const std::optional<double> keys = longest_measured(*u.fit, here, kFine);
  const double tokens = (attended - layer->window) * layer->ratio;
  if (!keys || tokens <= *keys) return std::nullopt;
  const Use& alone = rows_use(u);
  if (!alone) return std::nullopt;
  const std::array<double, 3> edge{x[kBatch], *keys, x[kHeads]};
  double at_edge[kMostAxes];
  u.fit->form->coordinates(edge, u.context, at_edge);
  const double block = sparse_decode_parts(edge, u.context, u.parameters, SparseShard{}).attend *
                       std::exp(u.correction.at(std::span<const double>(at_edge, axes)));
  if (pricing_ == Pricing::floor) return block;  // whatever the kernel's growth is, it is none below zero
  const double rows = x[kBatch] * std::ceil(x[kHeads] / kTimedHeads);
  return block +
         std::max(0.0, scores_alone(alone, rows, 1, tokens, 0) - scores_alone(alone, rows, 1, *keys, 0));
}

}  // namespace shardline
