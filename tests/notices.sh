#!/bin/bash
# NOTICE names all that is of others: sources of calibrations and engines' fits with their commits, engines, papers whose
# results are compared, traces and configurations that tests read, and libraries that are linked. Checks first, on a
# spoilt copy, that each kind is missed.
# Usage: notices.sh SOURCE
set -euo pipefail
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

owed() {  # "kind: word" per line
  grep -hoE '^ *source: "AIConfigurator [^"]*' hardware/calibrations/*.yaml planner/engines/*.yaml |
    grep -oE '\b[0-9a-f]{8,}\b' | sed 's/^/commit: /'
  grep -hoE '^title: .+' planner/engines/*.yaml | grep -v 'bare kernels' | sed -E 's/^title: "?([^"]*)"?/engine: \1/'
  grep -hoE 'github\.com/[A-Za-z0-9_/-]+ at [0-9a-f]+' tests/planner/traces/README.md | sed -E 's/^(.*) at (.*)$/trace: \1\ntrace: \2/'
  echo "configurations: tests/models/hf"
  grep -hoE 'arXiv [0-9]{4}\.[0-9]{5}' calibrate/validate/*.yaml calibrate/validate/helix*.cpp | sed 's/arXiv /paper: /'
  local name
  for name in $(grep -oE '^find_package\([A-Za-z0-9_-]+' CMakeLists.txt | cut -d '(' -f 2); do
    case $name in
      Eigen3) echo "library: Eigen" ;;
      TBB) echo "library: oneTBB" ;;
      nlohmann_json) echo "library: JSON for Modern C++" ;;
      *) echo "library: $name" ;;
    esac
  done
  echo "library: pybind11"
  echo "page: Vega"
}
missing() {  # NOTICE
  owed | sort -u | while IFS= read -r line; do grep -qF -- "${line#*: }" "$1" || echo "$line"; done
}

for kind in commit engine trace configurations paper library page; do
  word=$(owed | sed -n "s/^$kind: //p" | head -n 1)
  [ -n "$word" ] || { echo "self-test: nothing of kind $kind"; exit 1; }
  grep -vF -- "$word" NOTICE > "$work/spoilt"
  [[ $(missing "$work/spoilt") == *"$kind: $word"* ]] || { echo "self-test: $kind $word is not missed"; exit 1; }
done
found=$(missing NOTICE)
[ -z "$found" ] || { echo "not named in NOTICE:"; echo "$found"; exit 1; }
echo "NOTICE names $(owed | sort -u | wc -l) sources"
