#!/bin/bash
# Makes the packages, installs them on a bare Debian 12 and uses them there as somebody would who has only these: an answer
# in one line, README.md and the tutorial command by command, Python, manual pages, a program built against the library. Nothing of this machine is seen there.
# Usage: bare.sh SOURCE BUILD CPACK. Exit code 77 (skipped) without root, mmdebstrap or Debian's archive. Some three minutes.
set -euo pipefail
export LC_ALL=C
source=$(realpath "$1") build=$(realpath "$2") cpack=$3
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "only root may make a root file system"
for tool in mmdebstrap dpkg-deb dpkg-shlibdeps unshare; do
  command -v "$tool" > /dev/null || skip "no $tool here"
done
unshare --mount true 2> /dev/null || skip "nothing may be mounted here"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

"$cpack" --config "$build/CPackConfig.cmake" -G DEB -B "$work/packages" > "$work/log" 2>&1 || { cat "$work/log"; fail cpack; }
python=$(cd "$work/packages" && ls python3-shardline_*.deb 2> /dev/null || true)
[ -n "$python" ] || echo "left out: the Python module was not built"
if command -v lintian > /dev/null; then
  lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$work"/packages/*.deb || fail "lintian"
else
  echo "left out: no lintian here"
fi

root=$work/root
mmdebstrap --quiet --variant=apt bookworm "$root" > "$work/log" 2>&1 || { tail -n 3 "$work/log"; skip "no Debian 12 could be made of its archive"; }
cp /etc/resolv.conf "$root/etc"
mkdir "$root/packages" "$root/home/user"
cp "$work"/packages/*.deb "$root/packages"
cp -r "$source/tests/install/example" "$root/home/user/my example"
mkdir "$root/packages/guides"
cp "$source/README.md" "$source/scenarios/tutorial.md" "$source/tests/quoted_output.py" "$root/packages/guides"
cat > "$root/packages/use.sh" << 'END'
set -euo pipefail
log=$(mktemp -d)
fail() { echo "FAILED: $*"; exit 1; }
get() { apt-get install -y -qq --no-install-recommends "$@" > "$log/apt" 2>&1 || { cat "$log/apt"; fail "apt-get install $*"; }; }
says() { grep -qF -- "$1" "$log/out" || { cat "$log/out"; fail "$2: does not say: $1"; }; }
apt-get update -qq
get /packages/*.deb
cd "$(dirname "$0")/../home/user"

shardline --version > "$log/out"
says "data: /usr/share/shardline" "--version"
shardline plan nvidia/Llama-3.1-70B-Instruct-FP8 --system h200-hgx --gpus 8 --input 32K --output 1K --ttl "20 ms" > "$log/out"
says "tensor:tpa=4,tpf=4,batch=" "plan"
# The packages that are only recommended are missing: said, and no more than that.
shardline sweep helix_gb200_1m -o out > "$log/out" 2>&1
says "gnuplot was not found in PATH; install the Debian package gnuplot-nox" "sweep"
[ -s out/deepseek-r1/frontier.html ] || fail "no page"
if [ -e /usr/lib/python3/dist-packages/shardline ]; then
  python3 -c 'import shardline
r = shardline.plan("llama-3.1-70b", system="h200-hgx", gpus=8, input="32K", output="1K")
print(shardline.__version__, r.plans[0].point.plan)' > "$log/out"
  says "tensor:" "python3"
fi

# Both first guides, command by command, from the packages alone.
get python3
python3 /packages/guides/quoted_output.py /usr/bin/shardline /packages/guides/README.md /packages/guides/tutorial.md > "$log/out" 2>&1 ||
  { cat "$log/out"; fail "a guide"; }

get man-db g++ cmake make gnuplot-nox
for page in shardline shardline-plan shardline-sweep; do
  MANWIDTH=80 man "$page" > "$log/out" 2> "$log/err" || fail "man $page"
  [ ! -s "$log/err" ] || { cat "$log/err"; fail "man $page warns"; }
  says SYNOPSIS "man $page"
done
shardline sweep helix_gb200_1m -o out > "$log/out" 2>&1
says "frontier.png" "sweep with gnuplot"
cmake -S "my example" -B built > "$log/out" 2>&1 && cmake --build built >> "$log/out" 2>&1 || { cat "$log/out"; fail "the example"; }
built/installed /usr/share/shardline || fail "the library at run time"
built/example > "$log/out" 2>&1
says "tokens/s/GPU" "the example at run time"

dpkg -P python3-shardline shardline-dev shardline > "$log/out" 2>&1 || { cat "$log/out"; fail "dpkg -P"; }
! find / -xdev -path /packages -prune -o -path /home -prune -o \
  -path /var/cache/man -prune -o -path /var/lib -prune -o -name '*shardline*' -print | grep . || fail "left behind"
END
# With its own /proc and /dev, in a name space that ends with it.
unshare --mount bash -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && exec chroot "$1" env -i \
  PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash /packages/use.sh' _ "$root" ||
  fail "on a bare Debian 12"
echo "packages installed, used and removed on a bare Debian 12"
