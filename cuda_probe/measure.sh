#!/usr/bin/env bash
# Everything that only a GPU can show, in one call of less than eight minutes: kernel tests, memory and race checks,
# schedules against the CPU, and the probe's measurements.
#   cuda_probe/measure.sh [-o FOLDER] [--build FOLDER]   builds if needed, runs all, records all in FOLDER
#   cuda_probe/measure.sh --pack FOLDER                  builds here and copies what a machine without our packages
#                                                        needs; run there: FOLDER/measure.sh --build FOLDER
# Needs the CUDA toolkit; changes no setting of the GPU. A step that fails is recorded and the rest goes on.
# Exit codes: 0 all passed, 1 a step failed, 3 no GPU.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
out='' build='' pack=''
while [ $# -gt 0 ]; do
  case "$1" in
    -o | --out) out=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    --pack) pack=$2; shift 2 ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done

programs=(shardline-probe cuda_gpu_tests)
if [ -z "$build" ]; then
  build=$root/build/probe
  echo "== building in build/probe"
  cmake --preset probe -S "$root" -B "$build" -Wno-dev >/dev/null || "$root/quickstart" packages || exit 1
  cmake --preset probe -S "$root" -B "$build" -Wno-dev >/dev/null &&
    cmake --build "$build" --parallel "$(nproc)" --target "${programs[@]}" -- --quiet || exit 1
fi

if [ -n "$pack" ]; then
  mkdir -p "$pack/bin" "$pack/lib" "$pack/data"
  cp "${here}/measure.sh" "$pack/"
  for program in "${programs[@]}"; do
    cp "$build/bin/$program" "$pack/bin/"
    # Our packages' libraries; the system's and CUDA's are the machine's own.
    ldd "$build/bin/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
      grep -E '/lib(tbb|fmt|yaml-cpp|mpi|open-|hwloc|event|pmix|stdc\+\+)' | xargs -r -I{} cp -L {} "$pack/lib/"
  done
  cp -r "$root/scenarios" "$root/hardware" "$root/models" "$pack/data/"
  find "$pack/data" -type f ! -name '*.yaml' ! -name '*.json' -delete
  echo "== packed: $(du -sh "$pack" | cut -f1) in $pack"
  exit 0
fi

[ -d "$build/data" ] && export SHARDLINE_DATA=$build/data
[ -d "$build/lib" ] && export LD_LIBRARY_PATH=$build/lib:${LD_LIBRARY_PATH:-}
# cuBLASLt, cuDNN and NCCL may come with Python packages instead of the toolkit.
for name in libcublasLt.so.13 libcudnn.so.9 libnccl.so.2; do
  ldconfig -p 2>/dev/null | grep -q "$name" && continue
  found=$(find /usr/local /opt /usr/lib -name "$name" -print -quit 2>/dev/null)
  [ -n "$found" ] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname "$found")
done

if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "measure.sh: no GPU: nvidia-smi is missing or lists none; nothing was measured" >&2
  exit 3
fi
out=${out:-$root/out/gpu-$(date -u +%Y%m%d-%H%M%S)}
mkdir -p "$out"
nvidia-smi -q >"$out/nvidia-smi.txt" 2>&1
: >"$out/summary.txt"
failed=0
step() {  # name, seconds at most, command: output in NAME.txt, one line in summary.txt
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  timeout --signal=INT --kill-after=10 "$limit" "$@" >"$out/$name.txt" 2>&1
  code=$?
  [ $code -eq 0 ] || failed=1
  printf '%-12s exit %3d  %4d s  %s\n' "$name" "$code" "$((SECONDS - begin))" "$(tail -n 1 "$out/$name.txt")" |
    tee -a "$out/summary.txt"
}

step tests 60 "$build/bin/cuda_gpu_tests"
sanitizer=$(command -v compute-sanitizer || find /usr/local/cuda*/ /opt/nvidia -name compute-sanitizer -type f -print -quit 2>/dev/null)
if [ -n "$sanitizer" ]; then
  small='--gtest_filter=CudaDevice.Row*:CudaDevice.Prefill:CudaDevice.Decode:CudaDevice.MlaDecode:CudaDevice.Merge:CudaDevice.Compress'
  step memcheck 60 "$sanitizer" --tool memcheck --error-exitcode 1 "$build/bin/cuda_gpu_tests" "$small"
  step racecheck 60 "$sanitizer" --tool racecheck --error-exitcode 1 "$build/bin/cuda_gpu_tests" "$small"
else
  echo "memcheck     skipped: no compute-sanitizer" | tee -a "$out/summary.txt"
fi
step execute 50 "$build/bin/shardline-probe" execute
step run 220 "$build/bin/shardline-probe" run --budget 200 -o "$out/measurements"
tar -C "$out" -czf "$out/all.tar.gz" --exclude all.tar.gz . 2>/dev/null
echo "== recorded in $out: $(cd "$out" && ls | tr '\n' ' ')"
exit $failed
