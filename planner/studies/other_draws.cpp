#include <algorithm>

#include "planner/requests/scheduler.hpp"
#include "planner/studies/deployment.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

OtherDraws draw_again(const Study& study, ServiceQuestion question) {
  constexpr int kDraws = 8;
  OtherDraws out;
  for (; out.draws < kDraws; ++out.draws) {
    ++question.seed;
    try {
      const ServiceAnswer a =
          serve_requests(study, question, [](std::uint64_t, std::uint64_t) { check_cancelled(); });
      out.kept += a.load.met ? 1 : 0;
      for (const TargetResult& t : a.load.targets)
        out.used = std::max(out.used, t.measured / t.target.most.value);
    } catch (const EngineStops&) {
      ++out.stops;
    }
  }
  return out;
}

}  // namespace shardline
