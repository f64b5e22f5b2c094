// What an answer's plans have of the times that were asked for.
#include "planner/studies/plan_answer.hpp"

namespace shardline {

Seconds time_with_path(const PlanAnswer& a, Seconds time) {
  const auto& engine = a.study.study.engine;
  return engine && a.question.prefill() ? time + engine->host.path : time;
}

bool some_wait(const PlanAnswer& a, const Point& p) { return a.question.users > 0 && p.all_waiting() > 0; }

std::vector<AskedTime> asked_times(const PlanAnswer& a, bool served, Seconds time, Seconds ttft) {
  std::vector<AskedTime> out;
  const auto add = [&](const char* what, Seconds is, Seconds most) {
    if (most > Seconds(0)) out.push_back({what, is, most});
  };
  if (a.question.prefill()) add("TTFT", time_with_path(a, time), a.question.ttft);
  if (!a.question.prefill()) add(served ? "TPOT" : "TTL", time, a.asked.most_time);
  if (served) add("TTFT", ttft, a.asked.most_ttft);
  return out;
}

Miss miss_of(const PlanAnswer& a, const Point& p) {
  Miss worst;
  const bool served = a.study.sweep().search.workload.has_value();
  for (const AskedTime& t : asked_times(a, served, p.time, p.ttft)) {
    if (t.is / t.most - 1 > worst.part) worst = {t.what, t.is / t.most - 1, t.is};
  }
  return worst;
}

}  // namespace shardline
