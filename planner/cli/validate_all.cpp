#include <fmt/format.h>

#include "planner/cli/validate_parts.hpp"
#include "reports/atomic_file.hpp"
#include "reports/json.hpp"
#include "reports/table.hpp"

namespace shardline::cli {

namespace {

constexpr const char* kPictures = "validation";  // folder of pictures, beside the document

}  // namespace

int validate_all(PaperOptions options, const std::filesystem::path& folder, const Provenance& made_by) {
  const std::filesystem::path pictures = folder / kPictures;
  make_output_folder(folder);
  make_output_folder(pictures);
  const std::vector<PaperReport> reports = [&] {
    StepProgress progress("papers", Progress::terminal(), "steps");
    options.steps = shown_on(progress);
    return all_papers(options);
  }();
  set_document(reports, made_by);

  const auto rows = summary_rows(reports, false);
  Table t(rows.front());
  for (std::size_t i = 1; i < rows.size(); ++i) t.add(rows[i]);
  fmt::print(
      "Predicted against published; median and largest error of the values that were not fitted\n{}{}\n",
      t.text(), goals_line(reports));

  std::vector<std::string> drawn;
  std::string files = "validation.md";
  for (const PaperReport& r : reports) {
    const std::string name = r.id + ".png";
    const Rendered picture =
        render(scatter_plot(r, "shardline " + made_by.version + ": shardline validate all"), "png");
    if (!picture.error.empty()) {
      fmt::print("  no {}: {}\n", (pictures / name).string(), picture.error);
      continue;
    }
    write_file(pictures / name, picture.bytes);
    drawn.push_back(r.id);
    files += fmt::format(", {}/{}", kPictures, name);
  }
  write_file(pictures / "values.csv", values_csv(reports));
  write_file(folder / "validation.md", validation_markdown(reports, made_by.version, kPictures, drawn));
  fmt::print("wrote {}: {}, {}/values.csv\n", folder.string(), files, kPictures);
  return 0;
}

}  // namespace shardline::cli
