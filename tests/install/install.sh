#!/bin/bash
# Installs what was built to a prefix, builds tests/install/example against it outside of the tree, moves the prefix and
# does it again. Nothing of the build may be known in what is installed, which has every file that is read at run time and
# of the library only its interface.
# Usage: install.sh SOURCE BUILD CMAKE
set -euo pipefail
export LC_ALL=C
source=$(realpath "$1") build=$(realpath "$2") cmake=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset SHARDLINE_DATA LD_LIBRARY_PATH
fail() { echo "FAILED: $*"; exit 1; }

"$cmake" --install "$build" --prefix "$work/first" --strip > "$work/log" || { cat "$work/log"; fail "cmake --install"; }

# The data: all YAML that is not a test's, the same bytes.
data=share/shardline
while IFS= read -r file; do
  cmp -s "$source/$file" "$work/first/$data/$file" || fail "$file is not installed in $data"
done < <(cd "$source" && find models hardware planner calibrate scenarios -name '*.yaml')

# No folder of ours: neither of the sources nor of the build.
if grep -rlF -e "$source/" -e "$build" "$work/first" > "$work/found"; then
  while IFS= read -r file; do strings "$file" | grep -F -e "$source/" -e "$build" | head -n 3; done < "$work/found"
  fail "a path of the build is known in $(cat "$work/found")"
fi

# Of the library only shardline::api is seen; that some of it is, too.
library=$(find "$work/first" -name 'libshardline.so')
nm --dynamic --defined-only --demangle "$library" | cut -d ' ' -f 3- > "$work/symbols"
grep -q '^shardline::api::data_folder' "$work/symbols" || fail "the library offers no data_folder()"
! grep -vE '^((typeinfo|typeinfo name|vtable) for )?shardline::api::' "$work/symbols" || fail "the library offers more than its interface"

# What users are told to write is what is built here.
sed -n '/^```cpp$/,/^```$/p' "$source/planner/api/INSTALL.md" | sed '1d;$d' | cmp - "$source/tests/install/example/main.cpp" ||
  fail "INSTALL.md shows another example"

build_and_run() {  # PREFIX
  cp -r "$source/tests/install/example" "$work/example"
  "$cmake" -S "$work/example" -B "$work/build" -DCMAKE_PREFIX_PATH="$1" > "$work/log" 2>&1 &&
    "$cmake" --build "$work/build" >> "$work/log" 2>&1 || { cat "$work/log"; fail "the example with $1"; }
  run_example "$1" ""
}
run_example() {  # PREFIX, and where else the library lies: answers as the program does
  local LD_LIBRARY_PATH=$2
  [ -z "$2" ] || export LD_LIBRARY_PATH
  "$work/build/installed" "$1/$data" || fail "the library with $1 at run time"
  "$work/build/example" > "$work/example.out" || { cat "$work/example.out"; fail "the example with $1 at run time"; }
  "$1/bin/shardline" plan llama-3.1-8b --system h200-hgx --gpus 1 --input 4K --output 256 --ttl "20 ms" > "$work/plan.out" 2>&1 ||
    { cat "$work/plan.out"; fail "plan of $1"; }
  grep -qF "$(head -n 1 "$work/example.out")" <(tr -s ' \n' ' ' < "$work/plan.out") || fail "the example asks something else"
  # Users, TPOT, rate and plan of every row of the command's table.
  sed -nE 's/^ +[0-9]+\*? +1 +([0-9]+) +([0-9.]+) ms .* ([0-9]+) +-[0-9].* % +(tensor:[^ ]+)$/\1 \2 \3 \4/p' "$work/plan.out" > "$work/of_plan"
  sed -nE 's/^(meets|misses) +([^ ]+): ([0-9]+) users, TPOT ([0-9.]+) ms .*, ([0-9]+) tokens.*$/\3 \4 \5 \2/p' "$work/example.out" > "$work/of_example"
  [ -s "$work/of_plan" ] && diff "$work/of_plan" "$work/of_example" || { cat "$work/plan.out"; fail "the example's answer is not that of plan"; }
}
run_python() {  # PREFIX: the module that Debian's Python has there
  [ ! -d "$1/lib/python3" ] || "$source/tests/install/python.sh" "$1" "$1/$data"
}
run_program() {  # PREFIX: as the one that was built
  "$1/bin/shardline" --version > "$work/version"
  grep -qxF "data: $1/$data" "$work/version" || { cat "$work/version"; fail "--version of $1"; }
  local what
  for what in "list models" "list systems" "list scenarios" "list strategies" accuracy \
              "simulate $source/tests/golden/launch.yaml --plan tensor:tpa=8,tpf=8,batch=1"; do
    "$build/bin/shardline" $what > "$work/built" || fail "$what"
    "$1/bin/shardline" $what > "$work/installed" || fail "$what of $1"
    sed -i -E 's/; [0-9.]+ s, .*//' "$work/built" "$work/installed"
    cmp "$work/built" "$work/installed" || { diff "$work/built" "$work/installed" | head; fail "$what of $1"; }
  done
}

build_and_run "$work/first"
run_program "$work/first"
run_python "$work/first"
mv "$work/first" "$work/second"
library_folder=$(dirname "${library/first/second}")
run_example "$work/second" "$library_folder"
rm -rf "$work/build" "$work/example"
build_and_run "$work/second"
run_program "$work/second"
run_python "$work/second"
echo "installed, used from outside, moved, and used again"
