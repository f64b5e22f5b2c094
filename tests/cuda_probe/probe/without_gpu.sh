#!/bin/bash
# Usage: without_gpu.sh SHARDLINE_PROBE WORK. Exit 3 and one line that says what is missing; nothing written.
set -uo pipefail
probe=$1 work=$2/without_gpu
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then
  echo "there is a GPU"
  exit 77
fi
rm -rf "$work"
error=$("$probe" run --only gemm -o "$work" 2>&1 > /dev/null)
code=$?
echo "$error"
[ $code -eq 3 ] || { echo "exit code $code, expected 3"; exit 1; }
[[ $error == "shardline-probe: no CUDA device: "*"nothing was measured" ]] || { echo "another message was expected"; exit 1; }
[ "$(wc -l <<< "$error")" -eq 1 ] || { echo "one line was expected"; exit 1; }
[ ! -e "$work" ] || { echo "something was written"; exit 1; }
# A wrong command line is found first, with or without a GPU.
error=$("$probe" run --only gem 2>&1)
code=$?
[ $code -eq 2 ] && [[ $error == *"unknown probe gem"*"did you mean gemm?"* ]] || { echo "$code: $error"; exit 1; }
error=$("$probe" run -o x.csv 2>&1)
code=$?
[ $code -eq 2 ] && [[ $error == *"name a folder"* ]] || { echo "$code: $error"; exit 1; }
"$probe" list > /dev/null || { echo "list needs no GPU"; exit 1; }
