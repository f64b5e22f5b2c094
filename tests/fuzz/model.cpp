// Models as the catalogue has them.
#include "models/model/catalog.hpp"
#include "models/model/routing.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardline;
  return fuzz::read(data, size, [](const std::string& text) {
    const Model m = parse_model("model.yaml", text);
    fuzz::require(parameter_count(m) > 0, "a model has parameters");
    fuzz::require(active_parameters(m) <= parameter_count(m), "no more of them are active");
    // What is read can be asked of: loads of experts above all, which have limits of their own.
    for (const FeedForward& f : m.ffns) {
      if (!f.routed()) continue;
      const ExpertRouting routing(f.experts, f.experts_per_token, {});
      fuzz::require(routing.distinct_experts(1, 1) > 0, "a token visits experts");
    }
  });
}
