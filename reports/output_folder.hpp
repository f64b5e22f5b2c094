// The files that a command leaves in one folder, and what it says of them at its end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/manifest.hpp"
#include "reports/plot.hpp"
#include "reports/staged_folder.hpp"

namespace shardline {

/// Keeps account of what was written, so that no file is named that is not there: pictures are missing where
/// gnuplot is, or where there is nothing to draw. Nothing is in the folder before publish().
class OutputFolder {
 public:
  /// Throws UserError as make_output_folder does.
  explicit OutputFolder(std::filesystem::path folder);

  const std::filesystem::path& path() const { return folder_; }
  /// What was written into the folder itself, in alphabetical order; `below` it, as many files.
  std::vector<std::string> names() const;
  std::size_t files(const std::string& below) const;
  /// `name` may lie in a folder within: "launch/1-vllm.sh". Throws UserError as write_file does, and where
  /// the name leads out of the folder.
  void write(const std::string& name, std::string_view text, bool executable = false);
  /// `stem`.svg and `stem`.png; left out, with gnuplot's reason, where they cannot be drawn. Throws UserError
  /// as write_file does.
  void draw(const Plot& plot, const std::string& stem);
  /// Takes one picture that was drawn, or leaves it out.
  void add(const Rendered& picture, const std::string& name);
  /// Notes that `stem`.svg and `stem`.png are left out.
  void leave_out(const std::string& stem, const std::string& reason);

  /// Puts all of it into the folder (StagedFolder) with its manifest, and says so: "wrote FOLDER: a.csv,
  /// b.png" in alphabetical order, "also there, of an earlier run: all.csv" where such files stay, then "no
  /// c.png, c.svg: REASON" for each reason in the order of appearance; every line begins with `indent` and
  /// ends with a newline. Once. Throws UserError as StagedFolder does.
  std::string publish(std::string_view indent = "  ");

 private:
  void leave_out_file(const std::string& name, const std::string& reason);

  std::filesystem::path folder_;
  StagedFolder stage_;
  Manifest written_;
  std::vector<std::pair<std::string, std::vector<std::string>>> left_out_;  // reason, names
};

}  // namespace shardline
