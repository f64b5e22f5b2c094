// What a published table of APB asks of the simulator: prefills by method, whole and by part of a layer.
#pragma once

#include <map>
#include <tuple>

#include "calibrate/validate/apb_truth.hpp"
#include "planner/search/evaluate.hpp"

namespace shardline {

struct ApbTimes {
  std::array<Seconds, kApbParts> parts;  // of one layer, each the slowest rank's and its barriers
  Seconds block;                         // one layer between barriers: their sum
  Seconds prefill;
};

int heads_of_all_layers(const Model& model);

/// Sizes of APB for a document over eight hosts. `long_context`: those of appendix E.5 (Table 14).
Plan apb_plan(ApbMethod method, long long tokens, bool long_context);

/// Times of prefills on one system; each is simulated once.
class ApbModel {
 public:
  /// `head_call`: what MINFERENCE's calls for one head of one layer take beside its kernels.
  ApbModel(const std::string& system, const Catalogs& catalogs, Seconds head_call = {});

  const ApbTimes& times(const std::string& model, ApbMethod method, long long tokens, bool long_context,
                        int batch = 1);
  /// What it takes of a prefill's time: every head of every layer, one after the other.
  Seconds head_calls(const std::string& model) const;

 private:
  Catalogs catalogs_;
  System system_;
  Seconds head_call_;
  std::map<std::tuple<std::string, ApbMethod, long long, bool, int>, ApbTimes> known_;
};

}  // namespace shardline
