#include "planner/search/provenance.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>

#include "models/model/hf_config.hpp"
#include "planner/engines/checkpoints.hpp"
#include "planner/engines/launchable.hpp"
#include "planner/layers/drafts.hpp"
#include "planner/layers/share.hpp"
#include "planner/serving/acceptance.hpp"
#include "sim/base/asking.hpp"
#include "sim/base/parallel.hpp"

namespace shardline {

Shares shares(const Breakdown& b) {
  const auto time = [&](Basis basis) { return b.bases[static_cast<std::size_t>(basis)].value; };
  Shares s{time(Basis::measured), time(Basis::fitted), time(Basis::extrapolated), time(Basis::assumed)};
  const double all = s.measured + s.fitted + s.extrapolated + s.assumed;
  if (!(all > 0)) return {};
  for (double* part : {&s.measured, &s.fitted, &s.extrapolated, &s.assumed}) *part /= all;
  return s;
}

Shares& Shares::operator+=(const Shares& o) {
  measured += o.measured;
  fitted += o.fitted;
  extrapolated += o.extrapolated;
  assumed += o.assumed;
  return *this;
}

Shares Shares::operator*(double w) const { return {measured * w, fitted * w, extrapolated * w, assumed * w}; }

Rating& Rating::operator+=(const Rating& other) {
  shares += other.shares;
  errors += other.errors;
  watts += other.watts;
  time += other.time;
  return *this;
}

// Without a calibration every price is the system file's, so that all of the time is off alike; but for an
// engine's host.
Rating rating_of(Evaluator& evaluator, const Plan& plan) {
  if (evaluator.study().system.calibration.empty() && !evaluator.study().engine)
    return {{0, 0, 0, 1},
            ErrorTerms(kAssumedSource, kAssumedBand) += acceptance_errors(evaluator.study(), plan),
            {},
            {}};
  const Breakdown b = break_down(evaluator, plan);
  const Seconds step = b.time * tokens_per_step(evaluator.study(), plan);
  return {shares(b), b.errors, board_watts(evaluator, step), b.time};
}

namespace {

// `of` each plan, in their order.
template <class Result>
std::vector<Result> of_each(const Case& c, AllReduceRule rule, std::span<const Plan> plans, int threads,
                            Result (*of)(Evaluator& evaluator, const Plan& plan)) {
  const std::size_t count = thread_count(threads);
  std::vector<Result> out;
  resize_asking(out, plans.size());
  const auto cache = std::make_shared<FabricCache>(c.system.fabric);
  std::vector<std::unique_ptr<Evaluator>> evaluators(count);
  parallel_for(0, plans.size(), count, [&](std::size_t i, std::size_t slot) {
    if (!evaluators[slot]) evaluators[slot] = std::make_unique<Evaluator>(c, rule, cache);
    out[i] = of(*evaluators[slot], plans[i]);
  });
  return out;
}

}  // namespace

std::vector<Rating> ratings_of(const Case& c, AllReduceRule rule, std::span<const Plan> plans, int threads) {
  return of_each(c, rule, plans, threads, rating_of);
}

std::vector<Breakdown> breakdowns_of(const Case& c, AllReduceRule rule, std::span<const Plan> plans,
                                     int threads) {
  return of_each(c, rule, plans, threads, break_down);
}

namespace {

// Whose kernels are run, and those that the user asked for.
std::string kernels_text(const KernelList& list) {
  if (list.framework.empty()) return "";
  std::string asked;
  for (const KernelRule& r : list.rules) {
    if (!r.asked) continue;
    for (const KernelName& n : r.use)
      asked += fmt::format("{}{} {}{}{}", asked.empty() ? "; " : ", ", r.family, n.framework,
                           n.framework.empty() ? "" : "/", n.kernel);
  }
  if (list.low_precision_combine)
    asked += asked.empty() ? "; combine in low precision" : ", combine in low precision";
  return fmt::format("; kernels of {} {}{}", list.framework, list.version, asked);
}

}  // namespace

std::string costs_text(const System& s) {
  const Calibration& c = s.calibration;
  if (c.empty())
    return fmt::format("assumptions of the system file of {}, {}{}", s.name,
                       c.source.empty() ? "which has no calibration" : "without its calibration",
                       s.kernels.named ? "; the kernels that are named are not used" : "");
  const std::string from = fmt::format("{} ({}){}", c.source, c.date, kernels_text(s.kernels));
  if (!c.like.empty())
    return fmt::format("extrapolated to {} from measurements of {}: {}", s.name, c.like, from);
  if (c.machine.empty())
    return fmt::format("extrapolated to {} from measurements that do not say of which machine: {}", s.name,
                       from);
  const std::vector<std::string> other = c.machine.differences(s);
  if (other.empty()) return fmt::format("fitted to measurements of {}: {}", c.machine.system, from);
  return fmt::format("extrapolated to {} from measurements of {}, which has another {}: {}", s.name,
                     c.machine.system, fmt::join(other, ", "), from);
}

std::string checkpoint_text(const Case& c) {
  if (!c.model.checkpoint) return "";
  // All of it is the scenario's where that says what an assumed checkpoint would.
  if (!c.model.checkpoint->assumed.empty() && !c.precision.assumed.weights) return "";
  std::vector<std::string> types;
  const auto add = [&](const char* what, ModuleType t) {
    const bool own = t.math == arithmetic_of(t.weights);
    types.push_back(fmt::format("{} {}{}", what, to_string(t.weights),
                                own ? "" : fmt::format(" in {}", to_string(t.math))));
  };
  const Precision& p = c.precision;
  add("attention", p.of(Module::attention));
  add("its output projection", p.of(Module::out_proj));
  if (std::any_of(c.model.attentions.begin(), c.model.attentions.end(), has_own_index) &&
      p.of(Module::index).weights != p.of(Module::attention).weights)
    add("its index", p.of(Module::index));
  if (has_dense(c.model)) add("dense FFN", p.of(Module::dense_ffn));
  if (has_experts(c.model)) add("experts", p.of(Module::experts));
  const bool shared = std::any_of(c.model.ffns.begin(), c.model.ffns.end(),
                                  [](const FeedForward& f) { return f.shared_experts > 0; });
  if (shared) add("shared experts", p.of(Module::shared_experts));
  add("head", p.of(Module::head));
  if (!c.model.tied_embeddings && p.of(Module::embedding).weights != p.of(Module::head).weights)
    add("embedding", p.of(Module::embedding));
  if (c.model.drafts && p.drafts)
    add("modules that draft",
        c.model.drafts->ffn.dense() ? p.drafts->dense_ffn : p.drafts->experts);  // most of their weights
  return fmt::format("  weights by checkpoint and scenario: {}\n", fmt::join(types, ", "));
}

namespace {

// No published table has a kernel that reads FP4 caches: what a price of one takes for granted.
std::string fp4_cache_text(const Case& c) {
  const bool narrow = c.precision.kv == Dtype::fp4 || c.precision.kv == Dtype::fp4_unscaled;
  if (!narrow || c.system.calibration.empty()) return "";
  const bool unit = c.system.device.peak[static_cast<std::size_t>(Dtype::fp4)] > FlopsPerSecond(0);
  return fmt::format(
      "  assumed: caches in {} take what FP8's kernels take, of fewer bytes; none that reads them was "
      "measured{}\n",
      to_string(c.precision.kv),
      unit ? "" : fmt::format(", and {} has no unit for FP4", c.system.device.name));
}

}  // namespace

std::string precision_text(const Case& c) {
  const Precision& p = c.precision;
  const std::string cache = fp4_cache_text(c);
  if (!p.assumed.any()) return cache;
  std::vector<std::string> types;
  const auto add = [&](bool assumed, const char* what, Dtype type) {
    if (assumed) types.push_back(fmt::format("{} {}", what, to_string(type)));
  };
  add(p.assumed.weights, "weights", p.weights);
  add(p.assumed.math, "arithmetic", p.math);
  add(p.assumed.expert_math, "arithmetic of experts", p.of(Module::experts).math);
  add(p.assumed.kv, "KV cache", p.kv);
  add(p.assumed.dispatch, "tokens sent to experts", p.dispatch);
  const std::string& own = c.model.checkpoint ? c.model.checkpoint->assumed : "";
  return fmt::format("  assumed: {} ({})\n", fmt::join(types, ", "),
                     names_checkpoint(own) ? "precision does not say: the checkpoint is " + own
                     : !own.empty()        ? "precision does not say; " + own
                     : c.model.checkpoint  ? "neither the scenario nor the checkpoint says"
                                           : "the scenario's precision does not say") +
         cache;
}

std::vector<Diagnostic> model_notes(const Case& c) {
  std::vector<Diagnostic> out;
  if (!c.model.source.starts_with("Hugging Face configuration")) return out;
  for (const std::string& note : c.model.notes) out.push_back({{}, c.model.name + ": " + note, {}});
  const std::string own = started_unpriced(c.model, c.engine.get());
  if (const std::string unread = unread_types(c.model); !unread.empty())
    out.push_back({{},
                   fmt::format("{}, taken as the scenario's precision says{}{}", unread,
                               own.empty() ? "" : ", which is another checkpoint's: ", own),
                   {}});
  return out;
}

namespace {

// Whose tokens of a step they are: an own table's, a form's, or of whom they were published.
std::string acceptance_text(const AcceptanceCurve& curve, bool exact) {
  const std::string between = exact ? "" : ", and between and beyond by p and g";
  if (curve.origin().name.empty()) return curve.points().empty() ? "by p and g" : "as given" + between;
  std::vector<int> measured;
  for (const MeasuredAcceptance& point : curve.points()) measured.push_back(point.k);
  const AcceptanceOrigin& from = curve.origin();
  return fmt::format(
      "as published with {} of them ({}: {}){}{}", fmt::join(measured, ", "), from.name, from.source,
      from.method == "mtp" ? ""
                           : fmt::format(", drafted by {} and priced as the model's own module", from.method),
      between);
}

}  // namespace

std::string drafts_text(const Case& c) {
  if (!c.acceptance) return "";
  const std::vector<int> told = c.acceptance->usual();
  std::vector<std::string> yields;
  ErrorBand widest{0, 0};
  for (const int k : told) {
    const AcceptedLength length = c.acceptance->mean_at(k);
    yields.push_back(fmt::format("{:.2f}", length.mean));
    widest = widest.hull(length.band);
  }
  // A mean of a table has no band; what traffic the table was measured on is the user's to know.
  const bool exact = widest.low == 0 && widest.high == 0;
  const std::string off =
      exact ? "intervals hold none of the acceptance"
            : fmt::format(
                  "intervals hold what such a form is off published curves, {:.0f}/+{:.0f} % at most, and "
                  "nothing of other traffic",
                  100 * std::expm1(widest.low), 100 * std::expm1(widest.high));
  const std::string drafts =
      told.size() == 1 ? std::to_string(told[0]) : fmt::format("{} to {}", told.front(), told.back());
  return fmt::format("  times are per token: with {} drafts a step yields {} tokens of a request, {}: {}\n",
                     drafts, fmt::join(yields, ", "), acceptance_text(*c.acceptance, exact), off);
}

std::string chunk_text(const Case& c) {
  const Model& m = c.model;
  std::string out;
  for (int i = 0; i < std::ssize(m.attentions) && c.batch.decodes(); ++i) {
    const Reach& reach = m.attentions[static_cast<std::size_t>(i)].reach;
    if (reach.kind != ReachKind::chunk || c.longest() <= reach.tokens) continue;
    long long least = reach.tokens, most = 0;
    for (const Segment& s : c.batch.decode) {
      least = std::min<long long>(least, s.length() - first_seen(reach, s));
      most = std::max<long long>(most, s.length() - first_seen(reach, s));
    }
    out += fmt::format(
        "  {} layers see chunks of {} tokens: a request reads {} tokens there at this context, 1 to {} at "
        "others\n",
        layers_of_attention(m, i), reach.tokens,
        least == most ? std::to_string(most) : fmt::format("{} to {}", least, most), reach.tokens);
  }
  return out;
}

}  // namespace shardline
