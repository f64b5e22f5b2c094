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
  out.prefill_s = s.prefill_time.value;
  out.step_s = s.step_time.value;
  out.alone_s = s.alone.value;
  out.together_s = s.together.value;
  out.beside_steps_s = s.beside_steps.value;
  out.by_layer_s = s.by_layer.value;
  out.by_links_s = s.by_links.value;
  for (const RankPair& p : s.pairs)
    out.pairs.push_back({p.from, p.to, p.pieces, p.descriptors, p.bytes.value});
  for (const CachePiece& p : s.handoff.pieces)
    out.pieces.push_back({p.from, p.to, std::string(to_string(p.part)), p.kind, p.layer_count, p.units.first,
                          p.units.size(), p.runs.tokens, p.runs.runs, p.descriptors, p.bytes.value});
  return out;
}

}  // namespace shardline::api
