#!/usr/bin/env bash
# Everything that only a GPU can show, in one call of less than eight minutes: kernel tests, memory and race checks,
# schedules against the CPU, and the probe's measurements.
#   cuda_probe/measure.sh [-o FOLDER] [--build FOLDER]   builds in build/probe unless FOLDER is a build, runs all;
#                                                        FOLDER gets summary.txt and all.tar.gz: outputs and tables
#   cuda_probe/measure.sh --pack FOLDER [--build FOLDER] builds likewise and copies what a machine without our packages
#                                                        needs; there: FOLDER/measure.sh
# Needs the CUDA toolkit to build; changes no setting of the GPU. A step that fails is recorded and the rest goes on.
# Exit codes: 0 all passed, 1 a step failed, 2 wrong arguments, 3 no GPU.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
usage() { sed -n '2,10s/^# \{0,1\}//p' "$here/measure.sh" >&2; exit 2; }
out='' build='' pack=''
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case "$1" in
    -o | --out) out=$2 ;;
    --build) build=$2 ;;
    --pack) pack=$2 ;;
    *) usage ;;
  esac
  shift 2
done

programs=(shardline-probe cuda_gpu_tests)
[ -z "$build" ] && [ -x "$here/bin/shardline-probe" ] && build=$here  # packed
if [ -z "$build" ]; then
  build=$root/build/probe
  echo "== building in build/probe"
  cmake --preset probe -S "$root" -B "$build" -Wno-dev >/dev/null || "$root/quickstart" packages || exit 1
  cmake --preset probe -S "$root" -B "$build" -Wno-dev >/dev/null &&
    cmake --build "$build" --parallel "$(nproc)" --target "${programs[@]}" -- --quiet || exit 1
fi
for program in "${programs[@]}"; do
  [ -x "$build/bin/$program" ] && continue
  echo "measure.sh: $build/bin/$program is missing: not a build of shardline with CUDA" >&2
  exit 2
done
build=$(cd "$build" && pwd)

if [ -n "$pack" ]; then
  mkdir -p "$pack/bin" "$pack/lib" "$pack/cxx" "$pack/data" || exit 1
  cp "$here/measure.sh" "$pack/" || exit 1
  for program in "${programs[@]}"; do
    cp "$build/bin/$program" "$pack/bin/" || exit 1
    # Our packages' libraries; the system's and CUDA's are the machine's own. Those of the C++ compiler help only
    # where the machine's are older.
    libraries=$(ldd "$build/bin/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}')
    grep -E '/lib(tbb|fmt|yaml-cpp)' <<<"$libraries" | xargs -r -I{} cp -L {} "$pack/lib/"
    grep -E '/lib(stdc\+\+|gcc_s)' <<<"$libraries" | xargs -r -I{} cp -L {} "$pack/cxx/"
  done
  for folder in scenarios hardware/catalog models/catalog; do
    mkdir -p "$pack/data/$folder"
    cp "$root/$folder"/*.yaml "$pack/data/$folder/" || exit 1
  done
  echo "== packed: $(du -sh "$pack" | cut -f1) in $pack"
  exit 0
fi

begin=$SECONDS end=$((SECONDS + 450)) failed=0
libraries=${LD_LIBRARY_PATH:-}
[ -d "$build/data" ] && export SHARDLINE_DATA=$build/data
[ -d "$build/lib" ] && libraries=$build/lib${libraries:+:$libraries}
# cuBLASLt, cuDNN and NCCL may come with Python packages instead of the toolkit.
known=$(ldconfig -p 2>/dev/null)
for name in libcublasLt.so.13 libcudnn.so.9 libnccl.so.2; do
  case $known in *"$name"*) continue ;; esac
  found=$(timeout 20 find /usr/local /opt /usr/lib "$HOME" -name "$name" -print -quit 2>/dev/null)
  [ -n "$found" ] && libraries=${libraries:+$libraries:}$(dirname "$found")
done
[ -d "$build/cxx" ] && LD_LIBRARY_PATH=$libraries ldd "$build/bin/shardline-probe" 2>&1 | grep -E 'GLIBCXX|GCC_|stdc\+\+.*not found' >/dev/null &&
  libraries=$build/cxx${libraries:+:$libraries}
with_libraries=(env LD_LIBRARY_PATH="$libraries")
missing=$("${with_libraries[@]}" ldd "$build/bin/shardline-probe" 2>&1 | grep 'not found')
if [ -n "$missing" ]; then
  printf 'measure.sh: shardline-probe cannot start here:\n%s\n' "$missing" >&2
  exit 1
fi

if ! timeout 30 nvidia-smi -L >/dev/null 2>&1; then
  echo "measure.sh: no GPU: nvidia-smi is missing or lists none; nothing was measured" >&2
  exit 3
fi
[ "$build" = "$here" ] && place=$PWD || place=$root/out
out=${out:-$place/gpu-$(date -u +%Y%m%d-%H%M%S)}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1  # tables name the command that made them: no paths of this machine
timeout 20 nvidia-smi -q >"$work/nvidia-smi.txt" 2>&1
: >"$out/summary.txt"
say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }
save() { cp "$out/summary.txt" "$work/" && tar -C "$work" -czf "$out/all.tar.gz.new" . && mv "$out/all.tar.gz.new" "$out/all.tar.gz"; }
step() {  # name, seconds at most, command: output in NAME.txt, one line in summary.txt
  local name=$1 limit=$2 from=$SECONDS left=$((end - SECONDS)) code
  shift 2
  if [ $left -lt 10 ]; then
    failed=1
    say "$(printf '%-12s skipped: no time left' "$name")"
    return
  fi
  timeout --signal=INT --kill-after=5 $((limit < left ? limit : left)) "${with_libraries[@]}" "$@" >"$work/$name.txt" 2>&1 </dev/null
  code=$?
  [ $code -eq 0 ] || failed=1
  say "$(printf '%-12s exit %3d  %4d s  %s' "$name" "$code" "$((SECONDS - from))" "$(grep -v '^ *$' "$work/$name.txt" | tail -n 1)")"
  save
}

tests=$build/bin/cuda_gpu_tests probe=$build/bin/shardline-probe
step tests 60 "$tests"
sanitizer=$(command -v compute-sanitizer || find /usr/local/cuda*/ /opt/nvidia -name compute-sanitizer -type f -print -quit 2>/dev/null)
small='--gtest_filter=CudaDevice.Row*:CudaDevice.Prefill:CudaDevice.Decode:CudaDevice.MlaDecode:CudaDevice.Merge:CudaDevice.Compress'
if [ -n "$sanitizer" ]; then
  step memcheck 45 "$sanitizer" --tool memcheck --error-exitcode 1 "$tests" "$small"
  step racecheck 45 "$sanitizer" --tool racecheck --error-exitcode 1 "$tests" "$small"
else
  say "memcheck     skipped: no compute-sanitizer"
fi
step execute 45 "$probe" execute --cases 24
# Apart from each other: a kernel that hangs or breaks the device takes only its own part with it.
while read -r name only budget; do
  step "$name" $((budget + 15)) "$probe" run --only "$only" --budget "$budget" -o measurements
done <<'PARTS'
machine hbm,gemm,launch,p2p,collective 75
attention attention 50
decode decode 25
mla mla 18
rest merge,ring 20
PARTS
say "$(printf '%-12s exit %3d  %4d s' all "$failed" "$((SECONDS - begin))")"
save
echo "== recorded in $out: summary.txt, all.tar.gz"
exit $failed
