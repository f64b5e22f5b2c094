#include "planner/cli/serve_pictures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "planner/cli/plan_notes.hpp"
#include "planner/cli/serve_text.hpp"
#include "planner/plan/plan.hpp"
#include "planner/studies/plan_load.hpp"
#include "reports/curves_page.hpp"
#include "reports/trace.hpp"
#include "sim/base/cancel.hpp"
#include "sim/base/error.hpp"

namespace shardline::cli {

namespace {

constexpr const char* kTargetSquares =
    "squares: targets, met where the curve of that colour passes above or through";

Plot plot_of(const Study& study, const ServiceAnswer& a, const Provenance& made_by, const std::string& what) {
  Plot plot;
  plot.title = fmt::format("{} on {}, {}: {}", study.study.model.name, study.study.system.name, what,
                           load_text(a.question));
  plot.footnote = fmt::format("shardline {}: {}", made_by.version, made_by.command);
  return plot;
}

// Of every interval of the series, from when it begins; and of the last until it ends.
template <class Value>
PlotSeries over_time(const ServedSeries& series, std::string name, Value value) {
  PlotSeries out{std::move(name), PlotStyle::line, {}};
  const double length = series.length().value;
  for (std::size_t i = 0; i < series.intervals().size(); ++i)
    out.points.emplace_back(length * (static_cast<double>(i) + 0.5), value(series.intervals()[i]) / length);
  return out;
}

}  // namespace

Plot latency_plot(const Study& study, const ServiceAnswer& a, const Provenance& made_by) {
  Plot plot = plot_of(study, a, made_by, "latencies");
  plot.x_label = "latency at most, s";
  plot.y_label = "% of requests (ITL: of tokens but the first)";
  plot.log_x = true;
  plot.less_x = true;
  for (const Latency of : kLatencies) {
    PlotSeries series{std::string(to_string(of)), PlotStyle::line, {}};
    for (const auto& [seconds, part] : a.load.latencies[static_cast<std::size_t>(of)].curve)
      series.points.emplace_back(seconds, 100 * part);
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
  // Of the colour of their curve, whose name they have.
  for (const TargetResult& t : a.load.targets)
    plot.series.push_back({std::string(to_string(t.target.of)),
                           PlotStyle::open_squares,
                           {{t.target.most.value, 100 * t.target.quantile}}});
  if (!a.load.targets.empty()) plot.footnote = fmt::format("{}; {}", kTargetSquares, plot.footnote);
  return plot;
}

Plot requests_plot(const Study& study, const ServiceAnswer& a, const Provenance& made_by) {
  Plot plot = plot_of(study, a, made_by, "requests in the engine");
  plot.x_label = "time, s";
  plot.y_label = "requests, all replicas";
  const auto draw = [&](const ServedSeries& series, const std::string& of) {
    plot.series.push_back(over_time(series, "run" + of, [](const auto& v) { return v.running; }));
    plot.series.push_back(over_time(series, "wait" + of, [](const auto& v) { return v.waiting; }));
  };
  if (a.load.pair) draw(a.load.pair->prefill_series, " for prompts");
  draw(a.load.series, a.load.pair ? " for answers" : "");
  return plot;
}

Plot use_plot(const Study& study, const ServiceAnswer& a, const Provenance& made_by) {
  Plot plot = plot_of(study, a, made_by, "what KV cache and time go to");
  plot.x_label = "time, s";
  plot.y_label = "%, mean of replicas";
  const double to = 100.0 / a.question.replicas;
  const ServedSeries& series = a.load.series;
  if (a.load.pair) {
    const ServedSeries& prompts = a.load.pair->prefill_series;
    const double to_prompts = 100.0 / a.question.prefill->replicas;
    const auto all = [](const auto& v) { return v.prompting + v.decoding; };
    const auto held = [](double part) { return [part](const auto& v) { return part * v.held; }; };
    plot.series = {
        over_time(prompts, "KV held for prompts", held(to_prompts)),
        over_time(series, "KV held for answers", held(to)),
        over_time(prompts, "time of steps for prompts", [&](const auto& v) { return to_prompts * all(v); }),
        over_time(series, "time of steps for answers", [&](const auto& v) { return to * all(v); })};
    return plot;
  }
  plot.series.push_back(over_time(series, "KV held by requests", [&](const auto& v) { return to * v.held; }));
  plot.series.push_back(
      over_time(series, "time of steps with prompts", [&](const auto& v) { return to * v.prompting; }));
  plot.series.push_back(
      over_time(series, "time of steps that decode alone", [&](const auto& v) { return to * v.decoding; }));
  return plot;
}

namespace {

CurvesTable latencies_table(const ServedLoadAnswer& load) {
  CurvesTable out{"What users see", {"", "mean"}, {}};
  for (const double q : kToldQuantiles) out.header.push_back(quantile_text(q));
  for (const Latency of : kLatencies) {
    const ToldLatency& told = load.latencies[static_cast<std::size_t>(of)];
    if (told.count == 0) continue;
    std::vector<std::string> row{std::string(to_string(of)), to_string(Seconds(told.mean))};
    for (std::size_t q = 0; q < kToldQuantiles.size(); ++q)
      row.push_back(to_string(Seconds(told.quantiles[q])) +
                    (told.half_widths[q] ? " \u00b1 " + to_string(Seconds(*told.half_widths[q])) : ""));
    out.rows.push_back(std::move(row));
  }
  return out;
}

CurvesTable targets_table(const ServedLoadAnswer& load) {
  CurvesTable out{"Targets", {"", "at most", "simulated", ""}, {}};
  for (const TargetResult& t : load.targets)
    out.rows.push_back({fmt::format("{} {}", to_string(t.target.of), quantile_text(t.target.quantile)),
                        to_string(t.target.most), to_string(Seconds(t.measured)), t.met ? "met" : "missed"});
  return out;
}

}  // namespace

std::string service_page(const Study& study, const ServiceAnswer& a, const Provenance& made_by) {
  CurvesPage page;
  page.title = served_title(study);
  page.summary = load_text(a.question);
  page.command = made_by.command;
  page.version = made_by.version;
  // Of each pool; how many requests run together is the scheduler's, and no batch of the plan.
  const auto servers = [](const Plan& plan, int replicas) {
    return fmt::format("{}, {} x {}", sharding_text(sharding_of(plan)), replicas, gpus_text(plan.gpus()));
  };
  const auto& prompts = a.question.prefill;
  page.lines = {{"Plan", servers(a.question.plan, a.question.replicas) +
                             (prompts ? "; prompts on " + servers(prompts->plan, prompts->replicas) : "")},
                {"Engine", engine_line(study, a.knobs)},
                {"Requests", counts_text(*study.study.engine, a)},
                {"Use", use_text(a)},
                {"Intervals", prices_text(study, a)}};
  if (const std::string other = closed_form_text(study, a.question); !other.empty())
    page.lines.emplace_back("Closed forms", other);
  if (a.load.answered > 0) page.tables.push_back(latencies_table(a.load));
  if (!a.load.targets.empty()) page.tables.push_back(targets_table(a.load));
  page.plots = {latency_plot(study, a, made_by), requests_plot(study, a, made_by),
                use_plot(study, a, made_by)};
  const std::array titles{"Latencies", "Requests in the engine", "What KV cache and time go to"};
  for (std::size_t i = 0; i < titles.size(); ++i) {  // what the pictures say of the run is above
    page.plots[i].title = titles[i];
    page.plots[i].footnote = i == 0 && !a.load.targets.empty() ? kTargetSquares : "";
  }
  return curves_page_html(page);
}

namespace {

std::string step_name(const PlayedStep& s) {
  if (s.prompts > 0 && s.decodes > 0)
    return fmt::format("prompts {} tokens + {} decode", s.prompt_tokens, s.decodes);
  if (s.prompts > 0) return fmt::format("prompts {} tokens", s.prompt_tokens);
  return s.steps > 1 ? fmt::format("{} decode, {} steps", s.decodes, s.steps)
                     : fmt::format("{} decode", s.decodes);
}

TraceEvent step_event(const ServedTimeline::Step& of) {
  const PlayedStep& s = of.step;
  return {static_cast<int>(of.replica),
          0,
          step_name(s),
          s.prompts > 0 ? "with prompts" : "decode",
          s.from,
          s.to - s.from,
          {{"steps", std::to_string(s.steps)},
           {"requests that decode", std::to_string(s.decodes)},
           {"parts of prompts", std::to_string(s.prompts)},
           {"tokens of prompts", std::to_string(s.prompt_tokens)},
           {"requests that wait", std::to_string(s.waiting)},
           {"KV held", fmt::format("{:.1f} %", 100 * s.held)}}};
}

// A lane of a replica that nobody is in, each request in the first one.
class Lanes {
 public:
  int take(Seconds came, Seconds last) {
    while (!busy_.empty() && !(came < busy_.top().first)) {
      free_.push(busy_.top().second);
      busy_.pop();
    }
    int lane = used_ + 1;
    if (free_.empty()) {
      ++used_;
    } else {
      lane = free_.top();
      free_.pop();
    }
    busy_.push({last, lane});
    return lane;
  }
  int used() const { return used_; }

 private:
  using Busy = std::pair<Seconds, int>;
  struct Later {
    bool operator()(const Busy& a, const Busy& b) const { return b < a; }
  };
  std::priority_queue<Busy, std::vector<Busy>, Later> busy_;
  std::priority_queue<int, std::vector<int>, std::greater<>> free_;
  int used_ = 0;  // lane 0 has the steps
};

// Of a replica that prefills, its prompt alone, which the request comes to the other pool with.
void add_request(const ServedTimeline::Request& of, int lane, bool prefills,
                 std::vector<TraceEvent>& events) {
  const AnsweredRequest& r = of.request;
  const int replica = static_cast<int>(of.replica);
  std::vector<std::pair<std::string, std::string>> about{
      {"tokens of the prompt", std::to_string(r.prompt)},
      {"found in the prefix cache", std::to_string(r.found)},
      {"tokens of the answer", std::to_string(r.answer)},
      {"preempted, times", std::to_string(r.preempted)}};
  events.push_back({replica, lane, fmt::format("request {}: {}", r.number, prefills ? "prompt" : "TTFT"),
                    prefills ? "to the end of its prompt" : "to the first token", r.came, r.first - r.came,
                    about});
  if (r.answer > 1)
    events.push_back({replica, lane, fmt::format("request {}: answer", r.number), "to the last token",
                      r.first, r.last - r.first, std::move(about)});
}

}  // namespace

std::string requests_trace(const ServiceAnswer& a) {
  SL_CHECK(a.load.timeline != nullptr, "pictures were asked for");
  const ServedTimeline& timeline = *a.load.timeline;
  TraceNames names;
  std::vector<TraceEvent> events;
  // Those that prefill are before the others.
  const int prefill = a.load.pair ? a.question.prefill->replicas : 0;
  const int all = prefill + a.question.replicas;
  std::vector<Lanes> lanes(static_cast<std::size_t>(all));
  CancelCheck check;
  for (const ServedTimeline::Step& s : timeline.steps()) {
    check();
    events.push_back(step_event(s));
  }
  for (const ServedTimeline::Request& r : timeline.requests()) {
    check();
    add_request(r, lanes.at(r.replica).take(r.request.came, r.request.last),
                static_cast<int>(r.replica) < prefill, events);
  }
  for (int replica = 0; replica < all; ++replica) {
    names.processes.push_back({replica, !a.load.pair ? fmt::format("replica {}", replica)
                                        : replica < prefill
                                            ? fmt::format("prompts, replica {}", replica)
                                            : fmt::format("answers, replica {}", replica - prefill)});
    names.lanes.push_back({{replica, 0}, "steps"});
    for (int lane = 1; lane <= lanes[static_cast<std::size_t>(replica)].used(); ++lane)
      names.lanes.push_back({{replica, lane}, fmt::format("request, {}", lane)});
  }
  return trace_json(names, events);
}

std::string left_out_text(const ServiceAnswer& a) {
  const ServedTimeline& t = *a.load.timeline;
  if (t.steps_left_out() + t.requests_left_out() == 0) return "";
  return fmt::format("trace.json has the first {} steps and stretches of {}, and the first {} requests of {}",
                     t.steps().size(), t.steps().size() + t.steps_left_out(), t.requests().size(),
                     t.requests().size() + t.requests_left_out());
}

}  // namespace shardline::cli
