#!/usr/bin/env bash
# tests/fuzz/long.sh BUILD SECONDS [TARGET]...: all targets in turn (or those named), one process at a time, each so
# many seconds, again and again until it is ended. For preset fuzz, which has no sanitizers: executions count.
# Before every eighth turn the target's corpus is minimised. Inputs that break one are kept in BUILD/fuzz/TARGET/broken and end
# nothing. BUILD/fuzz/long.tsv has a line per turn: target, executions, seconds, edges, features, inputs of the corpus.
# With GOAL=10000000 a target whose lines add up to as many executions is left out, and the end is where all are.
#   cmake --preset fuzz && cmake --build --preset fuzz && nice -n 19 tests/fuzz/long.sh build/fuzz 120
set -euo pipefail
build=$(realpath "$1") seconds=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
targets=("$@")
((${#targets[@]})) || targets=($(cd "$build/bin" && ls fuzz_* | sed 's/^fuzz_//'))

# Bytes of an input at most: a parser takes as long as its text is, and short texts reach as many of its branches. Of
# every four turns one has long texts: a whole model, system or scenario is of a thousand bytes.
longest() {  # TARGET TURN
  case $1 in
    units) echo 64 ;;
    step) echo 128 ;;
    scenario | truth) (($2 % 4 == 0)) && echo 2048 || echo 192 ;;
    plan_text | journal | aiconfigurator | measurements | power | trace | served_rows | kernel_list) (($2 % 4 == 0)) && echo 2048 || echo 512 ;;
    *) (($2 % 4 == 0)) && echo 2048 || echo 384 ;;
  esac
}

reached() {  # TARGET
  [[ -n ${GOAL:-} && -f $build/fuzz/long.tsv ]] || return 1
  awk -F '\t' -v target="$1" -v goal="$GOAL" '$1 == target { n += $2 } END { exit !(n >= goal) }' "$build/fuzz/long.tsv"
}

minimise() {  # TARGET
  local found=$build/fuzz/$1
  rm -rf "$found/least"
  mkdir -p "$found/least"
  "$build/bin/fuzz_$1" -merge=1 -max_len="$(longest "$1" 0)" "$found/least" "$found/corpus" "$found/seeds" \
    > "$found/merge.log" 2>&1 < /dev/null || return 0
  rm -rf "$found/corpus"
  mv "$found/least" "$found/corpus"
}

# -entropic=0: to keep how rare each feature is took a third of the time of a short text.
turn() {  # TARGET TURN
  local target=$1 length found=$build/fuzz/$1 log=$build/fuzz/$1/long.log
  length=$(longest "$1" "$2")
  local dictionary=()
  [[ -f $here/$target.dict ]] && dictionary=("-dict=$here/$target.dict")
  "$build/bin/fuzz_$target" -max_total_time="$seconds" -max_len="$length" -entropic=0 -timeout=20 -rss_limit_mb=4096 \
    -print_final_stats=1 "${dictionary[@]}" -artifact_prefix="$found/broken/" "$found/corpus" > "$log" 2>&1 < /dev/null ||
    echo "$target: broken: $(ls "$found/broken" | tr '\n' ' ')" >&2
  local runs cover
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  cover=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1)
  # shellcheck disable=SC2086
  set -- ${cover:-cov: 0 ft: 0}
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$target" "${runs:-0}" "$seconds" "$2" "$4" "$(ls "$found/corpus" | wc -l)" >> "$build/fuzz/long.tsv"
}

# Folders and seeds, as run.sh makes them.
JOBS=1 "$here/run.sh" "$build" runs=1 "${targets[@]}" > /dev/null || true
for ((turn = 0;; ++turn)); do
  left=0
  for target in "${targets[@]}"; do
    reached "$target" && continue
    left=1
    ((turn % 8)) || minimise "$target"
    turn "$target" "$turn"
  done
  ((left)) || exit 0
done
