#!/bin/bash
# What a sweep leaves on disk: all files, the same bytes for any number of threads, and nothing half-written after a full
# disk, an impossible folder or Ctrl-C. Usage: output_files.sh BINARY
set -euo pipefail
export LC_ALL=C
binary=$(realpath "$1")
small=$(realpath "$(dirname "$0")/small.yaml")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "FAILED: $*"; exit 1; }
files() { find "$1" -type f | sort; }
expect_code() {  # expected code, command...
  local expected=$1 code=0
  shift
  "$@" > stdout 2> stderr < /dev/null || code=$?
  [ "$code" -eq "$expected" ] || { cat stdout stderr; fail "exit $code instead of $expected: $*"; }
}

expect_code 0 "$binary" sweep "$small" -o one --threads 1 --all
wanted="all.csv frontier.csv frontier.html launch launch.txt manifest.json run.json"
if command -v gnuplot > /dev/null; then wanted="$wanted frontier.png frontier.svg gain.png gain.svg"
else echo "skipped: pictures (gnuplot is not installed)"; fi
for model in deepseek-r1 llama-3.1-405b; do
  [ "$(ls one/$model | sort | tr '\n' ' ')" = "$(echo $wanted | tr ' ' '\n' | sort | tr '\n' ' ')" ] || fail "files of $model: $(ls one/$model)"
  for file in $wanted; do [ -s "one/$model/$file" ] || fail "$file is empty"; done
done
head -1 one/deepseek-r1/frontier.csv | grep -qx 'strategy,plan,gpus,batch,users,ttl_ms,tokens_per_s_user,tokens_per_s_gpu,memory_gb_per_gpu,pp,dp,kvp,cp,tpa,ep,tpf,dense_tp,in_flight,drafts,overlap,moe_a2a,chunks,value_up,dcp,exchange,queries,interleave,on_frontier,ttl_low_ms,ttl_high_ms,tokens_per_s_gpu_low,tokens_per_s_gpu_high,measured_share,fitted_share,extrapolated_share,assumed_share,engine,engine_version,engines,board_w,joules_per_token,joules_per_token_low,joules_per_token_high,cost_per_million_tokens,cost_per_million_tokens_low,cost_per_million_tokens_high,what' || fail "header: $(head -1 one/deepseek-r1/frontier.csv)"
sed 1d one/deepseek-r1/frontier.csv | grep -qvE ',ideal,,(none|[a-z ]+),' && fail "rows of bare kernels without the word ideal"
# Of the very plan: Helix is started in blocks of 32 tokens alone.
grep -q '^tensor,.*,ideal,,trtllm vllm sglang,' one/deepseek-r1/all.csv || fail "all.csv does not say which engines start a plan"
for engines in vllm 'trtllm vllm'; do grep -q "^dp_ep,.*,ideal,,$engines," one/deepseek-r1/all.csv || fail "no plan of dp_ep for $engines"; done
grep -q '^helix,.*,ideal,,trtllm,' one/deepseek-r1/all.csv && fail "engines of Helix in blocks that TensorRT-LLM does not have"
tr -d ' \n' < one/deepseek-r1/run.json | grep -q '"engine":{"name":"ideal","version":null,' || fail "run.json does not say ideal"
grep -q '"command": "shardline sweep ' one/deepseek-r1/run.json || fail "run.json lacks the command"
for threads in 2 3; do
  expect_code 0 "$binary" sweep "$small" -o many --threads $threads --all
  for model in deepseek-r1 llama-3.1-405b; do
    for file in frontier.csv all.csv launch.txt; do cmp one/$model/$file many/$model/$file || fail "$file depends on threads"; done
    diff -r one/$model/launch many/$model/launch || fail "launch files depend on threads"
  done
done

# Every launch file is named, and scripts can be run.
for model in deepseek-r1 llama-3.1-405b; do
  for file in $(ls one/$model/launch); do
    grep -qE "^  [^#]* $file(,|$)" one/$model/launch.txt || fail "launch.txt does not name $file"
    case "$file" in *.sh) bash -n one/$model/launch/$file && [ -x one/$model/launch/$file ] || fail "$file cannot be run" ;; esac
  done
done

# What the time of a plan rests on adds up to all of it.
for file in one/*/frontier.csv one/*/all.csv; do
  awk -F, 'NR > 1 { s = $(NF-11) + $(NF-12) + $(NF-13) + $(NF-14); n++; if (s < 0.999999999 || s > 1.000000001) bad++; if ($(NF-14) > 0) m++ }
    END { exit !(n > 0 && m > 0 && !bad) }' "$file" || fail "shares of $file"
done
expect_code 0 "$binary" sweep "$small" -o assumed --costs parameters
grep -q '"calibration_hash": null' assumed/deepseek-r1/run.json || fail "run.json names a calibration that is not used"
sed 1d assumed/deepseek-r1/frontier.csv | grep -qv ',0,0,0,1,ideal,,[a-z ]*,' && fail "parameters alone are assumptions"

# Intervals are of this plan: the time between its ends, and the rate between the inverse ones.
for file in one/*/frontier.csv one/*/all.csv; do
  awk 'BEGIN { FS = "," } NR > 1 { gsub(/"[^"]*"/, "plan"); n++; low = $(NF-18); high = $(NF-17); rate = $8 * $6
      if (!(low < high && low > 0) || $(NF-16) * high / rate < 0.999999 || $(NF-16) * high / rate > 1.000001 ||
          $(NF-15) * low / rate < 0.999999 || $(NF-15) * low / rate > 1.000001) bad++ }
    END { exit !(n > 0 && !bad) }' "$file" || fail "intervals of $file"
done

# A trace says of an op every field that its price depends on.
plan=$(sed -n '2s/^[^"]*"\([^"]*\)".*/\1/p' one/deepseek-r1/frontier.csv)
expect_code 0 "$binary" simulate "$small" --model deepseek-r1 --plan "$plan" -o traced
grep -q '"op":"kind=attend_decode drive=graph .*cache=latent q_heads=.* kernel_parts=1 skipped=0 fresh=1"' traced/trace.json || fail "ops of the trace of $plan"

# Chunks of a prefill whose ranks have unequal tokens: ranks are played, not rounds.
printf '%s\n' 'name: uneven' 'system: h100-hgx' 'models: [llama-3.1-8b]' 'phase: prefill' 'requests: [{new: 20001 tokens}]' \
  'precision: {weights: bf16, kv: bf16, math: bf16}' 'strategies: [allgather_kv]' 'gpus: [8]' 'batch: 1' > uneven.yaml
expect_code 0 "$binary" simulate uneven.yaml --plan allgather_kv:cp=2,tpa=4,tpf=4,batch=1,prefill_chunk=8192 -o uneven
[ -s uneven/trace.json ] || fail "no trace of chunks on unequal ranks"

# Every point of frontier.csv is in all.csv.
cut -d, -f2-6 one/llama-3.1-405b/frontier.csv | sed 1d | sort > frontier.keys
grep -oE '"[^"]*",[0-9]+,[0-9]+,[0-9]+,[0-9.]+' one/llama-3.1-405b/frontier.csv | sort > frontier.keys
grep -oE '"[^"]*",[0-9]+,[0-9]+,[0-9]+,[0-9.]+' one/llama-3.1-405b/all.csv | sort > all.keys
[ -s frontier.keys ] || fail "no rows"
[ -z "$(comm -23 frontier.keys all.keys)" ] || fail "a frontier point is not among all points"

# An output folder below a file, and a file in place of the folder.
touch taken
expect_code 2 "$binary" sweep "$small" -o taken/below
grep -q 'taken' stderr || fail "the message does not name the path: $(cat stderr)"
expect_code 2 "$binary" sweep "$small" -o taken
[ "$(stat -c %s taken)" -eq 0 ] || fail "the file was touched"

# A full disk: files may grow to 8 KiB, frontier.html is larger. SIGXFSZ is ignored, as on a full disk the write fails.
code=0
( trap '' XFSZ; ulimit -f 8; exec "$binary" sweep "$small" -o full ) > stdout 2> stderr < /dev/null || code=$?
[ "$code" -eq 2 ] || { cat stderr; fail "exit $code on a full disk"; }
grep -q 'cannot write' stderr || fail "message on a full disk: $(cat stderr)"
[ ! -e full ] || fail "left behind on a full disk: $(files full)"

# The last lines of a command name the files that are there, with gnuplot, without it, and where it fails.
wrote_what_is_there() {  # folder, command...
  local folder=$1
  shift
  rm -rf "$folder"
  expect_code 0 "$binary" "$@" -o "${folder%%/*}"
  [ "$(sed -n "s|^ *wrote $folder: ||p" stdout | tr -d ' ' | tr ',' '\n')" = "$(ls -p "$folder" | grep -v /)" ] ||
    { cat stdout; ls "$folder"; fail "files of $1 $2 in $folder"; }
}
mkdir -p none failing
printf '#!/bin/sh\nexit 1\n' > failing/gnuplot
chmod +x failing/gnuplot
golden=$(dirname "$small")
all_commands() {
  wrote_what_is_there said/deepseek-r1 sweep "$small"
  wrote_what_is_there said/llama-3.1-70b sweep "$golden/prefill.yaml"
  wrote_what_is_there said/llama-3.1-70b conversation "$golden/talk.yaml"
  wrote_what_is_there said/llama-3.1-70b thresholds "$golden/rings.yaml"
  wrote_what_is_there said/llama-7b partition "$golden/parts.yaml"
  wrote_what_is_there said validate kv_runahead --no-sensitivity
}
all_commands
for programs in none failing; do
  for tool in ls sed tr rm cat grep; do ln -s "$(command -v $tool)" "$programs/$tool"; done
done
( PATH=$work/none
  all_commands
  grep -q '^warning: no kv_runahead.png, kv_runahead.svg: gnuplot was not found' stdout || { cat stdout; fail "no reason"; } )
( PATH=$work/failing
  wrote_what_is_there said/llama-3.1-70b conversation "$golden/talk.yaml"
  grep -q '^  warning: no ttft.png, ttft.svg: gnuplot failed' stdout || { cat stdout; fail "no reason"; } )

# What gnuplot says is not obeyed by a terminal.
printf '#!/bin/sh\nprintf "\\033[31m\\377 bad\\n" >&2\nexit 1\n' > failing/gnuplot
( PATH=$work/failing
  expect_code 0 "$binary" conversation "$golden/talk.yaml" -o told )
grep -q 'gnuplot failed: ?\[31m? bad$' stdout || { cat -v stdout; fail "gnuplot's words are shown as they are"; }

# Pictures need neither a temporary folder nor a parent that wants to know how programs end.
if command -v gnuplot > /dev/null; then
  (trap '' CHLD; TMPDIR=/dev/null/none exec "$binary" conversation "$golden/talk.yaml" -o quiet) > stdout 2> stderr < /dev/null
  [ -s quiet/llama-3.1-70b/ttft.png ] || { cat stdout; fail "no picture where SIGCHLD is ignored"; }
  GNUTERM=x11 DISPLAY='' "$binary" conversation "$golden/talk.yaml" -o mine > stdout 2> stderr < /dev/null
  [ -s mine/llama-3.1-70b/ttft.png ] || { cat stdout; fail "no picture beside a terminal of somebody's own"; }
fi

# Ctrl-C in the middle of a long sweep.
"$binary" sweep helix_gb200_1m --exhaustive --all -o broken > stdout 2> stderr < /dev/null &
pid=$!
sleep 0.4
kill -INT $pid
code=0
wait $pid || code=$?
[ "$code" -eq 130 ] || { cat stdout stderr; fail "exit $code after Ctrl-C"; }
[ ! -e broken ] || fail "left behind after Ctrl-C: $(files broken)"

# Two runs into one folder: the second is refused, and nothing of the first is touched.
"$binary" sweep helix_gb200_1m --exhaustive -o shared > stdout 2> stderr < /dev/null &
pid=$!
while [ ! -d shared ]; do sleep 0.05; done
expect_code 2 "$binary" sweep "$small" -o shared
grep -q 'another run writes to shared' stderr || fail "message of the second run: $(cat stderr)"
# Nor into the folder of one of its models, which the first writes to at its end.
while [ ! -d shared/deepseek-r1 ]; do sleep 0.05; done
expect_code 2 "$binary" simulate "$small" --model deepseek-r1 --plan "$plan" -o shared/deepseek-r1
grep -q 'another run writes to shared/deepseek-r1' stderr || fail "message of a run into a folder within: $(cat stderr)"
kill -9 $pid
wait $pid || true
expect_code 0 "$binary" sweep "$small" -o shared

# Every file is in the manifest with its hash, but for the manifest.
for model in deepseek-r1 llama-3.1-405b; do
  ( cd one/$model
    sed -n 's/.*"name": "\([^"]*\)", .*"sha256": "\([0-9a-f]*\)".*/\2  \1/p' manifest.json > ../sums
    [ "$(wc -l < ../sums)" -eq "$(find . -type f | grep -vc manifest.json)" ] || fail "files of the manifest of $model"
    sha256sum --quiet -c ../sums ) || fail "manifest of $model"
done

# A name that leads elsewhere, links, devices and pipes in an output folder.
mkdir -p linked/deepseek-r1 && ln -s /dev/null linked/deepseek-r1/frontier.csv
expect_code 2 "$binary" sweep "$small" -o linked
grep -q 'frontier.csv is a symbolic link' stderr || fail "message about a link: $(cat stderr)"
mkdir elsewhere around && ln -s ../elsewhere around/deepseek-r1
expect_code 2 "$binary" sweep "$small" -o around
grep -q 'around/deepseek-r1 is a symbolic link' stderr || fail "message about a folder that is a link: $(cat stderr)"
[ -z "$(ls -A elsewhere)" ] || fail "written outside of the folder: $(ls elsewhere)"
rm linked/deepseek-r1/frontier.csv && mkfifo linked/deepseek-r1/run.json
expect_code 2 timeout 60 "$binary" sweep "$small" -o linked
[ -p linked/deepseek-r1/run.json ] || fail "a pipe was replaced"
expect_code 2 "$binary" sweep "$small" -o /dev/null
expect_code 0 "$binary" plan llama-3.1-8b --system h100-hgx --gpus 8 --input 1K --output 1K --ttl "50 ms" --save -
grep -q '^models: ' stdout || fail "--save - is standard output"

# Inputs without an end, and those that are none.
expect_code 2 timeout 60 "$binary" calibrate /dev/zero --system h100-hgx
grep -q 'more than 256 MiB' stderr || fail "message about /dev/zero: $(cat stderr)"
expect_code 2 "$binary" sweep /dev/zero
ln -s loop loop
expect_code 2 "$binary" sweep ./loop -o out
! grep -q 'internal error' stderr || fail "a loop of links: $(cat stderr)"
echo "output files are whole"
