#!/bin/bash
# Printed results that are lost end in exit code 2 and a message, whatever the command.
# Usage: lost_output.sh BINARY (shardline or shardline-probe)
set -euo pipefail
export LC_ALL=C
binary=$(realpath "$1")
program=$(basename "$binary")
small=$(realpath "$(dirname "$0")/small.yaml")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*"; exit 1; }
expect_loss() {  # exit code, what was run
  [ "$1" -eq 2 ] || { cat stderr; fail "exit $1: $2"; }
  grep -q "^$program: cannot write standard output" stderr || { cat stderr; fail "no message: $2"; }
  ! grep -q 'internal error' stderr || { cat stderr; fail "called a bug: $2"; }
}
lost() {  # arguments
  local code=0
  "$binary" "$@" > /dev/full 2> stderr < /dev/null || code=$?
  expect_loss "$code" "$* > /dev/full"
  grep -qx "$program: cannot write standard output: No space left on device" stderr || { cat stderr; fail "no reason: $*"; }
  code=0
  "$binary" "$@" >&- 2> stderr < /dev/null || code=$?
  expect_loss "$code" "$* >&-"
}

lost --help
lost --version
if [ "$program" = shardline-probe ]; then
  lost list
else
  lost list models
  lost sweep "$small" --threads 1
  lost simulate "$small" --model llama-3.1-405b --plan helix:kvp=4,tpa=4,tpf=16,batch=4
  lost list models --json
  line=(llama-3.1-8b --system h100-hgx --gpus 2 --input 1K --output 16)
  lost plan "${line[@]}"
  lost plan "${line[@]}" --save question.yaml
  lost serve "${line[@]}" --plan tensor:tpa=2,tpf=2 --rate 5/s --requests 100
  lost explain "${line[@]}"
  lost compare "${line[@]}"
  lost plan "${line[@]}" --json
  lost sweep "$small" --threads 1 --json -o out
  code=0
  "$binary" sweep "$small" --threads 1 > printed 2> /dev/full < /dev/null || code=$?
  [ "$code" -eq 2 ] || fail "exit $code where warnings were lost"
  code=0
  "$binary" sweep nowhere > printed 2> /dev/full < /dev/null || code=$?
  [ "$code" -eq 2 ] || fail "exit $code where a message was lost"
  lost accuracy  # prints more than the buffer holds

  # A file that is written takes the place of a closed standard output: nothing printed may reach it.
  code=0
  "$binary" simulate "$small" --model llama-3.1-405b --plan tensor:tpa=8,tpf=8,batch=1 -o closed >&- 2> stderr < /dev/null || code=$?
  expect_loss "$code" "simulate -o closed >&-"
  "$binary" simulate "$small" --model llama-3.1-405b --plan tensor:tpa=8,tpf=8,batch=1 -o open > printed 2> stderr < /dev/null
  cmp closed/trace.json open/trace.json || fail "the trace depends on standard output"

  # A limit of a file's size is a full disk: not the signal's end, which would leave the unfinished folder.
  code=0
  (ulimit -f 1 && exec "$binary" simulate "$small" --model llama-3.1-405b --plan tensor:tpa=8,tpf=8,batch=1 -o limited > /dev/null) 2> stderr < /dev/null || code=$?
  [ "$code" -eq 2 ] || fail "exit $code where a file had reached its limit"
  [ ! -e limited ] || fail "a folder that is not whole"
  ! ls -A | grep 'shardline-' || fail "left behind"
fi
if [ "$program" = shardline ]; then
  # A question that cannot be saved costs no answer, and where that is sure nothing is computed for it.
  echo 0 > code
  { (ulimit -f 0 && exec "$binary" plan "${line[@]}" --save full.yaml) 2>&1 < /dev/null || echo $? > code; } | cat > printed
  [ "$(cat code)" -eq 2 ] && grep -q 'cannot write full.yaml' printed || { cat printed; fail "a question on a full disk"; }
  grep -q 'how sure' printed || fail "an answer is lost with its question"
  ! grep -q 'sweep full.yaml' printed || fail "a file is named that is not there"
  : > file
  for place in file/question.yaml nowhere/question.yaml; do
    code=0
    "$binary" plan "${line[@]}" --save "$place" > printed 2> stderr < /dev/null || code=$?
    [ "$code" -eq 2 ] && [ ! -s printed ] || { cat stderr; fail "a question at $place"; }
  done

  # A reader that goes, as head does, is no loss: files that were asked for are written all the same, and nothing is
  # said. Its pipe is closed before the command prints.
  unread() {  # file that is to be there, arguments
    local file=$1 code
    shift
    echo 0 > code
    { "$binary" "$@" 2> stderr < /dev/null || echo $? > code; } | true
    code=$(cat code)
    [ "$code" -eq 141 ] || { cat stderr; fail "exit $code where nobody reads: $*"; }
    [ -s "$file" ] || fail "$file is lost where nobody reads: $*"
    ! grep -v '^warning: ' stderr || fail "a reader that goes is no fault: $*"
    ! ls -A | grep 'shardline-' || fail "left behind: $*"
  }
  unread unread/deepseek-r1/manifest.json sweep "$small" --threads 1 -o unread
  unread unread2/manifest.json validate kv_runahead --no-sensitivity -o unread2
  unread unread3/latencies.csv serve "${line[@]}" --plan tensor:tpa=2,tpf=2 --rate 5/s --requests 100 -o unread3
  unread unread.yaml plan "${line[@]}" --save unread.yaml
  unread question.yaml list models  # where none is to be written, it ends the work
  # Both streams, and a parent that ignores the signal.
  (trap '' PIPE; "$binary" sweep "$small" --threads 1 -o unread4 2>&1 < /dev/null | true) || true
  [ -s unread4/deepseek-r1/manifest.json ] || fail "lost where nobody reads both streams"
  (trap '' PIPE; "$binary" list models 2> stderr < /dev/null | true) || true
  [ ! -s stderr ] || { cat stderr; fail "a closed pipe is told"; }
fi
echo "lost output is noticed"
