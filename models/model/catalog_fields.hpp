// Internal to catalog*.cpp: keys of one kind of layers, and what all kinds share.
#pragma once

#include <optional>
#include <string_view>

#include "models/model/model.hpp"
#include "sim/base/reader.hpp"

namespace shardline::catalog {

inline int count(const Reader& at, std::int64_t highest, std::int64_t lowest = 1) {
  return static_cast<int>(at.integer(lowest, highest));
}

/// A kind's own keys, and behind them those that all kinds share.
class Fields {
 public:
  explicit Fields(Reader own, std::optional<Reader> shared = {}) : own_(own), shared_(shared) {}

  std::optional<Reader> find(std::string_view key) const {
    auto at = own_.find(key);
    if (!at && shared_) at = shared_->find(key);
    return at;
  }
  Reader at(std::string_view key) const {
    const auto found = find(key);
    return found ? *found : own_.at(key);
  }
  /// Whether `key` is there; does not make it one of the expected keys.
  bool has(std::string_view key) const { return own_.has(key) || (shared_ && shared_->has(key)); }
  int optional_count(std::string_view key, std::int64_t highest, std::int64_t lowest = 1) const {
    const auto found = find(key);
    return found ? count(*found, highest, lowest) : 0;
  }
  int count_at(std::string_view key, std::int64_t highest) const { return count(at(key), highest); }
  bool flag(std::string_view key, bool when_missing = false) const {
    const auto found = find(key);
    return found ? found->boolean() : when_missing;
  }
  const Reader& own() const { return own_; }

 private:
  Reader own_;
  std::optional<Reader> shared_;
};

/// One kind of attention. Of `whole`, where it is given, qk_norm and biases of all kinds are read into `m`.
Attention read_attention(const Fields& at, const std::optional<Reader>& whole, Model& m);

/// A network of experts.
FeedForward read_experts(const Reader& at);

}  // namespace shardline::catalog
