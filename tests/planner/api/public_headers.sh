#!/bin/bash
# The public headers of planner/api (those of its CMakeLists.txt) compile alone, without any other library's headers, and
# include the standard library and one another only.
# Usage: public_headers.sh ROOT COMPILER. Checks first that a header which includes something else is found.
set -euo pipefail

root=$1 compiler=$2
listed=$(sed -n '/^set(SHARDLINE_API_HEADERS/,/^)/p' "$root/planner/api/CMakeLists.txt" | grep -o '[a-z_]*\.hpp')
[ -n "$listed" ] || { echo "no public headers listed"; exit 1; }

check() {  # file
  local included bad=0
  while IFS= read -r included; do
    [[ $included =~ ^\<[a-z_]+\>$ ]] && continue
    [[ $included =~ ^\"planner/api/([a-z_]+\.hpp)\"$ ]] && grep -qx "${BASH_REMATCH[1]}" <<< "$listed" && continue
    echo "$1 includes $included: public headers include the standard library and one another only"
    bad=1
  done < <(sed -nE 's/^#include (.*)$/\1/p' "$1")
  return $bad
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for other in '<fmt/format.h>' '<nlohmann/json.hpp>' '"planner/plan/plan.hpp"' '"planner/api/convert.hpp"'; do
  echo "#include $other" > "$work/a.hpp"
  if check "$work/a.hpp" > /dev/null; then
    echo "self-test: $other was not found"
    exit 1
  fi
done

mkdir -p "$work/planner/api"
for header in $listed; do
  check "$root/planner/api/$header"
  cp "$root/planner/api/$header" "$work/planner/api"
done
for header in $listed; do
  echo "#include \"planner/api/$header\"" > "$work/alone.cpp"
  "$compiler" -std=c++20 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I "$work" "$work/alone.cpp"
done
echo "public headers stand alone: $(wc -w <<< "$listed")"
