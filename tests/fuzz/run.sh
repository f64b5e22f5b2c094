#!/usr/bin/env bash
# tests/fuzz/run.sh BUILD SECONDS|runs=N [TARGET]...: each target of libFuzzer (all without names) so many seconds or
# executions, JOBS (as many as there are processors) beside each other; SEED=N: from that seed of libFuzzer's and not
# from one of its own. An input that breaks one is kept beside its log
# in BUILD/fuzz, and the exit code is 1. Seeds are files of the project, those of tests/bad among them, and of
# tests/fuzz/corpus; what a run finds stays in BUILD/fuzz for the next. Long runs: JOBS=1 nice tests/fuzz/run.sh build/asan runs=10000000
set -euo pipefail
build=$(realpath "$1") jobs=${JOBS:-$(nproc)}
case $2 in
  runs=*) amount=-runs=${2#runs=} ;;
  *) amount=-max_total_time=$2 ;;
esac
shift 2
sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$build/fuzz
mkdir -p "$out"

# Folders of the project with files that a target reads, those that must be refused among them.
seeds() {
  local bad=$sources/tests/bad
  case $1 in
    model) echo "$sources/models/catalog" "$bad/model" ;;
    config_json) echo "$bad/config" ;;
    system) echo "$sources/hardware/catalog" "$bad/system" ;;
    kernel_list) echo "$sources/hardware/kernels" ;;
    engine) echo "$sources/planner/engines" ;;
    scenario) echo "$sources/scenarios" "$sources/tests/golden" "$bad/scenario" ;;
    measurements | aiconfigurator) echo "$bad/measurement" ;;
    plan_text) echo "$bad/plan" ;;
    truth) echo "$bad/truth" "$bad/chain_truth" ;;
    trace) echo "$sources/tests/planner/traces" "$bad/trace" ;;
  esac
  echo "$sources/tests/fuzz/corpus/$1"
}

# Says what kinds no step of the corpus is of: a change of what bytes mean leaves it with refused plans alone, and nobody
# would know.
covers() {
  local told=$out/step/covers
  FUZZ_STEP_COVERS=$told "$build/bin/fuzz_step" -runs=0 "$sources/tests/fuzz/corpus/step" > "$out/step/covers.log" 2>&1 < /dev/null ||
    { tail -n 3 "$out/step/covers.log"; return 1; }
  sed -n 's/^0 /step: no input of the corpus is of: /p' "$told"
}

one() {
  local target=$1 found=$out/$1 log=$out/$1.log code=0 begin=$SECONDS
  mkdir -p "$found/corpus" "$found/seeds" "$found/broken"
  local folder
  for folder in $(seeds "$target"); do
    find "$folder" -type f -size -16k ! -name '*.expected' ! -name '*.cpp' ! -name '*.hpp' ! -name '*.md' -exec cp {} "$found/seeds/" ';'
  done
  if [[ $target == step ]] && ! covers; then return 1; fi
  local folders=("$found/corpus" "$found/seeds")
  local dictionary=()
  [[ -f $sources/tests/fuzz/$target.dict ]] && dictionary=("-dict=$sources/tests/fuzz/$target.dict")
  "$build/bin/fuzz_$target" "$amount" ${SEED:+-seed=$SEED} -max_len=16384 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    "${dictionary[@]}" -artifact_prefix="$found/broken/" "${folders[@]}" > "$log" 2>&1 < /dev/null || code=$?
  local runs cover
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  cover=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1)
  if ((code == 0)); then
    echo "$target: ${runs:-0} executions, ${cover:-no coverage}, $((SECONDS - begin)) s"
  else
    echo "$target: broken after ${runs:-?} executions (exit $code): $(ls "$found/broken" | tr '\n' ' ')in $found/broken"
    grep -m 3 -E 'ERROR|SUMMARY|does not hold|what\(\)|runtime error' "$log" || true
    return 1
  fi
}

targets=("$@")
((${#targets[@]})) || targets=($(cd "$build/bin" && ls fuzz_* | sed 's/^fuzz_//'))
failed=0
running=0
for target in "${targets[@]}"; do
  if ((running >= jobs)); then
    wait -n || failed=1
    running=$((running - 1))
  fi
  one "$target" &
  running=$((running + 1))
done
while ((running > 0)); do
  wait -n || failed=1
  running=$((running - 1))
done
exit $failed
