// The interactive page of a sweep: every plan in one chart, with filters, a table of the frontier, two plans
// side by side and where their time goes. One file that opens without a network.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shardline {

/// Nominal 90 % of a number, in parts of it: the truth lies between 1 + low and 1 + high times it.
struct PageInterval {
  double low = 0, high = 0;
};

/// What is not finite is shown as a dash.
struct PageNumber {
  double value = 0;
  std::optional<PageInterval> interval{};
};

enum class Better : std::uint8_t { more, less, neither };

/// Numbers of the same kind, one per plan: a column of the table.
struct PageColumn {
  std::string name;  // as tables have it: "tokens/s/GPU"
  std::string unit;  // "ms"; empty: none, or the name says it
  Better better = Better::neither;
  bool filtered = false;  // has a field for its least and for its most
  bool interval = false;  // a column of intervals follows it
  bool errs = false;      // as prices do: without an interval its error was not measured
};

/// Time on the critical path that ops of a part of the layer take, and what bounds them.
struct PagePart {
  std::string part, limit;
  double ms = 0;
};

/// One plan that fits.
struct PagePoint {
  std::string strategy, plan;
  std::string command;                // simulates this plan; a button copies it
  std::vector<std::string> engines;   // that launch files are written for
  bool exact = true;                  // the same function as one device computes
  bool frontier = false;              // on the overall frontier; drawn with a ring
  std::vector<PageNumber> numbers{};  // one per column
  // Parts of the time by what it rests on: they add up to 1, or are all 0 where that is not known. Open
  // marks: more than half is extrapolated or assumed.
  double measured = 0, fitted = 0, extrapolated = 0, assumed = 0;
  std::vector<PagePart> parts{};  // empty: not known
};

/// A limit that the user asked for, and where its line stands on an axis, if it has one.
struct PageTarget {
  std::string text;        // "TTL at most 20 ms"
  std::size_t column = 0;  // of what it limits
  bool most = true;        // else at least
  double value = 0;
  std::optional<double> x{}, y{};
};

/// What colours in the bars of a plan's parts mean.
struct PageLimit {
  std::string name, text;
};

/// A table below those of plans, as it stands: of answers that are no plans, which nothing filters or
/// compares.
struct PageTable {
  std::string title, text{};                     // a heading, and what is said above it
  std::vector<std::vector<std::string>> rows{};  // the header first; none: the text stands alone
  std::size_t plans = 0;  // so many of the last columns are plans, which are not broken
};

/// Texts are plain, never HTML. A scenario of several lines is shown folded.
struct Page {
  std::string title, summary, scenario, command, version;
  std::string costs{};  // where they are from, in a line; empty: not said
  std::vector<PageColumn> columns{};
  std::size_t x = 0, y = 0;  // columns that are the axes of the chart
  bool log_x = false, log_y = false;
  bool bands = false;           // nominal 90 % of frontiers is shaded
  std::string interval_note{};  // what intervals are
  std::vector<PageTarget> targets{};
  std::vector<PageLimit> limits{};  // every one that a part has
  std::string parts_of{};           // what time it is that parts add up to: "of TTL"
  std::vector<PagePoint> points{};
  std::vector<PageTable> tables{};
};

/// Vega's module files as found when this program was configured; empty without Debian's libjs-vega.
std::vector<std::filesystem::path> vega_files();

/// The page as HTML with Vega's modules inlined. When one of `vega` cannot be read, or there is none, the
/// page keeps all but its chart, and says which Debian package that needs. Without plans it has its tables
/// alone.
std::string page_html(const Page& page, const std::vector<std::filesystem::path>& vega);
std::string page_html(const Page& page);

}  // namespace shardline
