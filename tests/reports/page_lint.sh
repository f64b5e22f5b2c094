#!/bin/bash
# Scripts of the page without faults that can be found without running them: names that nothing declares or uses, loose
# comparisons and the like, by ESLint with page_lint.json; where it is not installed, their syntax by Node.js.
# The page runs scripts as one text, so that they are checked as one; faults are named by file and line all the same.
# Usage: page_lint.sh SCRIPT... Exit code 77 (skipped) without Node.js. Checks first that faults are found.
set -euo pipefail
rules=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/page_lint.json
# Another node than Debian's does not know where Debian's modules are.
export NODE_PATH=/usr/share/nodejs

if command -v eslint > /dev/null && eslint --version > /dev/null 2>&1; then
  check() { eslint --no-eslintrc --config "$rules" --max-warnings 0 --format unix "$1"; }  # of the folder it runs in
elif command -v node > /dev/null; then
  echo "no eslint (Debian package eslint): syntax only"
  check() { node --check "$1"; }
else
  echo "skipped: neither eslint nor node (Debian packages eslint, nodejs)"
  exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
refuse() {  # KIND TEXT
  echo "$2" > "$work/wrong.js"
  if (cd "$work" && check wrong.js) > /dev/null 2>&1; then echo "self-test: $1 was not found"; exit 1; fi
}
refuse "a fault of syntax" "const a = [1;"
if [[ $(declare -f check) == *eslint* ]]; then
  refuse "a name that nothing declares" "document.title = absent;"
  refuse "a name that nothing uses" "const unused = 1;"
  refuse "a loose comparison" "document.title = document.title == 1 ? 'a' : 'b';"
fi
echo "document.title = String(Math.max(1, 2));" > "$work/right.js"
(cd "$work" && check right.js) || { echo "self-test: what is right was refused"; exit 1; }

# FILE FIRST_LINE of each script in the whole.
lines=0
for script in "$@"; do
  echo "$script $((lines + 1))" >> "$work/map"
  cat "$script" >> "$work/page.js"
  lines=$(wc -l < "$work/page.js")
done
if (cd "$work" && check page.js) > "$work/found" 2>&1; then
  echo "no fault in $# scripts"
  exit 0
fi
awk -v whole="$(cd "$work" && pwd -P)/page.js:" '
  NR == FNR { file[NR] = $1; first[NR] = $2; files = NR; next }
  index($0, whole) == 1 {
    rest = substr($0, length(whole) + 1); line = rest + 0
    for (i = files; i > 1 && first[i] > line; --i);
    sub(/^[0-9]+/, file[i] ":" (line - first[i] + 1), rest); print rest; next
  }
  { print }' "$work/map" "$work/found"
exit 1
