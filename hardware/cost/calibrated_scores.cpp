// Scores of DeepSeek-V4's index in steps that decode, beyond what blocks were measured with.
// hardware/README.md [H73].
#include <algorithm>
#include <cmath>

#include "hardware/cost/calibrated_cost.hpp"
#include "hardware/cost/forms/sparse_module.hpp"

namespace shardline {

namespace {

enum : std::size_t { kBatch, kKeys, kHeads };  // of a block of a step that decodes [H71]

}  // namespace

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

}  // namespace shardline
