// The finished parts of a search, so that one that was interrupted can go on where it was.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/search/search.hpp"

namespace shardline {

/// What one candidate of a search came to. Its frontier is in the order of its points.
struct FoundOfCandidate {
  struct Ordered {
    Point point;
    std::uint64_t order = 0;
  };
  std::vector<Ordered> frontier;
  SearchCounts counts;  // without rates and seconds
  std::vector<Point> all;
};

/// Keeps what a search has finished. A search asks before each wave of candidates, in their order, and only
/// what it kept before is given back: numbers to the bit. Used by one thread at a time.
class SearchJournal {
 public:
  /// `keep` receives the record of each wave, a line without its end; `kept` are those of the run before, in
  /// order.
  SearchJournal(std::vector<std::string> kept, std::function<void(std::string)> keep)
      : kept_(std::move(kept)), keep_(std::move(keep)) {}

  /// The wave of candidates [begin, end), if the run before had finished it.
  std::optional<std::vector<FoundOfCandidate>> finished(std::size_t begin, std::size_t end);
  void keep(std::size_t begin, std::size_t end, std::span<const FoundOfCandidate> wave);
  /// Whether records of the run before are left that nobody has asked for yet: `keep` has not received them.
  bool giving_back() const { return next_ < kept_.size(); }
  /// Candidates that were given back.
  std::size_t resumed() const { return resumed_; }

 private:
  std::vector<std::string> kept_;
  std::function<void(std::string)> keep_;
  std::size_t next_ = 0, resumed_ = 0;
  bool whole_ = true;  // every wave so far has a record: one behind a gap would be of no use
};

/// The record of a wave, and what it says; nothing where the text is not the record of that wave.
std::optional<std::string> record_of(std::size_t begin, std::size_t end,
                                     std::span<const FoundOfCandidate> wave);
std::optional<std::vector<FoundOfCandidate>> wave_of(const std::string& record, std::size_t begin,
                                                     std::size_t end);

}  // namespace shardline
