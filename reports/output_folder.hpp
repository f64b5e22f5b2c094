// The files that a command leaves in one folder, and what it says of them at its end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/plot.hpp"

namespace shardline {

/// Keeps account of what was written, so that no file is named that is not there: pictures are missing where
/// gnuplot is, or where there is nothing to draw.
class OutputFolder {
 public:
  /// Makes the folder. Throws UserError as make_output_folder does.
  explicit OutputFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return folder_; }
  std::size_t files() const { return written_.size(); }
  /// What was written, in alphabetical order.
  std::vector<std::string> names() const;
  /// Throws UserError as write_file does.
  void write(const std::string& name, std::string_view text, bool executable = false);
  /// `stem`.svg and `stem`.png; left out, with gnuplot's reason, where they cannot be drawn. Throws UserError
  /// as write_file does.
  void draw(const Plot& plot, const std::string& stem);
  /// Notes that `stem`.svg and `stem`.png are left out.
  void leave_out(const std::string& stem, const std::string& reason);

  /// "wrote FOLDER: a.csv, b.png" in alphabetical order, then "no c.png, c.svg: REASON" for each reason in
  /// the order of appearance; every line begins with `indent` and ends with a newline.
  std::string summary(std::string_view indent = "  ") const;

 private:
  void leave_out_file(const std::string& name, const std::string& reason);

  std::filesystem::path folder_;
  std::vector<std::string> written_;
  std::vector<std::pair<std::string, std::vector<std::string>>> left_out_;  // reason, names
};

}  // namespace shardline
