#include "planner/cli/calibrate_engine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "calibrate/validate/served_fit.hpp"
#include "calibrate/validate/served_play.hpp"
#include "calibrate/validate/served_tables.hpp"
#include "planner/cli/measured_documents.hpp"
#include "planner/cli/terminal_parts.hpp"
#include "planner/scenario/shipped.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"
#include "sim/base/read_text.hpp"
#include "sim/base/yaml_scalar.hpp"

namespace shardline::cli {

namespace {

std::string host_text(const HostTimes& h) {
  return fmt::format("{} a step, {} a request of it, {} a prompt token, {} of request path",
                     to_string(h.step), to_string(h.request), to_string(h.prompt_token), to_string(h.path));
}

void print_errors(const ServedFit& fit, const ServedDetails& details) {
  Table t({"models left out", "rows", "median, %", "p90, %", "bias, %"});
  for (const std::vector<ServedError>* errors : {&fit.bands.tables, &details.layouts}) {
    for (const ServedError& e : *errors)
      t.add({e.of, fmt::format("{}", e.rows), fmt::format("{:.1f}", 100 * e.median),
             fmt::format("{:.1f}", 100 * e.p90), fmt::format("{:+.1f}", 100 * e.bias)});
  }
  for (const ServedError& e : details.other_host)
    t.add({e.of + ", the other kind of host", fmt::format("{}", e.rows),
           fmt::format("{:.1f}", 100 * e.median), fmt::format("{:.1f}", 100 * e.p90),
           fmt::format("{:+.1f}", 100 * e.bias)});
  print_notes("{}", fitted(t));
  for (const auto* of : {&details.tpot_covered, &details.ttft_covered}) {
    for (const ServedCoverage& c : *of) {
      if (c.covered >= 0)
        print_notes("  {}: {:.0f} % of {} rows inside the band of the other models\n", c.of, 100 * c.covered,
                    c.counted);
    }
  }
  print_notes(
      "  90 % interval of TPOT {:+.0f} to {:+.0f} % of the prediction; by the other models' it covers {:.1f} "
      "%\n",
      100 * std::expm1(fit.bands.tpot.low), 100 * std::expm1(fit.bands.tpot.high), 100 * fit.bands.covered);
  for (const bool equal : {false, true}) {
    const ServedBand& b = fit.bands.ttft(equal);
    print_notes("  {} points of TTFT with {} lengths{}\n", b.rows, equal ? "equal" : "drawn",
                b.rows == 0 ? ": nothing is known of its error"
                            : fmt::format(": 90 % interval {:+.0f} to {:+.0f} %",
                                          100 * std::expm1(b.band.low), 100 * std::expm1(b.band.high)));
  }
}

// Of requests played one by one, with the host times that are fitted to other models.
void print_played(const PlayedFit& played) {
  Table t({"models left out, played", "rows", "median, %", "p90, %", "bias, %"});
  std::vector<ServedError> errors = served_errors(played.models);
  for (const LeftOutModel& m : played.models) {
    std::vector<double> ttft;
    for (const double ratio : m.ttft) {
      if (ratio > 0) ttft.push_back(ratio);
    }
    if (!ttft.empty()) errors.push_back(served_error("TTFT of " + m.label, ttft));
  }
  for (const ServedError& e : errors)
    t.add({e.of, fmt::format("{}", e.rows), fmt::format("{:.1f}", 100 * e.median),
           fmt::format("{:.1f}", 100 * e.p90), fmt::format("{:+.1f}", 100 * e.bias)});
  print_notes("{}", fitted(t));
  if (played.left_out > 0)
    print_notes("  {} rows are not played: their plans' requests are not, or their servers would not start\n",
                played.left_out);
}

std::string band_yaml(const ErrorBand& b) { return fmt::format("[{:.4f}, {:.4f}]", b.low, b.high); }

std::string band_yaml(const ServedBand& b) {
  if (b.rows == 0) return "{rows: 0}";
  return fmt::format("{{rows: {}, band: {}}}", b.rows, band_yaml(b.band));
}

std::string bands_yaml(const std::vector<TtftBand>& bands) {
  std::string out;
  for (const TtftBand& b : bands)
    out += fmt::format(
        "\n        - {{lengths: {}, from: {}, to: {}, rows: {}, tested: {}, models: [{}], band: {}}}",
        b.lengths, b.from, b.to, b.measured.rows, b.tested, fmt::join(b.models, ", "),
        band_yaml(b.measured.band));
  return out.empty() ? " []" : out;
}

std::string loops_yaml(const MeasuredLoops& l) {
  const auto range = [](const MeasuredRange& r) { return fmt::format("[{}, {}]", r.from, r.to); };
  return fmt::format("{{input: {}, output: {}, users: {}, gpus: {}}}", range(l.input), range(l.output),
                     range(l.users), range(l.gpus));
}

// A profile with its `host` in place of the one that it has.
std::string with_host_yaml(const std::string& text, const HostTimes& h, const ServedFit& fit,
                           const ServedDetails& details, const std::string& source) {
  const std::size_t begin = text.find("\nhost:") + 1, end = text.find("\nassumes:", begin) + 1;
  const auto us = [](Seconds s) { return fmt::format("{:.4g} us", s.value * 1e6); };
  return text.substr(0, begin) +
         fmt::format(
             "host:  # fitted by shardline calibrate --engine, not edited by hand\n  step: {}\n  request: "
             "{}\n"
             "  prompt_token: {}\n  path: {:.4g} ms\n  source: {}\n  error:  # ln(measured / predicted) "
             "of "
             "models left "
             "out, 5 % and 95 %\n    rows: {}\n    tpot: {}\n    ttft:\n      drawn: "
             "{}\n      equal: {}\n   "
             "   by_users:{}\n    "
             "covered: {:.3f}\n    loops: {}\n    "
             "tables:\n{}{}",
             us(h.step), us(h.request), us(h.prompt_token), h.path.value * 1e3, yaml_quoted(source),
             fit.bands.rows, band_yaml(fit.bands.tpot), band_yaml(fit.bands.drawn),
             band_yaml(fit.bands.equal), bands_yaml(fit.bands.ttft_by_users), fit.bands.covered,
             loops_yaml(fit.bands.loops), served_errors_yaml(fit.bands.tables),
             served_details_yaml(details)) +
         text.substr(end);
}

std::string rows_csv(const ServedFit& fit) {
  std::string out =
      "system,model,engine,version,plan,input,output,users,measured_tpot_ms,predicted_tpot_ms,measured_ttft_"
      "ms,"
      "predicted_ttft_ms,decode_kernels_ms,prompt_ms,prompt_added_ms,room,line\n";
  for (const LeftOutModel& m : fit.models) {
    for (std::size_t i = 0; i < m.rows.size(); ++i) {
      const TimedRow& r = *m.rows[i];
      out += fmt::format(
          "{},{},{},{},\"{}\",{:.0f},{:.0f},{:.0f},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.0f},{}"
          "\n",
          r.row.system, m.label, r.row.engine, r.row.version, r.row.plan, r.row.input, r.row.output,
          r.row.users, r.row.tpot * 1e3, m.tpot[i] * r.row.tpot * 1e3, r.row.ttft * 1e3,
          m.ttft[i] * r.row.ttft * 1e3, r.kernels.decode.value * 1e3, r.kernels.prompt.value * 1e3,
          r.kernels.prompt_added.value * 1e3, r.kernels.room, r.row.line);
    }
  }
  return out;
}

// What tables have of one engine.
struct EngineRows {
  std::string names;  // of the files
  std::vector<ServedRow> rows;
  std::vector<ServedLeftOut> left_out;
  std::vector<ServedRow> priced;  // left out, with a prediction that says something
  int measured = 0;
};

EngineRows rows_of(const std::vector<std::string>& files, const EngineProfile& engine) {
  EngineRows out;
  for (const std::string& file : files) {
    ServedTable table = load_served_rows(file);
    out.names += (out.names.empty() ? "" : ", ") + std::filesystem::path(file).filename().string();
    for (ServedRow& r : table.rows) {
      if (r.engine == engine.name) out.rows.push_back(std::move(r));
    }
    for (ServedRow& r : table.priced) {
      if (r.engine == engine.name) out.priced.push_back(std::move(r));
    }
    for (const LeftOutRows& l : table.left_out) {
      if (l.engine != engine.name) continue;
      out.left_out.push_back({l.reason, l.rows, l.ttft_alone});
      if (!l.ttft_alone) out.measured += l.rows;
    }
  }
  if (out.rows.empty()) throw UserError(fmt::format("no rows of {} in {}", engine.name, out.names));
  out.measured += static_cast<int>(out.rows.size());
  return out;
}

// The rows that are left out with a prediction, all of one reason, by numbers which saw none of them.
void price_left_out(const EngineRows& read, const EngineProfile& engine, const HostTimes& host,
                    const Catalogs& catalogs, std::vector<ServedLeftOut>& left_out) {
  std::vector<double> tpot;
  for (const TimedRow& r : time_rows(read.priced, engine, catalogs))
    tpot.push_back(served_by(host, r).tpot.value / r.row.tpot);
  for (ServedLeftOut& l : left_out) {
    if (!l.ttft_alone && !tpot.empty() && l.rows == static_cast<int>(read.priced.size()))
      l.priced = served_error("TPOT of these rows, priced", tpot);
  }
}

std::vector<std::string> notes_of(const ServedDetails& details) {
  std::vector<std::string> out;
  for (const ServedLeftOut& l : details.left_out)
    out.push_back(fmt::format("{} rows: {} left out, {}", l.rows, l.ttft_alone ? "TTFT" : "all", l.why));
  return out;
}

void set_document(const EngineProfile& engine, std::size_t rows, const ServedFit& fit,
                  const std::vector<std::string>& notes, const Provenance& made_by) {
  if (made_by.document == nullptr) return;
  api::CalibrateEngineResult out;
  out.version = made_by.version;
  out.command = made_by.command;
  out.engine = engine.name;
  out.engine_version = engine.version;
  out.rows = rows;
  out.host = host_times(fit.host, "");
  for (const LeftOutModel& m : fit.models) out.left_out.push_back(host_times(m.host, m.label));
  out.errors = engine_errors(fit.bands);
  out.notes = notes;
  made_by.document->set(api::to_json(out));
}

}  // namespace

int calibrate_engine(const CalibrateEngine& asked, const Provenance& made_by) {
  const Catalogs catalogs = shipped_catalogs();
  const EngineProfile engine = load_engine(engine_name(asked.engine), catalogs.engines);
  const EngineRows read = rows_of(asked.measurements, engine);
  const std::vector<TimedRow> timed = time_rows(read.rows, engine, catalogs);
  const ServedFit fit = fit_engine(timed);
  ServedDetails details{
      errors_by_layout(fit.models), read.measured, read.left_out, fit.ttft_covered, fit.tpot_covered, {}, {}};
  if (fit.other_host.rows > 0) details.other_host.push_back(fit.other_host);
  details.versions = versions_of(timed);
  price_left_out(read, engine, fit.host, catalogs, details.left_out);
  if (const auto without_room = static_cast<int>(read.rows.size() - timed.size()); without_room > 0)
    details.left_out.push_back({"their caches do not fit by the profile", without_room});
  for (const std::string& note : notes_of(details)) print_notes("  {}\n", note);
  set_document(engine, timed.size(), fit, notes_of(details), made_by);
  print_notes("{} {}: {} rows of measured serving, {} models\n", engine.title, engine.version, timed.size(),
              fit.models.size());
  print_notes("  fitted to all: {}\n", host_text(fit.host));
  for (const LeftOutModel& m : fit.models) print_notes("  without {}: {}\n", m.label, host_text(m.host));
  print_errors(fit, details);
  if (asked.play) print_played(play_left_out(fit, engine, catalogs));
  if (!asked.csv.empty()) {
    make_folder_of(asked.csv);
    write_file(asked.csv, rows_csv(fit));
    print_notes("  wrote {}\n", asked.csv);
  }
  if (!asked.out.empty()) {
    const std::filesystem::path file = catalogs.engines / (engine.name + ".yaml");
    const std::string text = read_text(file, kLargestDocument);
    const std::string source =
        fmt::format("{}, {} ({})", asked.source.empty() ? read.names : asked.source,
                    fmt::format("{} rows of {} models", timed.size(), fit.models.size()), asked.date);
    const std::string whole = with_host_yaml(text, fit.host, fit, details, source);
    parse_engine(asked.out, whole);  // what is written can be read
    make_folder_of(asked.out);
    write_file(asked.out, whole, AfterInterrupt::refuse, IfRead::replace);
    print_notes("  wrote {}\n", asked.out);
  }
  return 0;
}

}  // namespace shardline::cli
