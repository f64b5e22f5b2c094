#include "planner/plan/case.hpp"

namespace shardline {

void copy_but_system(const Case& from, Case& to) {
  // Names all members, so that a new one does not compile until it is copied here.
  const auto& [model, system, precision, batch, groups, kv_block, memory_limit, routing, placement,
               persistent_kv, kernels, engine, frameworks, served, disaggregated, acceptance, graph_parts,
               any_gpus, any_context] = from;
  static_cast<void>(system);
  to.model = model;
  to.precision = precision;
  to.batch = batch;
  to.groups = groups;
  to.kv_block = kv_block;
  to.memory_limit = memory_limit;
  to.routing = routing;
  to.placement = placement;
  to.persistent_kv = persistent_kv;
  to.kernels = kernels;
  to.engine = engine;
  to.frameworks = frameworks;
  to.served = served;
  to.disaggregated = disaggregated;
  to.acceptance = acceptance;
  to.graph_parts = graph_parts;
  to.any_gpus = any_gpus;
  to.any_context = any_context;
}

}  // namespace shardline
