// The file in which a long sweep keeps what it has finished.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/journal.hpp"

namespace shardline::cli {

/// Lies beside the folder of a model, `OUT/.MODEL.journal`, while its sweep runs. It is of one question: its
/// first line is a hash of the command line, the version, every text that was read, and the program itself.
/// Lines that are not whole, as kill -9 or a full disk leaves them, end it. Sweeps of less than a second
/// leave none, and go without one where something else has its name: a link, a FIFO, a folder, another's
/// file.
class SweepJournal {
 public:
  /// Reads what an interrupted run of the same question has left, and says so of what one of another question
  /// has left, which will be written over. `folder`: of the model;
  /// `question`: version, command line and model.
  SweepJournal(const std::filesystem::path& folder, const std::string& question);
  ~SweepJournal();
  SweepJournal(const SweepJournal&) = delete;
  SweepJournal& operator=(const SweepJournal&) = delete;

  SearchJournal& search() { return *search_; }
  /// The files are there: nothing is left to resume.
  void remove();

 private:
  void keep(std::string record);
  bool begin();

  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path file_;
  std::string key_;
  double started_ = 0;
  std::vector<std::string> waiting_;  // records of the first second, and those that the file has
  std::unique_ptr<std::FILE, Closer> out_;
  bool given_up_ = false;  // it could not be written
  std::optional<SearchJournal> search_;
};

}  // namespace shardline::cli
