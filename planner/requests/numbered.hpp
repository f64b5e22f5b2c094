// Elements that are known by number, and rings of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/asking.hpp"

namespace shardline {

/// Elements whose numbers are used again when they are dropped, the one that was dropped last first. Number 0
/// is there from the beginning: a root, or none. In one piece of memory, as paths through a tree look up
/// many; RequestSlots, for requests, grows in parts that stay where they are, and looks up twice.
template <class T, class Number = std::uint32_t>
class Numbered {
 public:
  /// May move the others, whose references are then no more.
  Number add(T element) {
    if (unused_.empty()) {
      grow_asking(elements_, 1);
      elements_.push_back(std::move(element));
      return Number(static_cast<std::uint32_t>(elements_.size() - 1));
    }
    const Number at = unused_.back();
    unused_.pop_back();
    elements_[at] = std::move(element);
    return at;
  }
  /// It is as a new one until the number is another's.
  void drop(Number at) {
    elements_[at] = T{};
    unused_.push_back(at);
  }

  T& operator[](Number at) { return elements_[at]; }
  const T& operator[](Number at) const { return elements_[at]; }
  /// Those that were dropped among them.
  std::size_t size() const { return elements_.size(); }

 private:
  std::vector<T> elements_ = std::vector<T>(1);
  std::vector<Number> unused_;
};

/// Rings: elements that have the numbers of those `before` and `after` them.
template <class Elements>
void put_in_ring(Elements& all, std::uint32_t place, std::uint32_t element) {
  const std::uint32_t next = all[place].after;
  all[element].before = place;
  all[element].after = next;
  all[place].after = element;
  all[next].before = element;
}
template <class Elements>
void take_out_of_ring(Elements& all, std::uint32_t element) {
  all[all[element].before].after = all[element].after;
  all[all[element].after].before = all[element].before;
}

}  // namespace shardline
