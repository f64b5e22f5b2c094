#!/bin/bash
# Includes point left only: sim < models < hardware < {planner, calibrate} < reports < planner/cli; reports sees sim
# only; planner/api sees what the planner does, and of all libraries planner/cli alone sees it; calibrate/validate sees planner and calibrate, and planner/cli alone sees it; cuda_probe sees sim/base, models and
# calibrate, its execute/verify also the planner; planner/cli sees its execute/ but for the GPU, and nobody the rest;
# cuda_probe/cli stands above all libraries. Nobody includes a command line, neither of the two the other; what they
# share is in libraries (reports/cli, planner/scenario). sim/base includes itself only.
# Usage: include_order.sh ROOT. Checks first, on a made-up tree, that each kind of forbidden arrow is found.
set -euo pipefail

# Both functions answer in a variable: a process per line would take minutes where processes are slow to start.
allowed() {  # folder -> $may: regex of folders it may include
  may='^$'
  case "$1" in
    sim/base) may='^sim/base$' ;;
    sim) may='^sim(/base)?$' ;;
    models) may='^(sim(/base)?|models)$' ;;
    hardware) may='^(sim(/base)?|models|hardware)$' ;;
    planner) may='^(sim(/base)?|models|hardware|planner)$' ;;
    planner/api) may='^(sim(/base)?|models|hardware|planner(/api)?)$' ;;
    calibrate) may='^(sim(/base)?|models|hardware|calibrate)$' ;;
    calibrate/validate) may='^(sim(/base)?|models|hardware|planner|calibrate(/validate)?)$' ;;
    reports) may='^(sim(/base)?|reports)$' ;;
    planner/cli) may='^(sim(/base)?|models|hardware|planner(/(api|cli))?|calibrate(/validate)?|reports|cuda_probe/execute/(core|cpu|verify))$' ;;
    cuda_probe/execute/core) may='^(sim/base|models|cuda_probe/execute/core)$' ;;
    cuda_probe/execute/cpu) may='^(sim/base|models|cuda_probe/execute/(core|cpu))$' ;;
    cuda_probe/execute/verify) may='^(sim/base|models|hardware|planner|cuda_probe/execute/(core|cpu|verify))$' ;;
    cuda_probe/cli) may='^(sim(/base)?|models|hardware|planner(/api)?|calibrate|reports|cuda_probe(/execute/(core|cpu|verify)|/cli)?)$' ;;
    cuda_probe) may='^(sim/base|models|calibrate|cuda_probe(/execute/(core|cpu))?)$' ;;
  esac
}

layer() {  # path -> $in: folder of the order
  case "$1" in
    sim/base/*) in=sim/base ;;
    planner/api/*) in=planner/api ;;
    planner/cli/*) in=planner/cli ;;
    calibrate/validate/*) in=calibrate/validate ;;
    cuda_probe/execute/core/*) in=cuda_probe/execute/core ;;
    cuda_probe/execute/cpu/*) in=cuda_probe/execute/cpu ;;
    cuda_probe/execute/verify/*) in=cuda_probe/execute/verify ;;
    cuda_probe/cli/*) in=cuda_probe/cli ;;
    */*) in="${1%%/*}" ;;
    *) in="?" ;;
  esac
}

check() {
  local root=$1 bad=0 file included from to in may
  while IFS=: read -r file included; do
    file=${file#"$root"/}
    layer "$file"
    from=$in
    layer "$included"
    to=$in
    allowed "$from"
    if ! [[ $to =~ $may ]]; then
      echo "$file includes $included: $from must not see $to"
      bad=1
    fi
  done < <(cd "$root" && find sim models hardware planner calibrate reports cuda_probe -type f \
             \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 2>/dev/null |
             xargs -0 -r grep -HoE '^#include "[^"]+"' | sed -E 's/#include "([^"]+)"/\1/')
  return $bad
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for arrow in sim/a.cpp:models/m.hpp sim/base/a.cpp:sim/b.hpp models/a.cpp:hardware/h.hpp hardware/a.hpp:planner/p.hpp \
             planner/a.cpp:reports/r.hpp planner/a.cpp:planner/api/x.hpp planner/api/a.hpp:planner/cli/c.hpp planner/api/a.cpp:calibrate/c.hpp planner/a.cpp:calibrate/c.hpp calibrate/a.cpp:planner/p.hpp \
             reports/a.cpp:planner/p.hpp planner/a.cpp:cuda_probe/execute/cpu/e.hpp planner/a.cpp:calibrate/validate/v.hpp calibrate/a.cpp:calibrate/validate/v.hpp planner/cli/a.cpp:cuda_probe/k.hpp cuda_probe/a.cu:hardware/h.hpp \
             cuda_probe/a.cpp:cuda_probe/cli/c.hpp planner/cli/a.cpp:cuda_probe/cli/c.hpp cuda_probe/execute/cuda/a.cpp:planner/p.hpp \
             cuda_probe/cli/a.cpp:planner/cli/c.hpp cuda_probe/execute/verify/a.cpp:planner/cli/c.hpp planner/a.cpp:planner/cli/c.hpp \
             planner/cli/a.cpp:cuda_probe/execute/cuda/c.hpp reports/cli/a.cpp:planner/p.hpp calibrate/validate/a.cpp:planner/cli/c.hpp; do
  rm -rf "${work:?}"/*
  mkdir -p "$work/sim" "$work/models" "$work/hardware" "$work/planner" "$work/calibrate" "$work/reports" "$work/cuda_probe"
  mkdir -p "$work/$(dirname "${arrow%%:*}")"
  echo "#include \"${arrow##*:}\"" > "$work/${arrow%%:*}"
  if check "$work" > /dev/null; then
    echo "self-test: $arrow was not found"
    exit 1
  fi
done
rm -rf "${work:?}"/*
mkdir -p "$work/planner/cli" "$work/sim/base"
echo '#include "reports/table.hpp"' > "$work/planner/cli/a.cpp"
mkdir -p "$work/cuda_probe/cli"
for seen in planner/plan/plan.hpp planner/strategies/verify_cases.hpp hardware/cost/kernel_cost.hpp cuda_probe/gpu/gpu.hpp; do
  echo "#include \"$seen\"" >> "$work/cuda_probe/cli/a.cpp"
done
check "$work" > /dev/null || { echo "self-test: an allowed arrow was refused"; exit 1; }

check "$1" && echo "includes point left only"
