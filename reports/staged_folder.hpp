// A folder that appears whole or not at all: written beside its place, and put there in one step.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "reports/folder_claim.hpp"
#include "reports/manifest.hpp"

namespace shardline {

/// The files of a folder before they are in their place. A folder of which every file is known from its
/// manifest, or that is empty, is exchanged in one step. Of one that holds other things, or that a process
/// stands in, files are replaced one by one, each in one step, and the manifest last: while it is missing,
/// the folder is not whole. Links, devices and pipes in a folder are never written to or replaced: they are
/// refused. What others put into a folder while it is exchanged is in it afterwards.
class StagedFolder {
 public:
  /// Throws UserError as make_output_folder does. Removes what a run that was killed has left beside the
  /// place, which is told by its mark and not by its name alone.
  explicit StagedFolder(const std::filesystem::path& folder);
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  virtual ~StagedFolder();

  /// Where files are written until they are published.
  const std::filesystem::path& path() const { return stage_; }
  /// Puts the files that were written into their place, with a manifest of them. Files that the manifest of
  /// an earlier run names stay, but for those `left_out`, which this run would have written and could not.
  /// Throws UserError (then the folder is as it was, unless files are replaced one by one and the disk
  /// fails). `kept`: what is to be said of things that others have put there meanwhile and that could not be
  /// moved into the new folder, as something of their name is in it; mostly "". `earlier`: files that stay,
  /// of which the manifest says that they are of an earlier run.
  struct Published {
    std::string kept;
    std::vector<std::string> earlier;
  };
  Published publish(Manifest written, const std::set<std::string>& left_out);

 protected:
  /// Between the look for what others have put there and the exchange, which is the moment to put something
  /// there that a test has.
  virtual void looked() {}

 private:
  bool exchange(const Manifest& carried);
  void replace_each(const Manifest& written, const std::set<std::string>& stale);

  std::filesystem::path place_, root_, stage_;  // root_: the folder that is made beside the place or in it
  bool as_a_whole_ = true, kept_ = false;       // kept_: the stage has what is not ours
  int descriptor_ = -1;  // holds the stage: a stage that nobody holds is of a run that was killed
};

}  // namespace shardline
