#!/bin/bash
# What the README.md files name in backticks is there: files (`folder/name.ext` from the README's folder or one above it,
# `name.ext` of a source anywhere, but what a command writes), and tests (`Suite.Name`, `Suite.Prefix*`). Fenced blocks do not count.
# And every picture of reports/gallery is shown by some page: one that none shows is redrawn by nobody.
# Usage: readme_paths.sh ROOT. Checks first, on a made-up tree, that each kind of dead name is found.
set -euo pipefail
export LC_ALL=C

# README lines as "line:name" of everything in backticks outside of fenced blocks.
named() { awk '/^ *```/ { fenced = !fenced; next } !fenced { n = split($0, part, "`"); for (i = 2; i < n + (n % 2); i += 2) print NR ":" part[i] }' "$1"; }

# What follows answers in variables and asks no other program per name: a process each would take minutes where processes are slow to start.

# {a,b}.cpp -> spelled=(a.cpp b.cpp); nothing else of the text is expanded.
spell_out() {
  spelled=("$1")
  if [[ $1 =~ ^([^{]*)\{([^}]*)\}(.*)$ ]]; then
    local head=${BASH_REMATCH[1]} tail=${BASH_REMATCH[3]}
    IFS=, read -r -a spelled <<< "${BASH_REMATCH[2]}"
    spelled=("${spelled[@]/#/$head}")
    spelled=("${spelled[@]/%/$tail}")
  fi
}

is_file() {  # root, README's folder, path
  local folder=$2
  while true; do
    compgen -G "$1/$folder/$3" > /dev/null && return 0
    case $folder in
      .) return 1 ;;
      */*) folder=${folder%/*} ;;
      *) folder=. ;;
    esac
  done
}

check() {
  local root=$1 tests files bad=0 readme line name one spelled
  files=$(cd "$root" && find . \( -name build -o -name .git \) -prune -o -type f -print)
  tests=$(cd "$root" && find tests -name '*.cpp' -exec cat {} + | tr '\n' ' ' |
          grep -oE '(TEST|TEST_F|TEST_P|TYPED_TEST|INSTANTIATE_TEST_SUITE_P)\( *[A-Za-z0-9]+, *[A-Za-z0-9]+' |
          sed -E 's/^INSTANTIATE_TEST_SUITE_P\( *([A-Za-z0-9]+), *([A-Za-z0-9]+)/\1\/\2./; s/^[A-Z_]+\( *([A-Za-z0-9]+), */\1./')
  tests=$'\n'$tests$'\n' files=$'\n'$files$'\n'
  while IFS= read -r readme; do
    while IFS=: read -r line name; do
      if [[ $name =~ ^[A-Z][A-Za-z0-9]*(/[A-Z][A-Za-z0-9]*)?\.([A-Z][A-Za-z0-9]*\*?|\*)$ ]]; then
        one=${name%\*}
        if [ "$one" = "$name" ]; then
          [[ $tests == *$'\n'"$name"$'\n'* ]] && continue
        else
          [[ $tests == *$'\n'"$one"* ]] && continue
        fi
        echo "$readme:$line: no test $name"
        bad=1
      elif [[ $name =~ ^[A-Za-z0-9_{*-][A-Za-z0-9_.{},*-]*(/[A-Za-z0-9_.{},*-]+)+\.(cpp|hpp|cu|cuh|yaml|txt|sh|md|cmake|json)$ ]]; then
        spell_out "$name"
        for one in "${spelled[@]}"; do
          is_file "$root" "${readme%/*}" "$one" && continue
          echo "$readme:$line: no file $one"
          bad=1
        done
      elif [[ $name =~ ^[a-z][A-Za-z0-9_]*\.(cpp|hpp|cu|cuh)$ ]]; then
        [ "$name" = shardline_thresholds.hpp ] && continue  # shardline thresholds
        [[ $files == *"/$name"$'\n'* ]] && continue
        echo "$readme:$line: no file $name"
        bad=1
      fi
    done < <(named "$root/$readme")
  done < <(cd "$root" && find . \( -name build -o -name .git \) -prune -o -name README.md -print | sort)
  return $bad
}

pictures_shown() {  # root
  local root=$1 bad=0 picture shown
  shown=$(cd "$root" && find . \( -name build -o -name .git \) -prune -o -name '*.md' -exec grep -ohE '\]\([^)]*\.png\)' {} + || true)
  for picture in "$root"/reports/gallery/*.png; do
    [ -e "$picture" ] || continue
    grep -qE "[/(]$(basename "$picture" | sed 's/\./\\./g')\)" <<< "$shown" && continue
    echo "reports/gallery/$(basename "$picture"): no page shows it"
    bad=1
  done
  return $bad
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/planner/layers" "$work/tests"
touch "$work/planner/layers/a.cpp" "$work/planner/layers/b.cpp"
printf 'TEST(Suite,\n     Name) {}\nTEST_P(Every, Case) {}\nINSTANTIATE_TEST_SUITE_P(All, Every, x);\n' > "$work/tests/t.cpp"
for dead in layers/c.cpp 'layers/{a,c}.cpp' planner/a.cpp 'layers/c*.cpp' c.cpp Suite.Other 'Suite.O*' Other.Name 'All/Other.*'; do
  echo "Code: \`layers/a.cpp\`, \`$dead\`." > "$work/planner/README.md"
  if check "$work" > /dev/null; then
    echo "self-test: $dead was not found"
    exit 1
  fi
done
{
  echo 'Code: `layers/{a,b}.cpp`, `planner/layers/a.cpp`, `layers/*.cpp`, `a.cpp`. Tests: `Suite.Name`, `Suite.N*`, `Suite.*`,'
  echo '`All/Every.*`; `a/b`, `my.yaml`, `CMakeLists.txt`.'
  printf '```\n`layers/c.cpp`\n```\n'
} > "$work/planner/README.md"
check "$work" || { echo "self-test: what is there was not found"; exit 1; }

mkdir -p "$work/reports/gallery"
touch "$work/reports/gallery/a.png" "$work/reports/gallery/ba.png"
echo '![b](../reports/gallery/ba.png)' > "$work/planner/guide.md"
[ "$(pictures_shown "$work")" = "reports/gallery/a.png: no page shows it" ] || { echo "self-test: a picture that no page shows was not found"; exit 1; }
echo '![a](../reports/gallery/a.png)' >> "$work/planner/guide.md"
pictures_shown "$work" || { echo "self-test: a picture that is shown was not found"; exit 1; }

pictures_shown "$1"
check "$1" && echo "every file and test that a README.md names is there"
