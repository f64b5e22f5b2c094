#!/bin/bash
# The page of a load in headless Chromium: curves_browser.js says what is checked. A page whose cursor reads the wrong
# points must fail first. Usage: curves_browser.sh SHARDLINE. Exit code 77 (skipped) without Chromium or Node.js.
set -euo pipefail
shardline=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/find_browser.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$shardline" serve llama-3.1-8b --system h100-hgx --gpus 2 --input 2K --output 128 --engine vllm --plan tensor:tpa=2,tpf=2 \
  --rate 14/s --requests 800 --slo "ttft p90 200 ms, tpot p90 4 ms" -o "$work/load" > "$work/said" 2>&1 || [ $? = 3 ] || { cat "$work/said"; exit 1; }

check() { timeout 240 node "$here/curves_browser.js" "$chromium" "$1"; }
page=$work/load/load.html
sed 's/far(b) < far(a) ? b : a/far(b) < far(a) ? a : b/' "$page" > "$work/spoilt.html"
cmp -s "$page" "$work/spoilt.html" && { echo "self-test: nothing was spoilt"; exit 1; }
if check "$work/spoilt.html" > "$work/spoilt"; then echo "self-test: a wrong cursor was not found"; exit 1; fi
grep -q 'at its nearest point' "$work/spoilt" || { cat "$work/spoilt"; exit 1; }

check "$page"
