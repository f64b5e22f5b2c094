// A list that its copies share until one of them is edited.
#pragma once

#include <atomic>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace shardline {

/// For what is large, read everywhere and seldom changed, as the fits of a calibration: whoever holds a copy
/// of what holds such a list pays for a pointer. Elements are reached as constants; edit() gives this copy
/// its own list first, so that no other copy ever sees a change. Different copies may be used by different
/// threads.
template <class T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;

  SharedList() = default;
  SharedList(std::vector<T> list) : list_(std::make_shared<std::vector<T>>(std::move(list))) {}
  SharedList(std::initializer_list<T> list) : SharedList(std::vector<T>(list)) {}

  /// This copy's own list, to be changed. Pointers to elements of shared lists do not move with it.
  std::vector<T>& edit() {
    if (list_ == nullptr)
      list_ = std::make_shared<std::vector<T>>();
    else if (list_.use_count() > 1)
      list_ = std::make_shared<std::vector<T>>(*list_);
    // What a thread that has just left the list had read of it was read before what is now written.
    std::atomic_thread_fence(std::memory_order_acquire);
    return *list_;
  }

  const std::vector<T>& list() const {
    static const std::vector<T> none;
    return list_ ? *list_ : none;
  }
  const_iterator begin() const { return list().begin(); }
  const_iterator end() const { return list().end(); }
  std::size_t size() const { return list().size(); }
  bool empty() const { return list().empty(); }
  const T* data() const { return list().data(); }
  const T& operator[](std::size_t i) const { return list()[i]; }
  const T& at(std::size_t i) const { return list().at(i); }
  const T& front() const { return list().front(); }
  const T& back() const { return list().back(); }
  operator std::span<const T>() const { return list(); }

 private:
  std::shared_ptr<std::vector<T>> list_;
};

}  // namespace shardline
