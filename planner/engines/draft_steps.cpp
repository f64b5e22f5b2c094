#include "planner/engines/draft_steps.hpp"

#include <algorithm>

namespace shardline {

namespace {

constexpr int kMostGraph = 65536;  // requests

}  // namespace

std::vector<int> read_graph_sizes(const Reader& r) {
  std::vector<int> out;
  for (const Reader& size : r.at("sizes").items()) {
    const int n = static_cast<int>(size.integer(1, kMostGraph));
    if (!out.empty() && n <= out.back()) size.fault(size.path() + ": sizes ascend");
    out.push_back(n);
  }
  if (const auto then = r.find("then")) {  // further sizes, evenly spaced
    const int step = static_cast<int>(then->at("step").integer(1, kMostGraph));
    const int to = static_cast<int>(then->at("to").integer(1, kMostGraph));
    for (int n = (out.empty() ? 0 : out.back()) + step; n <= to; n += step) out.push_back(n);
    then->no_other_keys();
  }
  return out;
}

DraftSteps read_draft_steps(const Reader& r) {
  DraftSteps out;
  out.told = true;
  const Reader graphs = r.at("graphs");
  out.counts = graphs.at("of").one_of({"requests", "tokens"}) == 1 ? DraftSteps::Counts::tokens
                                                                   : DraftSteps::Counts::requests;
  if (out.counts == DraftSteps::Counts::requests && graphs.has("sizes"))
    out.graphs = read_graph_sizes(graphs);
  graphs.no_other_keys();
  out.all_beside_prompts = r.at("prompts").one_of({"first", "all"}) == 1;
  if (const auto states = r.find("states"))
    out.states =
        states->one_of({"places", "copied"}) == 1 ? DraftSteps::States::copied : DraftSteps::States::places;
  if (const auto choice = r.find("choice")) out.one_choice = choice->one_of({"each", "first"}) == 1;
  out.assumes = r.at("assumes").text();
  static_cast<void>(r.at("why").text());
  r.no_other_keys();
  return out;
}

long long graph_of_drafts(const DraftSteps& steps, const std::vector<int>& graphs, long long requests,
                          long long each) {
  if (steps.counts == DraftSteps::Counts::requests) {
    const std::vector<int>& sizes = steps.graphs.empty() ? graphs : steps.graphs;
    const auto at = std::lower_bound(sizes.begin(), sizes.end(), requests);
    return at == sizes.end() ? 0 : *at;
  }
  const long long tokens = requests * each;
  for (const long long size : graphs) {
    const long long rounded = (size + each - 1) / each * each;
    if (rounded > graphs.back()) break;
    if (rounded >= tokens) return rounded / each;
  }
  return 0;
}

}  // namespace shardline
