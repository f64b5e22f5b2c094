// Files that one question reads many times, parsed once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "sim/base/read_text.hpp"
#include "sim/base/reader.hpp"

namespace shardline {

/// What YAML files say, kept for as long as the process lasts. A file is read each time that it is asked for,
/// which is hundreds of times faster than to parse it; where its text is not the one that was kept, it is
/// parsed anew. So an answer never depends on what was asked before. Safe to ask from several threads.
template <class T>
class ParsedDocuments {
 public:
  /// `parse` makes a T of a Document. Throws UserError as read_text() and as `parse`; that is not kept.
  template <class Parse>
  std::shared_ptr<const T> load(const std::filesystem::path& file, const Parse& parse) {
    const std::string name = file.string();
    std::string text = read_text(file, kLargestDocument);
    {
      const std::lock_guard lock(mutex_);
      const auto known = known_.find(name);
      if (known != known_.end() && known->second.text == text) return known->second.said;
    }
    auto said = std::make_shared<const T>(parse(Document::parse(name, text)));
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMost) known_.clear();
    known_.insert_or_assign(name, Known{std::move(text), said});
    return said;
  }

 private:
  static constexpr std::size_t kMost = 64;  // more than ship of any kind
  struct Known {
    std::string text;
    std::shared_ptr<const T> said;
  };
  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

}  // namespace shardline
