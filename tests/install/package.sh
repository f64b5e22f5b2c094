#!/bin/bash
# Makes the packages, unpacks them into a root and runs what they hold there; every library that the program needs is of a
# package in their dependencies.
# Usage: package.sh SOURCE BUILD CPACK
set -euo pipefail
export LC_ALL=C
source=$(realpath "$1") build=$(realpath "$2") cpack=$3
for tool in dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" > /dev/null || { echo "skipped: no $tool here"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset SHARDLINE_DATA
fail() { echo "FAILED: $*"; exit 1; }

"$cpack" --config "$build/CPackConfig.cmake" -G DEB -B "$work" > "$work/log" 2>&1 || { cat "$work/log"; fail cpack; }
mkdir "$work/root"
names="shardline shardline-dev"
grep -qw python "$build/CPackConfig.cmake" && names+=" python3-shardline" || echo "left out: the Python module was not built"
for name in $names; do
  package=$(find "$work" -maxdepth 1 -name "${name}_*.deb")
  [ -n "$package" ] || fail "no package $name"
  dpkg-deb -x "$package" "$work/root"
  dpkg-deb -I "$package" > "$work/$name.info"
  # Below /usr and nowhere else.
  ! dpkg-deb -c "$package" | awk '{print $6}' | grep -vE '^\./(usr/.*)?$' || fail "$name: files outside /usr"
done
grep -q "^ Depends: shardline (= " "$work/shardline-dev.info" || fail "shardline-dev does not depend on shardline"

root=$work/root/usr
"$root/bin/shardline" --version > "$work/version"
grep -qxF "data: $root/share/shardline" "$work/version" || { cat "$work/version"; fail "--version"; }
"$root/bin/shardline" sweep "$source/tests/golden/small.yaml" > "$work/sweep" || { cat "$work/sweep"; fail "sweep"; }
grep -q 'tokens/s/GPU' "$work/sweep" || fail "sweep says nothing"
for file in share/man/man1/shardline.1.gz share/man/man1/shardline-sweep.1.gz share/doc/shardline/copyright \
            share/bash-completion/completions/shardline share/zsh/vendor-completions/_shardline \
            share/fish/vendor_completions.d/shardline.fish include/shardline/version.hpp; do
  [ -s "$root/$file" ] || fail "no $file"
done

if [[ $names == *python3-* ]]; then
  depends=$(sed -n 's/^ Depends: //p' "$work/python3-shardline.info")
  [[ $depends == *"shardline (= "*python3* ]] || fail "python3-shardline depends on: $depends"
  "$source/tests/install/python.sh" "$root" "$root/share/shardline"
fi

depends=$(sed -n 's/^ Depends: //p' "$work/shardline.info")
for object in "$root/bin/shardline" $(find "$root" -name 'libshardline.so.*' -type f); do
  for library in $(objdump -p "$object" | awk '$1 == "NEEDED" {print $2}'); do
    found=
    for owner in $(dpkg -S "*/$library" 2> /dev/null | cut -d : -f 1 | sort -u); do  # of any architecture
      [[ ", $depends" != *", $owner"* ]] || found=$owner
    done
    [ -n "$found" ] || fail "$object needs $library, of no package in: $depends"
  done
done
echo "packages unpacked and run; Depends: $depends"
