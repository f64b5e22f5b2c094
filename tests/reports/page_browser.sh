#!/bin/bash
# Pages of sweeps in headless Chromium: page_browser.js says what is checked. Pages have a target, engines, prefills,
# served loops, approximate strategies, pools alone. A page whose frontier was spoilt must fail first.
# Usage: page_browser.sh SHARDLINE. Exit code 77 (skipped) without Chromium or Node.js.
set -euo pipefail
shardline=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/find_browser.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sweep() {  # NAME SCENARIO OPTION...; no plan of a model may meet the target (3)
  "$shardline" sweep "$2" -o "$work/$1" "${@:3}" > "$work/$1.txt" 2>&1 || [ $? = 3 ] || { cat "$work/$1.txt"; exit 1; }
}
sed 's/^strategies: .*/strategies: [tensor, ring_pass_kv, star]/' "$here/../golden/approximate.yaml" > "$work/mixed.yaml"
sweep decode "$here/../golden/small.yaml" --ttl "30 ms" --users 16
sweep all "$here/../golden/small.yaml" --all
sweep prefill "$here/../golden/prefill.yaml" --ttft "2 s"
sweep served "$here/../golden/served.yaml" --ttl "20 ms"
sweep approximate "$work/mixed.yaml"
sed 's/^models: .*/models: [deepseek-r1]/; s/^system: .*/system: gb200-nvl72/; s/^engine: .*/engine: trtllm/; /^precision/d
  s/^strategies: .*/strategies: [helix, tensor]/; s/^gpus: .*/gpus: [16]/; s/^batch: .*/batch: [512]/' \
  "$here/../golden/served.yaml" > "$work/apart.yaml"
sweep apart "$work/apart.yaml" --users 3000  # whom pairs of pools serve alone

check() { timeout 240 node "$here/page_browser.js" "$chromium" "$@"; }
page=$work/decode/llama-3.1-405b/frontier.html
mkdir -p "$work/spoilt"
sed 's/if (score(p).y > best)/if (score(p).y > -Infinity)/' "$page" > "$work/spoilt/page.html"
cmp -s "$page" "$work/spoilt/page.html" && { echo "self-test: nothing was spoilt"; exit 1; }
if check "$work/spoilt/page.html" > "$work/spoilt.txt"; then echo "self-test: a wrong frontier was not found"; exit 1; fi
grep -q 'the table is the frontier' "$work/spoilt.txt" || { cat "$work/spoilt.txt"; exit 1; }

check "$work"/{decode/deepseek-r1,all/llama-3.1-405b,prefill/*,served/*,approximate/*,apart/*}/frontier.html
