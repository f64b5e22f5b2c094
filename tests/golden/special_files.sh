#!/bin/bash
# What commands are told to write to: special files, links, folders, nothing, and a folder that another run writes to or
# was killed in. Usage: special_files.sh BINARY
set -euo pipefail
export LC_ALL=C
binary=$(realpath "$1")
small=$(realpath "$(dirname "$0")/small.yaml")
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"

line=(llama-3.1-8b --system h100-hgx --gpus 2 --input 1K --output 16)
fixed=("${line[@]}" --plan tensor:tpa=2,tpf=2)
fail() { echo "FAILED: $*"; cat stderr; exit 1; }
run() { "$binary" "$@" > stdout 2> stderr < /dev/null; }
refused() {  # words of the message, arguments
  local code=0 words=$1
  shift
  run "$@" || code=$?
  [ "$code" -eq 2 ] || fail "exit $code: $*"
  grep -q -- "$words" stderr || fail "no '$words': $*"
}

# plan --save: one file, or standard output.
run plan "${line[@]}" --save question.yaml
cp question.yaml whole.yaml
ln -s question.yaml link.yaml
run plan "${line[@]}" --save link.yaml
[ -L link.yaml ] || fail "a link was replaced"
cmp -s question.yaml whole.yaml || fail "the link's file is another"
# Standard output has the document alone then, and standard error what is printed beside a file.
run plan "${line[@]}" --save written.yaml
cp stdout printed
alone() {  # FILE that the same command wrote, arguments
  local file=$1
  shift
  run "$@"
  cmp -s stdout "$file" || fail "standard output is not the document alone: $*"
  [ -s stderr ] || fail "nothing is told: $*"
  [ ! -e ./- ] || fail "a file called -"
}
alone written.yaml plan "${line[@]}" --save -
grep -q "$(head -n 1 printed)" stderr || fail "the answer is lost"
ln -s /dev/stdout stdout.yaml
for name in /dev/stdout /dev/fd/1 stdout.yaml; do alone written.yaml plan "${line[@]}" --save "$name"; done
: > both
"$binary" plan "${line[@]}" --save both > both 2> stderr < /dev/null
cmp -s both written.yaml || fail "a file that standard output goes to has more than the document"
"$binary" plan "${line[@]}" --save - 2> stderr < /dev/null | cmp -s - written.yaml || fail "a pipe has more than the document"
echo 'name: mine' > own.yaml
refused 'did not write it' plan "${line[@]}" --save own.yaml
[ "$(cat own.yaml)" = 'name: mine' ] || fail "a file of somebody's own is lost"
run plan "${line[@]}" --save /dev/null
[ -c /dev/null ] || fail "/dev/null was replaced"
refused 'No space left' plan "${line[@]}" --save /dev/full
refused 'Is a directory' plan "${line[@]}" --save "$work"
refused 'No such file' plan "${line[@]}" --save nowhere/question.yaml
ln -s loop loop
refused 'symbolic links' plan "${line[@]}" --save loop
refused '--save: its value is empty' plan "${line[@]}" --save ''
refused '--save: its value is empty' plan "${line[@]}" --save=
run serve "${fixed[@]}" --rate 5/s --requests 50 -o none/../made
{ [ -d made ] && [ ! -e none ]; } || fail "a way through a folder that is not there"
refused '-o: its value is empty' serve "${fixed[@]}" --rate 5/s --requests 50 -o ''
refused 'argument 2 is empty' plan '' --system h100-hgx --input 1K

cp question.yaml mine.yaml
refused 'mine.yaml: this file is read' plan ./mine.yaml --system h100-hgx --gpus 2 --input 1K --output 16 --save mine.yaml
refused 'standard output has the document' plan "${line[@]}" --save - --json
[ ! -s stdout ] || fail "a document beside a refusal"

# Measurements are read, so not written; what an option asks for is written, or the option refused.
{
  echo m,n,k,dtype,kernel,latency_us
  for m in 64 256 1024 4096; do for n in 512 1024 2048; do for k in 1024 2048 4096; do
    echo "$m,$n,$k,bf16,nvjet,$((5 + m * n * k / 100000000))"
  done; done; done
} > gemm.csv
cp gemm.csv before
fit=(calibrate gemm.csv --system h200-hgx)
refused 'gemm.csv: this file is read' "${fit[@]}" -o ./gemm.csv
refused 'gemm.csv: this file is read' evaluate gemm.csv --system h200-hgx --csv "$work/gemm.csv"
refused 'gemm.csv: this file is read' calibrate . --system h200-hgx -o gemm.csv
refused '--csv is for measured serving' "${fit[@]}" -o fitted.yaml --csv rows.csv
refused '--part is for a system' calibrate gemm.csv --engine vllm --part
refused '--plots is for times of kernels' calibrate gemm.csv --system h200-hgx --power --plots plots
refused '--csv and -o are the same file' calibrate gemm.csv --engine vllm -o same --csv ./same
refused 'standard output has the document' evaluate gemm.csv --system h200-hgx --csv - --json
refused 'standard output has the document' evaluate gemm.csv --system h200-hgx --csv /dev/stdout --json
refused 'both name standard output' calibrate gemm.csv --engine vllm -o - --csv /dev/stdout
cmp gemm.csv before || fail "measurements were written"
for out in fitted.yaml rows.csv same; do [ ! -e "$out" ] || fail "$out of a refused command"; done
run "${fit[@]}" --part -o fitted.yaml
alone fitted.yaml "${fit[@]}" --part -o -
run evaluate gemm.csv --system h200-hgx --csv priced.csv
alone priced.csv evaluate gemm.csv --system h200-hgx --csv -
run accuracy -o accuracy.md
alone accuracy.md accuracy -o -
for out in /dev/full "$work" loop; do
  refused 'cannot write' "${fit[@]}" -o "$out"
  refused 'cannot write' evaluate gemm.csv --system h200-hgx --csv "$out"
done

# The day that files are dated with.
for day in x -1 1e5 99999999999999999999 253402300800; do
  SOURCE_DATE_EPOCH=$day refused "SOURCE_DATE_EPOCH=$day: expected" "${fit[@]}" --part -o dated.yaml
done
SOURCE_DATE_EPOCH=253402300799 run "${fit[@]}" --part -o dated.yaml
grep -q 9999-12-31 dated.yaml || fail "another day: $(grep date dated.yaml)"
# Whole numbers are decimal.
run serve "${fixed[@]}" --rate 5/s --requests 010
grep -q '10 requests' stdout || fail "010 is not ten"
refused 'found 0x10' serve "${fixed[@]}" --rate 5/s --requests 0x10

# A question that was saved is the question that was asked.
run sweep question.yaml -o swept
[ -s swept/llama-3.1-8b/manifest.json ] || fail "a saved question cannot be swept"

# What is read more than once may come out of a pipe: the answer is that of a file.
piped() {  # NAME of a file of which a FIFO takes the place, arguments
  local name=$1 code=0
  shift
  run "$@"
  cp stdout printed
  mkdir -p files
  mv "$name" "files/$name"
  mkfifo "$name"
  cat "files/$name" > "$name" &
  timeout 60 "$binary" "$@" > stdout 2> stderr < /dev/null || code=$?
  kill $! 2> /dev/null || true
  rm "$name"
  mv "files/$name" "$name"
  [ "$code" -eq 0 ] || fail "exit $code where $name is a FIFO: $*"
  cmp -s stdout printed || fail "another answer where $name is a FIFO: $*"
}
data=${SHARDLINE_DATA:?}
cp "$data/models/catalog/llama-3.1-8b.yaml" model.yaml
cp "$data/hardware/catalog/h200-hgx.yaml" system.yaml
own=(plan ./model.yaml --system ./system.yaml --gpus 2 --input 1K --output 16)
piped model.yaml "${own[@]}"
piped system.yaml "${own[@]}" --set 'device.memory.bandwidth=4 TB/s'
piped question.yaml sweep question.yaml --set 'gpus=[1]'
piped question.yaml explain question.yaml --plan tensor:tpa=2,tpf=2,batch=1
piped gemm.csv evaluate gemm.csv --system h200-hgx --json
piped gemm.csv calibrate gemm.csv --system ./system.yaml -o -
piped system.yaml calibrate gemm.csv --system ./system.yaml -o -
# How much memory it needs is known before it starts.
head -c 20000000 /dev/zero > zeros.csv
refused 'this needs about' calibrate zeros.csv --system h200-hgx --memory "100 MB"
mkfifo zeros.fifo
cat zeros.csv > zeros.fifo &
refused 'this needs about' calibrate zeros.fifo --system h200-hgx --memory "100 MB"
rm zeros.csv zeros.fifo
# One in a folder was not asked for by its name, and nobody writes to it.
mkdir tables
cp gemm.csv tables/
mkfifo tables/pipe.csv
for command in calibrate "calibrate --power" evaluate; do
  refused 'tables/pipe.csv: not a regular file: of a folder only such are read' $command tables --system h200-hgx
done
rm tables/pipe.csv
ln -s /dev/zero tables/device.csv
refused 'tables/device.csv: not a regular file: of a folder only such are read' evaluate tables --system h200-hgx
rm tables/device.csv
ln -s gemm.csv tables/linked.csv
run evaluate tables --system h200-hgx
rm -r tables

# serve, simulate: a folder, which is there whole or not at all.
for out in - /dev/full question.yaml link.yaml /proc/nowhere; do
  refused . serve "${fixed[@]}" --rate 5/s --requests 50 -o "$out"
  refused . simulate question.yaml --plan tensor:tpa=2,tpf=2,batch=1 -o "$out"
done
[ ! -e ./- ] || fail "a folder called -"
long=("${fixed[@]}" --rate 5/s --requests 100000000 --memory "1000 TB" -o shared)
"$binary" serve "${long[@]}" > first 2>&1 < /dev/null &
first=$!
for _ in $(seq 100); do [ -e shared ] || ls -d .[a-z]* > /dev/null 2>&1 && break; sleep 0.1; done
sleep 0.5
refused 'another run writes to shared' serve "${fixed[@]}" --rate 5/s --requests 50 -o shared
kill -9 "$first"
wait "$first" 2> /dev/null || true
run serve "${fixed[@]}" --rate 5/s --requests 50 -o shared
[ -s shared/latencies.csv ] && [ -s shared/series.csv ] && [ -s shared/trace.json ] && [ -s shared/manifest.json ] || fail "what a killed run left: $(ls shared)"

# A folder that is a file system of its own, which nothing beside it can be exchanged with: what it had stays whole where
# it is too small for another answer, and a folder within may be another one.
mounted() {
  mkdir vol
  mount -t tmpfs -o size=64m tmpfs vol
  run serve "${fixed[@]}" --rate 5/s --requests 50 -o vol || fail "exit $? in a folder that is a mount point"
  (cd vol && find . -type f -exec sha256sum {} +) | sort > had
  mount -o "remount,size=$(($(df --output=used -k vol | tail -n 1) + 200))k" vol  # load.html alone has 500 kB
  refused 'No space left on device' serve "${fixed[@]}" --rate 5/s --requests 60 -o vol
  (cd vol && find . -type f -exec sha256sum {} +) | sort | cmp -s - had || fail "a full file system has lost what it had: $(ls -A vol)"
  mount -o remount,size=64m vol
  run serve "${fixed[@]}" --rate 5/s --requests 50 -o vol || fail "exit $? in a mount point once more"
  ! find vol -name '*.shardline-*' | grep . || fail "left behind in a mount point"
}
if unshare -rm true 2> /dev/null; then
  export -f mounted fail run refused
  export binary lined="${fixed[*]}"
  unshare -rm bash -c 'set -euo pipefail; fixed=($lined); mounted' || fail "in a mount point"
  rmdir vol
else echo "skipped: a folder that is a mount point (nobody may mount here)"; fi

# With so few files open at once that the output cannot be written, or just can, nothing is left beside it.
for most in 4 5 6 7 8; do
  code=0
  # Without the files that whoever runs the test has left open.
  (exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n "$most"; exec "$binary" serve "${fixed[@]}" --rate 5/s --requests 50 -o few) > stdout 2> stderr < /dev/null || code=$?
  [ "$code" -eq 0 ] || [ "$code" -eq 2 ] || fail "exit $code with $most files"
  [ "$code" -eq 0 ] || [ ! -e few ] || fail "a part of a folder with $most files"
  ! find . -name '*.shardline-*' | grep . || fail "left behind with $most files"
  rm -rf few
done

# The same of a document and of many files that are read: never a fault of ours, nor an engine that is not known.
for most in 4 5 6 7 8; do
  for command in "explain ${fixed[*]} --json" "sweep $small"; do
    code=0
    (exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n "$most"; exec "$binary" $command) > stdout 2> stderr < /dev/null || code=$?
    [ "$code" -eq 0 ] || [ "$code" -eq 2 ] || fail "exit $code with $most files: $command"
    ! grep unknown stderr || fail "a folder that cannot be read is empty with $most files: $command"
  done
done

# What a run reads it does not write, however the file came to be read: in place of a table, a system, a calibration,
# and among the files of an output folder.
unchanged() {  # FILE, words of the message, arguments
  local file=$1 words=$2
  shift 2
  cp "$file" before
  refused "$words" "$@"
  cmp "$file" before || fail "$file, which was read, was written: $*"
}
cp gemm.csv rows.csv
"$binary" calibrate gemm.csv --system ./system.yaml --part -o part.yaml > /dev/null < /dev/null
unchanged system.yaml 'this file is read' evaluate gemm.csv --system ./system.yaml --csv system.yaml
ln system.yaml other_name.yaml
unchanged system.yaml 'this file is read' evaluate gemm.csv --system ./system.yaml --csv other_name.yaml
unchanged part.yaml 'this file is read' evaluate gemm.csv --system ./system.yaml --set calibration=part.yaml --csv part.yaml
unchanged part.yaml 'this file is read' plan "${line[@]}" --set calibration=part.yaml --save ./part.yaml
unchanged system.yaml 'this file is read' calibrate gemm.csv --system ./system.yaml --part -o system.yaml
mkdir traced
printf '%s\n' arrival_s,input_tokens,output_tokens 0,100,10 1,100,10 2,100,10 > traced/latencies.csv
unchanged traced/latencies.csv 'traced/latencies.csv: this file is read' serve "${fixed[@]}" --trace traced/latencies.csv -o traced
[ "$(ls traced)" = latencies.csv ] || fail "files beside one that is read: $(ls traced)"
mv traced/latencies.csv traced/trace.json
(cd traced && unchanged trace.json 'this file is read' serve "${fixed[@]}" --trace trace.json -o .)
mkdir -p ringed/llama-3.1-70b
mv traced/trace.json ringed/llama-3.1-70b/thresholds.csv
unchanged ringed/llama-3.1-70b/thresholds.csv 'this file is read' thresholds "$SHARDLINE_DATA/tests/golden/rings.yaml" --trace ringed/llama-3.1-70b/thresholds.csv -o ringed
# A calibration takes the place of the one before.
run calibrate gemm.csv --system ./system.yaml -o system.yaml || fail "a system cannot be calibrated in its place"
run calibrate gemm.csv --system ./system.yaml -o system.yaml || fail "nor once more"

# Names as long as a name can be, of folders too.
long=$(printf 'x%.0s' $(seq 255))
run serve "${fixed[@]}" --rate 5/s --requests 50 -o "$long" || fail "a folder with a name of 255 bytes"
run serve "${fixed[@]}" --rate 5/s --requests 50 -o "$long" || fail "the same once more"
rm -r "$long"

# The journal of a long sweep is a file of its own: what else has its name is neither written to, waited for nor removed.
long=(sweep prefill_405b_gb200_1m --exhaustive --threads 2)
echo precious > victim
for name in .llama-3.1-405b.journal.new .llama-3.1-405b.journal; do
  mkdir journalled
  ln -s ../victim "journalled/$name"
  run "${long[@]}" -o journalled || fail "exit $? with a link at $name"
  [ "$(cat victim)" = precious ] || fail "written through $name"
  [ -L "journalled/$name" ] || fail "the link $name is gone"
  rm -r journalled
  mkdir journalled
  mkfifo "journalled/$name"
  timeout 120 "$binary" "${long[@]}" -o journalled > stdout 2> stderr < /dev/null || fail "exit $? with a FIFO at $name"
  [ -p "journalled/$name" ] || fail "the FIFO $name is gone"
  rm -r journalled
done
# One that is no journal's, however long, is not read.
mkdir journalled
truncate -s 8G journalled/.llama-3.1-405b.journal
(ulimit -v 2000000; timeout 120 "$binary" "${long[@]}" -o journalled > stdout 2> stderr < /dev/null) || fail "exit $? with a long file"
[ -e journalled/.llama-3.1-405b.journal ] || fail "a file of others is gone"
rm -r journalled

# A stack that is too small for a command is refused; one that the system lets be raised is raised.
for most in 64 256 1024 4095; do
  code=0
  (ulimit -s "$most"; exec "$binary" plan "${line[@]}") > stdout 2> stderr < /dev/null || code=$?
  [ "$code" -eq 2 ] || fail "exit $code with a stack of $most KiB"
  grep -q "the stack may have $most KiB" stderr || fail "no word of the stack"
done
(ulimit -s 4096; exec "$binary" plan "${line[@]}") > stdout 2> stderr < /dev/null || fail "exit $? with 4 MiB of stack"
(ulimit -S -s 256; exec "$binary" plan "${line[@]}") > stdout 2> stderr < /dev/null || fail "exit $? where the stack can be raised"

# From a folder that nobody may write to, its data readable only, in a path with a blank, and by a user who is not root.
mkdir "a place" "a place/out"
chmod 777 "$work" "a place/out"
chmod 555 "a place"
as_nobody=()
if [ "$(id -u)" -eq 0 ]; then
  as_nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  "${as_nobody[@]}" test -x "$binary" -a -r "$SHARDLINE_DATA/planner" || as_nobody=()
fi
(cd "a place" && "${as_nobody[@]}" "$binary" serve "${fixed[@]}" --rate 5/s --requests 50 -o out/served) > stdout 2> stderr < /dev/null || fail "read-only folder"
[ -s "a place/out/served/series.csv" ] || fail "nothing was served"
if ((${#as_nobody[@]})); then
  code=0
  (cd "a place" && "${as_nobody[@]}" "$binary" serve "${fixed[@]}" --rate 5/s --requests 50 -o served) > stdout 2> stderr < /dev/null || code=$?
  [ "$code" -eq 2 ] || fail "exit $code in a folder that cannot be written to"
fi
! find . -name '*.shardline-*' | grep . || fail "left behind"
echo "special files are followed, written through or refused"
