#!/bin/bash
# reports/validation.md and its values are what `shardline validate all` computes today: calibrations change its
# comparisons with measured kernels and its intervals. Usage: validation_page.sh BINARY REPORTS
set -euo pipefail
export LC_ALL=C
binary=$(realpath "$1")
reports=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
code=0
"$binary" validate all -o made > stdout 2> stderr < /dev/null || code=$?
[ "$code" -eq 0 ] || [ "$code" -eq 3 ] || { cat stderr; exit 1; }
for file in validation.md validation/values.csv; do
  diff "$reports/$file" "made/$file" || { echo "FAILED: $file is of other prices; shardline validate all -o reports makes it anew"; exit 1; }
done
echo "validation.md and validation/values.csv are what the program computes"
