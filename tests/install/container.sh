#!/bin/bash
# What a container file can be held to where nothing builds one: its instructions, what it copies, the packages it
# installs, and every command of it and of its comments, run by the program that was built.
# Usage: container.sh SOURCE BUILD
set -euo pipefail
export LC_ALL=C
source=$(realpath "$1") build=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
cd "$source"

# One instruction a line: comments left out, lines that go on joined.
sed -e '/^ *#/d' Containerfile | sed -e ':more' -e '/\\$/N' -e 's/\\\n */ /' -e 't more' | grep . > "$work/instructions"
while read -r word rest; do
  case "$word" in
    FROM)
      [[ $rest =~ ^debian:12( AS [a-z]+)?$ ]] || fail "FROM $rest: expected debian:12"
      [[ $rest != *" AS "* ]] || echo "${rest##* }" >> "$work/stages" ;;
    COPY)
      if [[ $rest == --from=* ]]; then
        stage=${rest%% *} && grep -qx "${stage#--from=}" "$work/stages" || fail "COPY $rest: no such stage before it"
      else
        for file in ${rest% *}; do
          [ -e "$file" ] || fail "COPY $rest: there is no $file"
          ! grep -qx "/$file" .containerignore || fail "COPY $rest: .containerignore leaves it out"
        done
      fi ;;
    RUN) bash -n <<< "$rest" || fail "RUN $rest" ;;
    WORKDIR) [[ $rest == /* ]] || fail "WORKDIR $rest: expected a path from the root" ;;
    ENTRYPOINT | CMD) [[ $rest =~ ^\[\"[^\"]+\"(, \"[^\"]+\")*\]$ ]] || fail "$word $rest: expected a list of words" ;;
    *) fail "unknown instruction $word" ;;
  esac
done < "$work/instructions"
[ "$(tail -n 2 "$work/instructions")" = $'ENTRYPOINT ["shardline"]\nCMD ["--help"]' ] || fail "it does not end as shardline --help"

# Nothing that is built here goes into the image, and nothing of git's.
for folder in build out .git; do grep -qx "/$folder" .containerignore || fail ".containerignore does not name $folder"; done

# The build's commands are those of the presets; its package is one that cpack makes.
grep '^RUN' "$work/instructions" > "$work/runs"
for preset in $(grep -oE -- '--preset [a-z]+' "$work/runs" | cut -d ' ' -f 2 | sort -u); do
  [ "$(grep -c "\"name\": \"$preset\"" CMakePresets.json)" = 2 ] || fail "no presets $preset to configure and to build"
  grep -q "build/$preset/CPackConfig.cmake" "$work/runs" || fail "cpack does not read what $preset makes"
done
grep -q 'build/${presetName}' CMakePresets.json || fail "presets do not build in build/NAME"
grep -qE 'CPACK_DEBIAN_PROGRAM_PACKAGE_NAME "shardline"|CPACK_DEBIAN_PACKAGE_NAME "shardline"' "$build/CPackConfig.cmake" ||
  fail "cpack makes no package shardline"

# Packages: quickstart installs the same beside what Debian's own tools for packages need.
known=$(sed -nE 's/^(build|run|python|test|ci)_packages=\((.*)\)$/\2/p' quickstart)
apt=$(grep -oE 'apt-get install [^&]*' "$work/runs" | tr ' ' '\n' | grep -vE '^(apt-get|install|-.*|/packages/.*|)$')
for package in $apt gzip; do
  [[ " ${known//$'\n'/ } gzip " == *" $package "* ]] || fail "apt-get install $package: quickstart knows no such package"
  if [ -n "$(apt-cache pkgnames bash 2> /dev/null)" ]; then
    [ "$package" = "$(apt-cache pkgnames "$package" | grep -x -- "$package" || true)" ] || fail "Debian has no package $package"
  fi
done
for package in $(sed -nE 's/^run_packages=\((.*)\)$/\1/p' quickstart); do
  grep -qw -- "$package" <<< "$apt" || fail "the image lacks $package, which pictures and the page need"
done

# Commands of the program: in RUN, and behind "shardline" in the comments' lines of podman.
{
  grep -oE '(^|&& )shardline [^&]*' "$work/runs" | sed 's/^&& //'
  grep -oE '(run [^&]* )shardline .*' Containerfile | sed -E 's/^run .* (shardline )/\1/'
} > "$work/commands"
[ "$(wc -l < "$work/commands")" -ge 4 ] || { cat "$work/commands"; fail "commands were not found"; }
mkdir "$work/run"
while IFS= read -r command; do
  (cd "$work/run" && PATH=$build/bin:$PATH && eval "$command") > "$work/out" 2>&1 < /dev/null || { cat "$work/out"; fail "$command"; }
done < "$work/commands"
echo "$(wc -l < "$work/instructions") instructions, $(wc -w <<< "$apt") packages, $(wc -l < "$work/commands") commands"
