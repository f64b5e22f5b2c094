// Which of several names a mistyped one is nearest to, beside error.hpp's nearest_name.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace shardline {

/// The nearest of `names` to `found` within `limit` edits (transpositions count one), whatever the case of
/// letters; the first of equally near ones, or empty.
std::string nearest_within(std::string_view found, std::span<const std::string> names, std::size_t limit);

}  // namespace shardline
