#!/bin/bash
# Usage: quick_run.sh SHARDLINE_PROBE WORK. Every probe for a few seconds; each table has rows.
set -uo pipefail
probe=$1 work=$2/quick_run
rm -rf "$work"
"$probe" run --quick -o "$work"
code=$?
[ $code -eq 3 ] && exit 77
[ $code -eq 0 ] || { echo "exit code $code"; exit 1; }
for table in hbm_copy hbm_read hbm_write gemm attention_prefill attention_decode mla_decode merge launch p2p ring; do
  rows=$(grep -vc '^#' "$work/$table.csv" 2> /dev/null)
  [ "${rows:-0}" -ge 2 ] || { echo "$table.csv has no rows"; exit 1; }
done
