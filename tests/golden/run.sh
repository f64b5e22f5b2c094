#!/bin/bash
# Runs the command lines of a golden file ("$ shardline ...") and compares what follows each of them: standard output,
# standard error (after "2> ") and exit code. What differs is left as FOLDER/CASE.txt.new; the golden file is never
# written. Lines "$ # ..." are titles; a folder beside the golden file that has its name holds further files. Seconds,
# rates and rounding errors (they depend on the mathematical library) are filtered out.
# Usage: run.sh BINARY CASE.txt FOLDER
set -euo pipefail
export LC_ALL=C
unset COLUMNS  # tables are as wide as they are

binary=$1 golden=$(realpath "$2") folder=$3
name=$(basename "$golden" .txt)
work=$folder/$name new=$folder/$name.txt.new
rm -rf "$work" "$new"
mkdir -p "$work"
new=$(realpath "$folder")/$name.txt.new
PATH=$(dirname "$(realpath "$binary")"):$PATH
cp "$(dirname "$golden")"/*.yaml "$work"
if [ -d "${golden%.txt}" ]; then cp -r "${golden%.txt}"/. "$work"; fi
cd "$work"

without_timings() { sed -E 's/ +[0-9]\.[0-9]e-(0[6-9]|1[0-9])/ ROUNDING/g; s|; [0-9.]+ s, [0-9]+ configurations/s$|; SECONDS, RATE|; /^  per core: /d'; }

grep -E '^\$ (shardline|#)' "$golden" > commands || { echo "no command line in $golden"; exit 1; }
while IFS= read -r line; do
  if [[ $line == '$ #'* ]]; then echo "$line"; continue; fi
  code=0
  eval "${line#\$ }" > stdout 2> stderr < /dev/null || code=$?
  echo "$line"
  without_timings < stdout
  sed 's/^/2> /' stderr
  echo "exit $code"
  echo
done < commands > "$new"

if ! diff -u "$golden" "$new"; then
  echo "If the new text is right: cp $new $golden"
  exit 1
fi
rm "$new"
