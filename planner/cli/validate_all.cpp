#include <fmt/format.h>

#include "planner/cli/terminal_parts.hpp"
#include "planner/cli/validate_parts.hpp"
#include "reports/json.hpp"
#include "reports/output_folder.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

constexpr const char* kPictures = "validation";  // folder of pictures, beside the document

}  // namespace

int validate_all(PaperOptions options, const std::filesystem::path& folder, const Provenance& made_by) {
  OutputFolder files(folder);
  const std::vector<PaperReport> reports = [&] {
    StepProgress progress("papers", Progress::terminal(), "steps");
    options.steps = shown_on(progress);
    return all_papers(options);
  }();
  set_document(reports, made_by);

  const auto rows = summary_rows(reports, false);
  Table t(rows.front());
  for (std::size_t i = 1; i < rows.size(); ++i) t.add(rows[i]);
  print_notes(
      "Predicted against published; median and largest error of the values that were not fitted\n{}{}\n",
      fitted(t), goals_line(reports));

  std::vector<std::string> drawn;
  for (const PaperReport& r : reports) {
    const std::string name = fmt::format("{}/{}.png", kPictures, r.id);
    const Rendered picture =
        render(scatter_plot(r, "shardline " + made_by.version + ": shardline validate all"), "png");
    files.add(picture, name);
    if (picture.error.empty()) drawn.push_back(r.id);
  }
  files.write(fmt::format("{}/values.csv", kPictures), values_csv(reports));
  files.write("validation.md", validation_markdown(reports, made_by.version, kPictures, drawn));
  const std::string wrote = files.publish("");
  print_notes("{}  {}: {} files\n", wrote, (folder / kPictures).string(), files.files(kPictures));
  return 0;
}

}  // namespace shardline::cli
