#include "planner/cli/calibrate_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

#include "calibrate/validate/served_fit.hpp"
#include "planner/scenario/shipped.hpp"
#include "reports/atomic_file.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

std::string host_text(const HostTimes& h) {
  return fmt::format("{} a step, {} a request of it, {} a prompt token, {} of request path",
                     to_string(h.step), to_string(h.request), to_string(h.prompt_token), to_string(h.path));
}

void print_errors(const ServedFit& fit) {
  Table t({"models left out", "rows", "median, %", "p90, %", "bias, %"});
  for (const ServedError& e : fit.bands.tables)
    t.add({e.of, fmt::format("{}", e.rows), fmt::format("{:.1f}", 100 * e.median),
           fmt::format("{:.1f}", 100 * e.p90), fmt::format("{:+.1f}", 100 * e.bias)});
  fmt::print("{}", t.text());
  fmt::print(
      "  90 % interval of TPOT {:+.0f} to {:+.0f} % of the prediction; by the other models' it covers {:.0f} "
      "%\n",
      100 * std::expm1(fit.bands.tpot.low), 100 * std::expm1(fit.bands.tpot.high), 100 * fit.bands.covered);
  for (const bool equal : {false, true}) {
    const ServedBand& b = fit.bands.ttft(equal);
    fmt::print("  {} points of TTFT with {} lengths{}\n", b.rows, equal ? "equal" : "drawn",
               b.rows == 0 ? ": nothing is known of its error"
                           : fmt::format(": 90 % interval {:+.0f} to {:+.0f} %", 100 * std::expm1(b.band.low),
                                         100 * std::expm1(b.band.high)));
  }
}

std::string band_yaml(const ErrorBand& b) { return fmt::format("[{:.4f}, {:.4f}]", b.low, b.high); }

std::string band_yaml(const ServedBand& b) {
  if (b.rows == 0) return "{rows: 0}";
  return fmt::format("{{rows: {}, band: {}}}", b.rows, band_yaml(b.band));
}

// A profile with its `host` in place of the one that it has.
std::string with_host_yaml(const std::string& text, const HostTimes& h, const ServedFit& fit,
                           const std::string& source) {
  const std::size_t begin = text.find("\nhost:") + 1, end = text.find("\nassumes:", begin) + 1;
  const auto us = [](Seconds s) { return fmt::format("{:.4g} us", s.value * 1e6); };
  std::string tables;
  for (const ServedError& e : fit.bands.tables)
    tables += fmt::format("      - {{of: \"{}\", rows: {}, median: {:.4f}, p90: {:.4f}, bias: {:.4f}}}\n",
                          e.of, e.rows, e.median, e.p90, e.bias);
  return text.substr(0, begin) +
         fmt::format(
             "host:  # fitted by shardline calibrate --engine, not edited by hand\n  step: {}\n  request: "
             "{}\n"
             "  prompt_token: {}\n  path: {:.4g} ms\n  source: \"{}\"\n  error:  # ln(measured / predicted) "
             "of "
             "models left "
             "out, 5 % and 95 %\n    rows: {}\n    tpot: {}\n    ttft: {{drawn: {}, equal: {}}}\n    "
             "covered: {:.3f}\n    "
             "tables:\n{}",
             us(h.step), us(h.request), us(h.prompt_token), h.path.value * 1e3, source, fit.bands.rows,
             band_yaml(fit.bands.tpot), band_yaml(fit.bands.drawn), band_yaml(fit.bands.equal),
             fit.bands.covered, tables) +
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

}  // namespace

int calibrate_engine(const CalibrateEngine& asked) {
  const Catalogs catalogs = shipped_catalogs();
  const EngineProfile engine = load_engine(engine_name(asked.engine), catalogs.engines);
  std::vector<ServedRow> rows;
  std::string names;
  for (const std::string& file : asked.measurements) {
    ServedTable table = load_served_rows(file);
    names += (names.empty() ? "" : ", ") + std::filesystem::path(file).filename().string();
    for (ServedRow& r : table.rows) {
      if (r.engine == engine.name) rows.push_back(std::move(r));
    }
    for (const LeftOutRows& l : table.left_out)
      fmt::print("  {} rows: {} left out, {}\n", l.rows, l.ttft_alone ? "TTFT" : "all", l.reason);
  }
  if (rows.empty()) throw UserError(fmt::format("no rows of {} in {}", engine.name, names));
  const std::vector<TimedRow> timed = time_rows(rows, engine, catalogs);
  if (timed.size() < rows.size())
    fmt::print("  {} rows: all left out, their caches do not fit by the profile\n",
               rows.size() - timed.size());
  const ServedFit fit = fit_engine(timed);
  fmt::print("{} {}: {} rows of measured serving, {} models\n", engine.title, engine.version, timed.size(),
             fit.models.size());
  fmt::print("  fitted to all: {}\n", host_text(fit.host));
  for (const LeftOutModel& m : fit.models) fmt::print("  without {}: {}\n", m.label, host_text(m.host));
  print_errors(fit);
  if (!asked.csv.empty()) {
    write_file(asked.csv, rows_csv(fit));
    fmt::print("  wrote {}\n", asked.csv);
  }
  if (!asked.out.empty()) {
    const std::filesystem::path file = catalogs.engines / (engine.name + ".yaml");
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const std::string source =
        fmt::format("{}, {} ({})", asked.source.empty() ? names : asked.source,
                    fmt::format("{} rows of {} models", timed.size(), fit.models.size()), asked.date);
    const std::string whole = with_host_yaml(text, fit.host, fit, source);
    parse_engine(asked.out, whole);  // what is written can be read
    make_folder_of(asked.out);
    write_file(asked.out, whole);
    fmt::print("  wrote {}\n", asked.out);
  }
  return 0;
}

}  // namespace shardline::cli
