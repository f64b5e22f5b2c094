#include "planner/requests/text_losses.hpp"

#include <algorithm>

namespace shardline {

void TextLosses::add(std::uint64_t hash, std::uint64_t before, std::uint32_t index) {
  const std::uint64_t end = dropped_ + lost_.size();
  if (end > marked_ && !lost_.empty() && lost_.back().before == hash && lost_.back().index == index + 1) {
    lost_.back() = {hash, before, index};
    return;
  }
  lost_.push_back({hash, before, index});
  if (lost_.size() <= kMost) return;
  lost_.pop_front();
  ++dropped_;
}

std::uint64_t TextLosses::mark() const { return marked_ = dropped_ + lost_.size(); }

std::uint32_t TextLosses::left(std::span<const std::uint64_t> text, std::uint32_t count,
                               std::uint64_t since) const {
  if (count == 0 || since < dropped_) return 0;
  for (std::size_t i = since - dropped_; i < lost_.size(); ++i) {
    const Lost& lost = lost_[i];
    if (lost.index < count && text[lost.index] == lost.hash) count = lost.index;
  }
  return count;
}

}  // namespace shardline
