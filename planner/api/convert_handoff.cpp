#include "planner/api/convert_handoff.hpp"

#include "planner/api/convert.hpp"

namespace shardline::api {

HandoffResult handoff_result(const Study& study, const HandoffStudy& s) {
  HandoffResult out;
  out.setting = setting_of(study);
  out.prefill = to_string(s.prefill);
  out.decode = to_string(s.decode);
  out.tokens = s.tokens;
  out.transfer = s.engine.of;
  out.bytes = s.handoff.bytes().value;
  out.prefill_s = estimate(s.prefill_time.value, time_error(s.prefill_errors));
  out.step_s = estimate(s.step_time.value, time_error(s.step_errors));
  out.alone_s = estimate(s.alone.value, handoff_error());
  out.together_s = estimate(s.together.value, handoff_error());
  out.beside_steps_s = estimate(s.beside_steps.value, handoff_error());
  out.by_layer_s = estimate(s.by_layer.value, handoff_error());
  out.by_links_s = estimate(s.by_links.value, handoff_error());
  for (const RankPair& p : s.pairs)
    out.pairs.push_back({p.from, p.to, p.pieces, p.descriptors, p.bytes.value});
  for (const CachePiece& p : s.handoff.pieces)
    out.pieces.push_back({p.from, p.to, std::string(to_string(p.part)), p.kind, p.layer_count, p.units.first,
                          p.units.size(), p.runs.tokens, p.runs.runs, p.descriptors, p.bytes.value});
  return out;
}

}  // namespace shardline::api
