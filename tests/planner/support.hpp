// Shared by the planner's tests.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "planner/engines/deploy.hpp"
#include "planner/search/evaluate.hpp"
#include "planner/strategies/strategy.hpp"

namespace shardline {

template <int T, int B, int F>
void PrintTo(Quantity<T, B, F> q, std::ostream* out) {
  out->precision(17);
  *out << q.value;
}

/// Path inside the source tree.
std::filesystem::path source_path(const std::string& relative);

/// A system of the catalogue, read once: its calibration takes tens of milliseconds.
const System& catalog_system(const std::string& name);

/// A catalogue model on a catalogue system with FP4 everywhere (Precision::all_fp4), uniform routing and mean
/// expert load.
Case decode_case(const std::string& model, const std::string& system, long long context);

/// Cuts the case's model to `layers` layers of its first attention: `dense` of them with its dense
/// feed-forward network, then others with its experts. A model without experts has dense layers alone.
void cut_layers(Case& c, int layers, int dense);
/// A routing table for every kind of layer with experts.
void set_routing(Case& c, const Routing& routing);
/// The first of its kinds with experts, and the first that is dense.
const FeedForward& expert_ffn(const Model& m);
const FeedForward& dense_ffn(const Model& m);

/// BF16 throughout.
Precision all_bf16();

/// Lets helix cut batches into these numbers of chunks.
void with_hopb_chunks(SearchSpace& space, std::vector<int> chunks);

/// The value of an option of the plan's strategy.
int value_of(const Plan& plan, std::string_view key);

/// The schedule of a plan's text, which passes check_plan().
Schedule lowered(const Case& c, const std::string& plan);
std::vector<Op> ops_named(const Schedule& s, std::string_view name);

/// Variables and options of an engine for a plan, in one line: "A=1 --tp-size 8".
std::string options_text(const Deployment& deployment);

/// Expects of a schedule that all ranks and layers played in one graph take what its passes take, to 1e-12,
/// and that no bound is above it.
void expect_folded_equals_unfolded(const Case& c, const Schedule& schedule);

/// Why the plan of a text is refused, when it is read or when it is checked; empty: it is not.
std::string refusal(const Case& c, const std::string& plan);

}  // namespace shardline
