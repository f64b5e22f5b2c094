#include "calibrate/validate/served_fit.hpp"

#include <fmt/format.h>

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "models/model/catalog.hpp"
#include "planner/layers/host_work.hpp"
#include "planner/strategies/strategy.hpp"
#include "sim/base/cancel.hpp"

namespace shardline {

namespace {

constexpr std::size_t kNumbers = 3;
using Numbers = std::array<double, kNumbers>;  // seconds: step, request, path
constexpr Numbers kLeast{1e-7, 1e-8, 1e-4}, kMost{0.05, 1e-3, 1}, kStart{3e-4, 1e-5, kAssumedPath};
constexpr double kOutlier = 0.15;  // relative error from which on a row counts only linearly

// No engine's host does anything for a single token of a prompt: see fit_host().
HostTimes host_of(const Numbers& n) { return {Seconds(n[0]), Seconds(n[1]), Seconds(0), Seconds(n[2])}; }

EngineProfile with(EngineProfile engine, const HostTimes& host) {
  engine.host = host;
  return engine;
}

bool has_ttft(const TimedRow* r) { return r->row.ttft > 0 && r->row.users <= kFewUsers; }

// The rows' engines with other host times: there are few that differ.
class Tried {
 public:
  explicit Tried(const HostTimes& host) : host_(host) {}
  /// Its rounds move TTFT alone.
  Served served(const TimedRow& r, bool rounds = true) {
    auto at = engines_.find(r.engine);
    if (at == engines_.end()) at = engines_.emplace(r.engine, with(*r.engine, host_)).first;
    ServedLoad load = r.load;
    if (!rounds) load.rounds = 0;
    return steady_serving(at->second, load, with_host(r, at->second));
  }

 private:
  HostTimes host_;
  std::map<std::shared_ptr<const EngineProfile>, EngineProfile> engines_;
};

// A fitted residual: ln(predicted / measured) of TPOT, and of TTFT where it counts, times the row's weight.
struct Residuals {
  const std::vector<const TimedRow*>& rows;
  std::vector<double> weights;

  explicit Residuals(const std::vector<const TimedRow*>& r) : rows(r) {
    std::map<std::string, double> of_model;
    for (const TimedRow* row : rows) of_model[row->row.label] += 1;
    for (const TimedRow* row : rows) weights.push_back(1 / std::sqrt(of_model[row->row.label]));
  }

  Eigen::VectorXd at(const Numbers& numbers) const {
    Tried tried(host_of(numbers));
    std::vector<double> out;
    for (const TimedRow* r : rows) {
      check_cancelled();
      const Served s = tried.served(*r, has_ttft(r));
      out.push_back(std::log(s.tpot.value / r->row.tpot));
      if (has_ttft(r)) out.push_back(std::log(s.ttft.value / r->row.ttft));
    }
    return Eigen::Map<Eigen::VectorXd>(out.data(), static_cast<Eigen::Index>(out.size()));
  }
  Eigen::VectorXd weight(const Eigen::VectorXd& r) const {
    Eigen::VectorXd out(r.size());
    Eigen::Index k = 0;
    const auto put = [&](double w) {
      const double far = std::abs(r(k));
      out(k++) = w * (far <= kOutlier ? 1 : kOutlier / far);
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      put(weights[i]);
      if (has_ttft(rows[i])) put(weights[i]);
    }
    return out;
  }
  double loss(const Eigen::VectorXd& r) const {
    double sum = 0;
    Eigen::Index k = 0;
    const auto put = [&](double w) {
      const double far = std::abs(r(k++));
      sum += w * (far <= kOutlier ? far * far : 2 * kOutlier * far - kOutlier * kOutlier);
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      put(weights[i]);
      if (has_ttft(rows[i])) put(weights[i]);
    }
    return std::isfinite(sum) ? sum : HUGE_VAL;
  }
};

Eigen::MatrixXd jacobian(const Residuals& f, const Numbers& x, const Eigen::VectorXd& r) {
  constexpr double kStep = 1e-4;
  Eigen::MatrixXd j(r.size(), static_cast<Eigen::Index>(kNumbers));
  for (std::size_t i = 0; i < kNumbers; ++i) {
    Numbers moved = x;
    moved[i] *= std::exp(kStep);
    j.col(static_cast<Eigen::Index>(i)) = (f.at(moved) - r) / kStep;
  }
  return j;
}

}  // namespace

ServedError served_error(std::string of, const std::vector<double>& ratios) {
  ServedError e;
  e.of = std::move(of);
  e.rows = static_cast<int>(ratios.size());
  if (ratios.empty()) return e;
  std::vector<double> off, signed_off;
  for (const double q : ratios) off.push_back(std::abs(q - 1)), signed_off.push_back(q - 1);
  std::sort(off.begin(), off.end());
  std::sort(signed_off.begin(), signed_off.end());
  const auto part = [](const std::vector<double>& v, double p) {
    return v[static_cast<std::size_t>(p * static_cast<double>(v.size() - 1) + 0.5)];
  };
  e.median = part(off, 0.5);
  e.p90 = part(off, 0.9);
  e.bias = part(signed_off, 0.5);
  return e;
}

std::string served_scenario(const ServedRow& r, const Catalogs& catalogs) {
  // Ranks wait for the one with most of the experts' rows.
  const bool routes = has_experts(load_model(r.model, catalogs.models));
  return fmt::format(
      "name: served\nsystem: {}\nmodels: [{}]\ncontext: 1024 tokens\nprecision: {}\nengine: {}\n{}"
      "strategies: [tensor, dp_ep, pipeline]\ngpus: [1]\nbatch: [1]\n",
      r.system, r.model, r.precision, r.engine, routes ? "routing: {kind: uniform, load: busiest}\n" : "");
}

ServedTimes with_host(const TimedRow& r, const EngineProfile& engine) {
  ServedTimes t = r.kernels;
  const HostTimes& host = engine.host;
  const double n = std::min(r.load.users, std::floor(t.room));
  const bool mixed = engine.prefill == PrefillPolicy::mixed && n > 1;
  const auto step = [&](Seconds kernels, Seconds work) {
    return engine.host_waited_for ? kernels + work : beside_host(kernels, work);
  };
  t.decode = step(t.decode, host.step + host.request * n);
  // Of so many prompts that share steps.
  const auto chunks = [&](Seconds kernels, double prompts) {
    const Seconds chunk =
        host.step + host.request * (mixed ? n : 0) + host.prompt_token * (r.load.input * prompts / t.steps);
    return step(kernels / t.steps, chunk) * t.steps;
  };
  t.prompt = chunks(t.prompt, t.prompts);
  t.alone = chunks(t.alone, 1);
  t.full = chunks(t.full, t.most);
  t.prompt_added = (mixed ? std::max(Seconds(0), t.prompt - t.decode * t.steps) : t.prompt) / t.prompts;
  return t;
}

EngineProfile as_started(EngineProfile engine, const ServedRow& row) {
  if (!row.version.empty()) engine.host_waited_for = engine.waits_in_version(row.version);
  if (row.mixes_prompts) engine.prefill = PrefillPolicy::mixed;
  if (row.step_tokens > 0) {
    for (auto& of_device : engine.step_tokens) of_device.second = row.step_tokens;
  }
  if (row.memory > 0) {
    engine.memory = row.memory;
    // A formula for that part itself says nothing where the part was given.
    if (engine.kept.holds_activations) engine.kept = engine.kept.context_alone();
  }
  return engine;
}

std::vector<TimedRow> time_rows(const std::vector<ServedRow>& rows, const EngineProfile& engine,
                                const Catalogs& catalogs) {
  std::vector<TimedRow> out;
  std::map<std::string, Case> cases;
  std::map<std::tuple<std::string, bool, long long, double>, std::shared_ptr<const EngineProfile>> started;
  for (const ServedRow& r : rows) {
    auto& bare = started[{r.version, r.mixes_prompts, r.step_tokens, r.memory}];
    if (!bare) bare = std::make_shared<const EngineProfile>(as_started(with(engine, HostTimes{}), r));
    const std::string text = served_scenario(r, catalogs);
    if (!cases.contains(text)) {
      Case c = parse_scenario("served", text, catalogs).studies[0].study;
      c.system.host = {Seconds(0), Seconds(0), Seconds(0), c.system.host.launch};  // not fitted
      cases.emplace(text, std::move(c));
    }
    cases.at(text).engine = bare;
    TimedRow t;
    t.row = r;
    t.engine = bare;
    const Plan plan = parse_plan(r.plan);
    ServedEvaluator evaluator(cases.at(text), AllReduceRule::fastest);
    const ServedWorkload load{static_cast<long long>(r.input), static_cast<long long>(r.output),
                              static_cast<long long>(r.users), r.equal_lengths, r.rounds};
    const ServedPlan s = evaluator.of(plan, load);
    const auto groups = static_cast<double>(plan.users());
    t.load = {r.input, r.output, std::max(1.0, std::floor(r.users / groups)), load.equal_lengths,
              load.rounds};
    t.kernels = s.times;
    if (s.serves()) t.prices = evaluator.decode_breakdown(plan, s).errors;
    t.preempts = preempts(cases.at(text), plan, load);
    if (s.times.room >= 1) out.push_back(std::move(t));
  }
  return out;
}

HostTimes fit_host(const std::vector<const TimedRow*>& rows) {
  const Residuals f(rows);
  // Without the TTFT of few users nothing tells the request path: it stays what it is in engines that have
  // some.
  const std::array<bool, kNumbers> fitted{true, true, std::any_of(rows.begin(), rows.end(), has_ttft)};
  Numbers x = kStart;
  Eigen::VectorXd r = f.at(x);
  double loss = f.loss(r), damping = 1e-2;
  for (int step = 0; step < 60; ++step) {
    const Eigen::MatrixXd j = jacobian(f, x, r);
    const Eigen::VectorXd w = f.weight(r);
    const Eigen::MatrixXd a = j.transpose() * w.asDiagonal() * j;
    const Eigen::VectorXd g = j.transpose() * (w.array() * r.array()).matrix();
    bool better = false;
    for (int trial = 0; trial < 12 && !better; ++trial) {
      Eigen::MatrixXd damped = a;
      for (Eigen::Index i = 0; i < a.rows(); ++i) damped(i, i) += damping * std::max(a(i, i), 1e-9);
      const Eigen::VectorXd move = (-damped.ldlt().solve(g)).cwiseMax(-1.0).cwiseMin(1.0);
      Numbers moved = x;
      for (std::size_t i = 0; i < kNumbers; ++i) {
        if (fitted[i])
          moved[i] = std::clamp(x[i] * std::exp(move(static_cast<Eigen::Index>(i))), kLeast[i], kMost[i]);
      }
      const Eigen::VectorXd moved_r = f.at(moved);
      const double moved_loss = f.loss(moved_r);
      better = moved_loss < loss * (1 - 1e-9);
      damping = better ? std::max(damping / 5, 1e-9) : damping * 4;
      if (better) x = moved, r = moved_r, loss = moved_loss;
    }
    if (!better) break;
  }
  return host_of(x);
}

Served served_by(const HostTimes& host, const TimedRow& row) { return Tried(host).served(row); }

}  // namespace shardline
