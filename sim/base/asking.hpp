// Vectors of millions of elements made and copied in pieces, between which it is asked whether to stop.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "sim/base/cancel.hpp"

namespace shardline {

/// Elements of 2 MiB: under a millisecond.
template <class T>
constexpr std::size_t piece_of() {
  return std::max<std::size_t>(1, (std::size_t{1} << 21) / sizeof(T));
}

/// As resize(), of a vector whose elements are not kept where it has to grow. The pages of millions of
/// elements are there once they are written, which takes tens of milliseconds: between pieces it is asked
/// whether to stop.
template <class T>
void resize_asking(std::vector<T>& v, std::size_t count) {
  constexpr std::size_t kPiece = piece_of<T>();
  if (v.capacity() < count) {
    v.clear();
    v.reserve(count);
  }
  while (v.size() + kPiece < count) {
    check_cancelled();
    v.resize(v.size() + kPiece);
  }
  v.resize(count);
}

/// Appends copies of all of `from`, likewise.
template <class T>
void append_asking(std::vector<T>& to, const std::vector<T>& from) {
  constexpr std::ptrdiff_t kPiece = piece_of<T>();
  to.reserve(std::max(to.size() + from.size(), to.capacity()));
  for (auto at = from.begin(); at != from.end();) {
    check_cancelled();
    const auto count = std::min(from.end() - at, kPiece);
    to.insert(to.end(), at, at + count);
    at += count;
  }
}

/// Makes room for `more` elements behind those of `v`, which are kept. A vector that grows by itself moves
/// hundreds of megabytes in one go: here it is asked in between. If the answer is to stop, `v` is as it was
/// where its elements are copied as bytes are; others are moved, and some of them then empty.
template <class T>
void grow_asking(std::vector<T>& v, std::size_t more) {
  if (v.capacity() - v.size() >= more) return;
  std::vector<T> grown;
  grown.reserve(std::max(v.size() + more, 2 * v.capacity()));
  if constexpr (std::is_trivially_copyable_v<T>) {
    append_asking(grown, v);
  } else {
    static_assert(std::is_nothrow_move_constructible_v<T>);
    CancelCheck check;
    for (T& element : v) {
      check();
      grown.push_back(std::move(element));
    }
  }
  v.swap(grown);
}

/// The same of a text.
inline void grow_asking(std::string& text, std::size_t more) {
  constexpr std::size_t kPiece = piece_of<char>();
  if (text.capacity() - text.size() >= more) return;
  std::string grown;
  grown.reserve(std::max(text.size() + more, 2 * text.capacity()));
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(std::min(kPiece, rest.size()))) {
    check_cancelled();
    grown += rest.substr(0, kPiece);
  }
  text.swap(grown);
}

}  // namespace shardline
