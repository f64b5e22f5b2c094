#!/bin/bash
# ./quickstart where something is missing works or says in one line what to do. Programs that install, configure and
# build are stand-ins, so that this takes no time and installs nothing.
# Usage: quickstart.sh SOURCE
set -euo pipefail
source=$(realpath "$1")
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; cat "$work/out"; exit 1; }

checkout="$work/a path with spaces"
mkdir -p "$checkout" "$work/bin"
cp "$source/quickstart" "$checkout"
cat > "$work/tool" << 'END'
#!/bin/bash
echo "${0##*/} $*" >> "$LOG"
case "${0##*/}" in
  id) echo "${AS:-0}" ;;
  sudo) [ -z "${SUDO_FAILS:-}" ] && exec "$@" ;;
  dpkg-query) [[ " ${LACKS:-} " == *" ${@: -1} "* ]] || echo 'install ok installed' ;;
  apt-get) [ -z "${APT_FAILS:-}" ] || { echo 'E: no network' >&2; exit 100; } ;;
  cmake)
    if [ "$1" = --preset ]; then
      [ -z "${CONFIGURE_FAILS:-}" ] || { echo 'CMake Error: no fmt'; exit 1; }
      mkdir -p "$4/bin"
      cp "$0" "$4/bin/shardline"
    fi ;;
  shardline) mkdir -p "${@: -1}" && touch "${@: -1}/frontier.png" ;;
esac
END
chmod +x "$work/tool"
# Nothing of this machine but what a script needs, so that what is missing is missing.
for tool in bash sh env cat cp dirname find grep mkdir nproc realpath sed sort touch; do
  ln -s "$(command -v "$tool")" "$work/bin/$tool"
done
tools() {  # NAME...: these stand-ins and no others are there
  find "$work/bin" -type f -delete
  for tool in "$@"; do cp "$work/tool" "$work/bin/$tool"; done
}
quick() {  # [VARIABLE=VALUE]... [-- ARGUMENT...]: its exit code is in $code, what it says in out, what it ran in log
  local variables=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do variables+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  : > "$work/log"
  code=0
  (cd "$work" && env -i PATH="$work/bin" LOG="$work/log" "${variables[@]}" "$checkout/quickstart" "$@") > "$work/out" 2>&1 || code=$?
}
says() { grep -qF -- "$1" "$work/out" || fail "$2: does not say: $1"; }
ran() { grep -qE -- "$1" "$work/log" || { cat "$work/log"; fail "$2: did not run: $1"; }; }

all=(id dpkg-query apt-get cmake ninja ctest)
tools "${all[@]}"
quick; [ "$code" = 0 ] || fail "all is there"
says "out/helix-gb200-1m/frontier.png" "all is there"
[ -x "$checkout/build/release/bin/shardline" ] || fail "builds in the checkout"
quick LACKS=cmake; [ "$code" = 0 ] || fail "as root"
ran '^apt-get install .* cmake$' "as root"

quick AS=1000 LACKS="cmake gnuplot-nox"; [ "$code" = 1 ] || fail "no sudo: exit code $code"
says "quickstart: to install them, run as root: apt-get install cmake gnuplot-nox" "no sudo"
quick AS=1000 LACKS="gnuplot-nox"; [ "$code" = 0 ] || fail "no sudo, pictures missing"
says "only root may install them; pictures and the page's chart need them: gnuplot-nox" "no sudo, pictures missing"
tools "${all[@]}" sudo
quick AS=1000 LACKS=cmake; [ "$code" = 0 ] || fail "sudo"
ran '^sudo env .*apt-get install .* cmake$' "sudo"
quick AS=1000 SUDO_FAILS=1 LACKS=cmake; [ "$code" = 1 ] || fail "sudo refuses: exit code $code"
says "quickstart: that failed, see above" "sudo refuses"
quick AS=1000 SUDO_FAILS=1 LACKS="gnuplot-nox"; [ "$code" = 0 ] || fail "sudo refuses, pictures missing"
says "left out, as that failed, see above; pictures and the page's chart need them: gnuplot-nox" "sudo refuses"
quick APT_FAILS=1 LACKS=cmake; [ "$code" = 1 ] || fail "no network: exit code $code"
says "E: no network" "no network"
says "install these and start again: cmake" "no network"
quick APT_FAILS=1 LACKS="gnuplot-nox"; [ "$code" = 0 ] || fail "no network, pictures missing"

tools id cmake ninja ctest
quick; [ "$code" = 0 ] || fail "no apt"
says "no apt-get here: these packages" "no apt"
tools id
quick; [ "$code" = 1 ] || fail "no cmake: exit code $code"
says "quickstart: cmake is missing" "no cmake"

tools "${all[@]}"
quick CONFIGURE_FAILS=1; [ "$code" = 1 ] || fail "configure fails: exit code $code"
says "CMake Error: no fmt" "configure fails"
rm -rf "$checkout/build" "$checkout/out"
touch "$checkout/build"  # as where a checkout cannot be written to, but for root too
quick -- test; [ "$code" = 1 ] || fail "read-only: exit code $code"
says "nothing can be written in $checkout: SHARDLINE_BUILD=FOLDER ./quickstart test builds below FOLDER" "read-only"
quick "SHARDLINE_BUILD=else where"; [ "$code" = 0 ] || fail "SHARDLINE_BUILD"
[ -x "$work/else where/build/release/bin/shardline" ] && [ ! -e "$checkout/out" ] || fail "SHARDLINE_BUILD: elsewhere"
# Through a link, and where cd would rather go elsewhere, it is still of its own checkout.
rm -rf "$checkout/build" "$checkout/out"
ln -s "$checkout/quickstart" "$work/start"
mkdir -p "$work/elsewhere/a path with spaces/build/release/bin"
(cd "$work" && env -i PATH="$work/bin" LOG="$work/log" ./start) > "$work/out" 2>&1 || fail "a link: exit code $?"
[ -x "$checkout/build/release/bin/shardline" ] && [ ! -e "$work/build" ] || fail "a link: built elsewhere"
rm -rf "$checkout/build" "$checkout/out"
(cd "$work" && env -i PATH="$work/bin" LOG="$work/log" CDPATH="$work/elsewhere" bash "a path with spaces/quickstart") > "$work/out" 2>&1 ||
  fail "CDPATH: exit code $?"
[ -x "$checkout/build/release/bin/shardline" ] || fail "CDPATH: built elsewhere"
# What it says to type is typed in whatever path.
checkout="$work/an apostrophe's \$HOME"
mkdir -p "$checkout"
cp "$source/quickstart" "$checkout"
quick; [ "$code" = 0 ] || fail "an apostrophe: exit code $code"
next=$(sed -n 's/^   next: \(export PATH=.*\), then .*/\1/p' "$work/out")
[ "$(bash -c "$next"'; command -v shardline')" = "$checkout/build/release/bin/shardline" ] || fail "an apostrophe: $next"
quick "SHARDLINE_BUILD=it's here" -- test; [ "$code" = 0 ] || fail "tests below an apostrophe: exit code $code"
again=$(sed -n 's/^== skipped: tests labelled long (run: \(.*\))$/\1/p' "$work/out")
: > "$work/log"
PATH="$work/bin" LOG="$work/log" bash -c "$again" || fail "tests below an apostrophe: $again"
ran "^ctest --test-dir $work/it's here/build/ci -L long$" "tests below an apostrophe"
quick -- tset; [ "$code" = 2 ] || fail "usage: exit code $code"
echo "quickstart works or says what to do"
