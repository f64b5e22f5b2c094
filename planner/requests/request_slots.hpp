// Requests of a scheduler by number, which those that are forgotten leave to others.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace shardline {

/// Memory is that of the most requests that were there at once, however many come.
template <class Request>
class RequestSlots {
 public:
  using Id = std::uint32_t;

  Id add(Request&& r) {
    if (unused_.empty()) {
      requests_.push_back(std::move(r));
      return static_cast<Id>(requests_.size() - 1);
    }
    const Id id = unused_.back();
    unused_.pop_back();
    requests_[id] = std::move(r);
    return id;
  }
  void forget(Id id) {
    requests_[id] = {};
    unused_.push_back(id);
  }
  Request& operator[](Id id) { return requests_[id]; }
  const Request& operator[](Id id) const { return requests_[id]; }
  /// Numbers are below it; those that are forgotten have a Request{}.
  Id end() const { return static_cast<Id>(requests_.size()); }

 private:
  std::vector<Request> requests_;
  std::vector<Id> unused_;
};

}  // namespace shardline
