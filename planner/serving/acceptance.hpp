// Multi-token prediction and speculative decoding: how many tokens a step yields when k drafts are verified
// in it, and how many steps an answer takes. planner/README.md [P28].
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hardware/cost/fit_intervals.hpp"
#include "sim/base/error.hpp"

namespace shardline {

class Document;
class Reader;

/// More drafts than anybody publishes; the largest k that is asked for or given.
inline constexpr int kMostDrafts = 64;

/// The form with two parameters: the j-th draft of a step is accepted, if all before it were, with the
/// probability p_j = p g^(j-1). 0 < p <= 1 and 0 < g <= 1: every published curve has g from 0.73 to 0.97, and
/// with g above 1 every draft beyond some j would be certain, which no data of a few drafts show.
struct AcceptanceForm {
  double p = 1, g = 1;

  friend bool operator==(const AcceptanceForm&, const AcceptanceForm&) = default;
};

/// Probability that the first j of k drafts are accepted, for j = 1 to k: never rising. 0 <= k <=
/// kMostDrafts.
std::vector<double> survival(const AcceptanceForm& form, int k);
/// AL(k) = 1 + sum_{j<=k} prod_{i<=j} p_i, tokens that a step yields in the mean: 1 of no draft, at most 1 +
/// k, never falling in k.
double mean_accepted(const AcceptanceForm& form, int k);

/// A mean accepted length that was measured with k drafts; `where` is its place in a file, if it has one.
struct MeasuredAcceptance {
  int k = 1;
  double mean = 1;
  Location where = {};
};

/// The form whose ln(AL) has the least sum of squared differences from those of `points`; of at least two
/// different k (checked). Deterministic: a grid, refined around its best point.
AcceptanceForm fit_acceptance(std::span<const MeasuredAcceptance> points);

/// What AL(k) rests on, weakest last; text for reports: acceptance_basis_name().
enum class AcceptanceBasis : std::uint8_t {
  given,         // the table has this k
  form,          // there is no table: of the two parameters
  interpolated,  // between two k of the table, by the form
  extrapolated,  // beyond the table, by the form
};
const char* acceptance_basis_name(AcceptanceBasis basis);

/// AL of one k and the law behind it.
struct AcceptedLength {
  int k = 0;
  double mean = 1;
  AcceptanceBasis basis = AcceptanceBasis::given;
  std::vector<double> survival = {};  // of the first 1 to k drafts; its sum and 1 are the mean
  /// Nominal 90 % of ln(true mean / mean) by what the form is off, of the published curves [P28]; nothing of
  /// a mean that is given: how far the user's traffic is from where it was measured is the user's to know.
  ErrorBand band = {};
  std::string curve = {};  // the published curve that it is of; empty: a user's own
};

/// Where a curve is from that somebody published; all empty of a user's own.
struct AcceptanceOrigin {
  std::string name;    // "glm-5.2-fp8-mtp-thinking-on"
  std::string method;  // of drafting: "mtp" (the model's own module), "eagle3", "dspark", ...
  std::string source;  // "SemiAnalysisAI/InferenceX 843c6254 (Apache-2.0), ..., glm5.2_mtp.yaml"
};

/// Acceptance by draft length, of one model with one method of drafting.
class AcceptanceCurve {
 public:
  /// Of two parameters: checked 0 < p <= 1, 0 < g <= 1.
  explicit AcceptanceCurve(AcceptanceForm form);
  /// Of a table: its means are used exactly at their k. Between and beyond them the form that is fitted to it
  /// is scaled by what the neighbours (the nearest one) lie above or below it, so that nothing jumps at a k
  /// of the table; the scaled mean is kept from 1 to 1 + k. `given`, if there is one, in place of the fitted
  /// form. `points`: not empty, by rising k, each mean from 1 to 1 + k (checked: readers say it with a
  /// place).
  explicit AcceptanceCurve(std::vector<MeasuredAcceptance> points,
                           std::optional<AcceptanceForm> given = std::nullopt, AcceptanceOrigin origin = {});

  /// 0 <= k <= kMostDrafts (checked). UserError at the table's place where it has a single k and no form: one
  /// mean says nothing of other k. k = 0 is plain decoding: one token, given.
  AcceptedLength at(int k) const;
  /// The same without `survival`, for who asks the mean of many plans: the law of a mean that is no form's
  /// takes a hundred halvings.
  AcceptedLength mean_at(int k) const;
  /// The k that are tried and told where nobody says which: 1 to 8, as published curves end there and the
  /// best lies below; or, of a single mean without a form, its own alone, as at() answers no other.
  std::vector<int> usual() const;
  const AcceptanceOrigin& origin() const { return origin_; }
  const std::optional<AcceptanceForm>& form() const { return form_; }
  const std::vector<MeasuredAcceptance>& points() const { return points_; }
  /// The k of the table whose mean is below that of a smaller k: more drafts accepted less, which the same
  /// drafts would not. Published tables have such k (seven or eight drafts); they are used as they stand.
  std::vector<int> falls() const;

 private:
  std::vector<MeasuredAcceptance> points_;
  std::optional<AcceptanceForm> form_;
  AcceptanceOrigin origin_;
};

/// Steps that n tokens of an answer take in the mean, n >= 0 (checked): what a step accepts beyond the n-th
/// token is cut. Exact: the mean first passage of a renewal whose lengths have the law of `length`,
/// E(n) = 1 + sum_a P(a) E(n - a). Takes n (k + 1) operations.
double steps_of_answer(const AcceptedLength& length, long long n);
/// The same in closed form, which that tends to: (n + E[A(A-1)] / (2 E[A])) / E[A] with A the tokens of a
/// step (Wald's identity, and the mean overshoot of a lattice renewal). Both lie from n / E[A] to
/// (n + k) / E[A], so they differ by k / E[A] steps at most, and by far less once n is some times k unless
/// nearly every draft is accepted.
double steps_of_long_answer(const AcceptedLength& length, double n);

/// A curve of the shipped file, and where it is from.
struct PublishedAcceptance {
  std::string model, method, thinking;  // thinking: on or off
  AcceptanceForm form;
  int most_drafts = 0;                         // fitted to k = 1 to this
  double median_error = 0, largest_error = 0;  // of the fit, in parts
  std::vector<MeasuredAcceptance> points;      // some of the published means, by rising k; not empty
  std::string source;

  /// "glm-5.2-fp8-mtp-thinking-on": how a scenario names it.
  std::string name() const;
  /// The published means exactly at their k, the form between and beyond them.
  AcceptanceCurve curve() const;
};
/// The form of planner/serving/acceptance.yaml: `source` and `curves`, each with model, method, thinking, p,
/// g, drafts, error, table, file. UserError with every fault, a name that two curves have among them.
std::vector<PublishedAcceptance> parse_published_acceptance(const std::string& file, const std::string& text);
std::vector<PublishedAcceptance> load_published_acceptance(const std::filesystem::path& file);

/// A user's acceptance as a part of a document: a mapping as below. Nothing where the document has faults.
std::optional<AcceptanceCurve> read_acceptance(const Document& document, const Reader& at);
/// A user's acceptance: in YAML a mapping with `p` and `g`, or with `table` (a list of {drafts, mean}), or
/// both; in CSV (file.csv) a header and two columns, drafts and mean. UserError with the place of every
/// fault: k from 1 to kMostDrafts, each once, means from 1 to 1 + k.
AcceptanceCurve parse_acceptance(const std::string& file, const std::string& text);
AcceptanceCurve load_acceptance(const std::filesystem::path& file);
/// The curve of `published` (acceptance.yaml) that has this name, in any capitals; a user's file where the
/// text has a folder or ends in .yaml, .yml or .csv, or where there is such a file and no such curve.
/// UserError with the names that there are, nearest first said, or with the file's faults.
AcceptanceCurve acceptance_named(const std::string& name_or_path, const std::filesystem::path& published);

}  // namespace shardline
