// Models left out in turn: their errors, by what they are looked at, and the bands that they make.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "calibrate/held_out.hpp"
#include "calibrate/validate/served_fit.hpp"

namespace shardline {

namespace {

// Numbers of users that are looked at together.
struct UserClass {
  const char* text;
  long long from, to;
};
constexpr std::array<UserClass, 4> kUsers{{{"at most 4", 1, static_cast<long long>(kFewUsers)},
                                           {"5 to 16", 5, 16},
                                           {"17 to 64", 17, 64},
                                           {"above 64", 65, 1'000'000'000}}};
std::size_t class_of(double users) {
  for (std::size_t i = 0; i + 1 < kUsers.size(); ++i) {
    if (users <= static_cast<double>(kUsers[i].to)) return i;
  }
  return kUsers.size() - 1;
}

constexpr const char *kOfAll = " of all rows", *kAllTpot = "TPOT of all rows";

// Errors by users, then of all of them.
void add_by_users(const std::string& what, const std::vector<std::pair<double, double>>& rows,
                  std::vector<ServedError>& out) {
  std::array<std::vector<double>, kUsers.size()> by_users;
  std::vector<double> all;
  for (const auto& [users, ratio] : rows) {
    by_users[class_of(users)].push_back(ratio);
    all.push_back(ratio);
  }
  for (std::size_t i = 0; i < kUsers.size(); ++i) {
    if (!by_users[i].empty())
      out.push_back(served_error(fmt::format("{} of {} users", what, kUsers[i].text), by_users[i]));
  }
  if (!all.empty()) out.push_back(served_error(what + kOfAll, all));
}

// Bands of TTFT by lengths and users. Among a few users lengths make no difference.
struct CoveringBand {
  TtftBand band;
  double covered = -1;  // of rows of models left out, by the others; negative: others make no band
  int counted = 0;      // of the rows
};

// The part of the rows of each model inside the band of the others, as held_out_band() has it, of models
// whose others have rows enough for a band.
void cover(const HeldOut& rows, CoveringBand& out) {
  std::size_t inside = 0, counted = 0;
  for (const int group : std::set<int>(rows.groups.begin(), rows.groups.end())) {
    HeldOut others;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows.groups[i] != group) others.add(rows.residuals[i], rows.groups[i]);
    }
    if (others.size() < kFewestOfBand) continue;
    const ErrorBand band = held_out_band(others, 1).band;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows.groups[i] != group) continue;
      ++counted;
      inside += band.contains(rows.residuals[i]) ? 1 : 0;
    }
  }
  out.counted = static_cast<int>(counted);
  out.covered = counted == 0 ? -1 : static_cast<double>(inside) / static_cast<double>(counted);
}

std::vector<CoveringBand> ttft_bands(const std::vector<LeftOutModel>& models) {
  std::vector<CoveringBand> out;
  const auto add = [&](const char* lengths, std::size_t users, const auto& counts) {
    HeldOut of;
    for (std::size_t m = 0; m < models.size(); ++m) {
      for (std::size_t i = 0; i < models[m].rows.size(); ++i) {
        const ServedRow& r = models[m].rows[i]->row;
        if (models[m].ttft[i] > 0 && class_of(r.users) == users && counts(r) && !models[m].rows[i]->preempts)
          of.add(-std::log(models[m].ttft[i]), static_cast<int>(m));
      }
    }
    if (of.size() == 0) return;
    CoveringBand& band = out.emplace_back();
    band.band = {lengths, kUsers[users].from, kUsers[users].to,
                 ServedBand{held_out_band(of, 1).band, static_cast<int>(of.size())}};
    for (const int m : std::set<int>(of.groups.begin(), of.groups.end()))
      band.band.models.push_back(models[static_cast<std::size_t>(m)].label);
    cover(of, band);
  };
  add("any", 0, [](const ServedRow&) { return true; });
  for (std::size_t i = 1; i < kUsers.size(); ++i) {
    add("drawn", i, [](const ServedRow& r) { return !r.equal_lengths; });
    add("equal", i, [](const ServedRow& r) { return r.equal_lengths; });
  }
  return out;
}

// Parts of the rows of models left out inside the bands that the other models make, by lengths and users as
// the bands are; then of all rows that any such band is of.
std::vector<ServedCoverage> ttft_coverage(const std::vector<LeftOutModel>& models) {
  std::vector<ServedCoverage> out;
  double inside = 0;
  int all = 0;
  std::set<std::string> of;
  for (const auto& [band, covered, counted] : ttft_bands(models)) {
    out.push_back({fmt::format("TTFT ({} lengths) of {} users", band.lengths,
                               kUsers[class_of(static_cast<double>(band.from))].text),
                   band.measured.rows, static_cast<int>(band.models.size()), covered, counted});
    if (counted == 0) continue;
    inside += covered * counted;
    all += counted;
    of.insert(band.models.begin(), band.models.end());
  }
  if (all > 0)
    out.push_back({"TTFT of all rows counted", all, static_cast<int>(of.size()), inside / all, all});
  return out;
}

// TPOT of all rows of all models, with their classes of users.
struct TpotRows {
  HeldOut rows;
  std::vector<std::size_t> classes;
  std::vector<ErrorTerms> prices;
};

TpotRows tpot_rows(const std::vector<LeftOutModel>& models) {
  TpotRows out;
  for (std::size_t m = 0; m < models.size(); ++m) {
    for (std::size_t i = 0; i < models[m].rows.size(); ++i) {
      out.rows.add(-std::log(models[m].tpot[i]), static_cast<int>(m));
      out.classes.push_back(class_of(models[m].rows[i]->row.users));
      out.prices.push_back(models[m].rows[i]->prices);
    }
  }
  return out;
}

// All rows of models but one.
HeldOut rows_without(const HeldOut& all, int model) {
  HeldOut out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all.groups[i] != model) out.add(all.residuals[i], all.groups[i]);
  }
  return out;
}

// The interval that answers show: errors of the prices of a step's kernels joined to a band of TPOT.
ErrorBand shown_band(const ErrorBand& band, const ErrorTerms& prices) {
  EngineProfile engine;
  engine.error.rows = 1;
  engine.error.tpot = band;
  const ErrorRange range = served_time_error(engine, prices);
  return {std::log1p(range.low), std::log1p(range.high)};
}

// Parts of the rows of each model inside the band that the others make, by users; then of each model, of each
// class of users and of all rows: by the bands, and of the intervals that answers show, which prices of
// kernels are joined to.
std::vector<ServedCoverage> tpot_coverage(const std::vector<LeftOutModel>& models) {
  if (models.size() < 2) return {};
  const TpotRows all = tpot_rows(models);
  std::vector<ServedCoverage> out;
  std::map<int, ErrorBand> bands;  // of the others of each model
  for (const int model : std::set<int>(all.rows.groups.begin(), all.rows.groups.end()))
    bands[model] = held_out_band(rows_without(all.rows, model), 1).band;
  const auto add = [&](const std::string& of, auto&& counts, bool shown = false) {
    std::size_t inside = 0;
    std::set<int> groups;
    int rows = 0;
    for (std::size_t i = 0; i < all.classes.size(); ++i) {
      const int model = all.rows.groups[i];
      if (!counts(model, all.classes[i])) continue;
      ++rows;
      groups.insert(model);
      const ErrorBand& band = bands.at(model);
      inside += (shown ? shown_band(band, all.prices[i]) : band).contains(all.rows.residuals[i]) ? 1 : 0;
    }
    if (rows > 0)
      out.push_back(
          {"TPOT of " + of, rows, static_cast<int>(groups.size()), static_cast<double>(inside) / rows, rows});
  };
  const auto any = [](int, std::size_t) { return true; };
  for (std::size_t m = 0; m < models.size(); ++m) {
    for (std::size_t u = 0; u < kUsers.size(); ++u)
      add(fmt::format("{}, {} users", models[m].label, kUsers[u].text),
          [&](int model, std::size_t users) { return model == static_cast<int>(m) && users == u; });
    add(fmt::format("{}, any users", models[m].label),
        [&](int model, std::size_t) { return model == static_cast<int>(m); });
  }
  for (std::size_t u = 0; u < kUsers.size(); ++u)
    add(fmt::format("all models, {} users", kUsers[u].text),
        [&](int, std::size_t users) { return users == u; });
  add("all models, any users, as shown", any, true);
  add("all models, any users", any);
  return out;
}

MeasuredLoops loops_of(const std::vector<TimedRow>& rows) {
  MeasuredLoops out;
  const auto add = [](MeasuredRange& range, double least, double most) {
    const long long low = std::llround(least), high = std::llround(most);
    range = range.to == 0 ? MeasuredRange{low, high}
                          : MeasuredRange{std::min(range.from, low), std::max(range.to, high)};
  };
  for (const TimedRow& r : rows) {
    // Lengths that are drawn lie between 80 and 100 % of the nominal one, of which a row has the mean.
    const double least = r.row.equal_lengths ? 1 : 0.8 / 0.9, most = r.row.equal_lengths ? 1 : 1 / 0.9;
    add(out.input, least * r.row.input, most * r.row.input);
    add(out.output, least * r.row.output, most * r.row.output);
    add(out.users, r.row.users, r.row.users);
    add(out.gpus, r.row.gpus, r.row.gpus);
  }
  return out;
}

// Every model predicted by the others.
std::vector<LeftOutModel> left_out_in_turn(const std::vector<const TimedRow*>& rows,
                                           const std::vector<std::string>& labels) {
  std::vector<LeftOutModel> out;
  for (const std::string& label : labels) {
    std::vector<const TimedRow*> others;
    for (const TimedRow* r : rows) {
      if (r->row.label != label) others.push_back(r);
    }
    LeftOutModel left;
    left.label = label;
    left.host = others.empty() ? HostTimes{} : fit_host(others);
    for (const TimedRow* r : rows) {
      if (r->row.label != label) continue;
      const Served s = served_by(left.host, *r);
      left.rows.push_back(r);
      left.tpot.push_back(s.tpot.value / r->row.tpot);
      left.ttft.push_back(r->row.ttft > 0 ? s.ttft.value / r->row.ttft : 0);
    }
    out.push_back(std::move(left));
  }
  return out;
}

// The same rows, each with the other kind of host than its engine's source says.
std::vector<TimedRow> with_other_host(const std::vector<TimedRow>& rows) {
  std::vector<TimedRow> out = rows;
  std::map<std::shared_ptr<const EngineProfile>, std::shared_ptr<const EngineProfile>> others;
  for (TimedRow& r : out) {
    auto& other = others[r.engine];
    if (!other) {
      EngineProfile e = *r.engine;
      e.host_waited_for = !e.host_waited_for;
      other = std::make_shared<const EngineProfile>(std::move(e));
    }
    r.engine = other;
  }
  return out;
}

ServedError all_tpot(const std::vector<LeftOutModel>& models) {
  std::vector<double> tpot;
  for (const LeftOutModel& m : models) tpot.insert(tpot.end(), m.tpot.begin(), m.tpot.end());
  return served_error(kAllTpot, tpot);
}

std::vector<const TimedRow*> pointers_to(const std::vector<TimedRow>& rows) {
  std::vector<const TimedRow*> out;
  for (const TimedRow& r : rows) out.push_back(&r);
  return out;
}

ServedBands bands_of(const std::vector<LeftOutModel>& models, const std::vector<TimedRow>& rows) {
  std::vector<TtftBand> by_users;
  for (CoveringBand& b : ttft_bands(models)) {
    b.band.tested = b.counted;
    by_users.push_back(std::move(b.band));
  }
  HeldOut drawn, equal;  // TTFT by lengths
  for (std::size_t m = 0; m < models.size(); ++m) {
    for (std::size_t i = 0; i < models[m].rows.size(); ++i) {
      if (models[m].ttft[i] > 0 && !models[m].rows[i]->preempts)
        (models[m].rows[i]->row.equal_lengths ? equal : drawn)
            .add(-std::log(models[m].ttft[i]), static_cast<int>(m));
    }
  }
  const HeldOut tpot = tpot_rows(models).rows;
  const std::vector<ServedCoverage> covered = tpot_coverage(models);
  const auto band = [](const HeldOut& of) {
    return ServedBand{held_out_band(of, 1).band, static_cast<int>(of.size())};
  };
  return {held_out_band(tpot, 1).band,
          static_cast<int>(tpot.size()),
          band(drawn),
          band(equal),
          covered.empty() ? 0.0 : covered.back().covered,
          served_errors(models),
          std::move(by_users),
          loops_of(rows)};
}

}  // namespace

std::vector<ServedError> served_errors(const std::vector<LeftOutModel>& models) {
  std::map<std::string, std::vector<double>> by_model;
  std::vector<std::pair<double, double>> tpot, drawn, equal;  // users, predicted / measured
  std::vector<double> capped_tpot, capped_ttft;
  for (const LeftOutModel& m : models) {
    for (std::size_t i = 0; i < m.rows.size(); ++i) {
      const ServedRow& r = m.rows[i]->row;
      by_model[m.label + " on " + r.system].push_back(m.tpot[i]);
      tpot.emplace_back(r.users, m.tpot[i]);
      if (m.rows[i]->preempts) {
        capped_tpot.push_back(m.tpot[i]);
        if (m.ttft[i] > 0) capped_ttft.push_back(m.ttft[i]);
      } else if (m.ttft[i] > 0) {
        (r.equal_lengths ? equal : drawn).emplace_back(r.users, m.ttft[i]);
      }
    }
  }
  std::vector<ServedError> out;
  for (const auto& [label, ratios] : by_model) out.push_back(served_error("TPOT of " + label, ratios));
  add_by_users("TPOT", tpot, out);
  add_by_users("TTFT (drawn lengths)", drawn, out);
  add_by_users("TTFT (equal lengths)", equal, out);
  // Their TPOT is among the rows above, their TTFT is not.
  if (!capped_tpot.empty()) out.push_back(served_error("TPOT of memory-capped rows", capped_tpot));
  if (!capped_ttft.empty()) out.push_back(served_error("TTFT of memory-capped rows", capped_ttft));
  return out;
}

ServedFit fit_engine(const std::vector<TimedRow>& rows) {
  const std::vector<const TimedRow*> all = pointers_to(rows);
  std::vector<std::string> labels;
  for (const TimedRow& r : rows) {
    if (std::find(labels.begin(), labels.end(), r.row.label) == labels.end()) labels.push_back(r.row.label);
  }
  ServedFit out;
  out.models = left_out_in_turn(all, labels);
  out.host = fit_host(all);
  out.bands = bands_of(out.models, rows);
  out.tpot_covered = tpot_coverage(out.models);
  out.ttft_covered = ttft_coverage(out.models);
  const std::vector<TimedRow> others = with_other_host(rows);
  out.other_host = all_tpot(left_out_in_turn(pointers_to(others), labels));
  return out;
}

std::vector<MeasuredVersion> versions_of(const std::vector<TimedRow>& rows) {
  std::map<std::string, int> of;
  for (const TimedRow& r : rows) ++of[r.row.version];
  std::vector<MeasuredVersion> out;
  for (const auto& [version, n] : of) out.push_back({version, n});
  return out;
}

}  // namespace shardline
