#!/bin/bash
# Every option and argument that --help names stands in the manual page and is completed by bash, zsh and fish; the pages
# have no fault that man or mandoc knows. What is not installed here is named and left out.
# Usage: manuals.sh BINARY
set -euo pipefail
export LC_ALL=C
binary=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "FAILED: $*"; exit 1; }
has() { command -v "$1" > /dev/null; }
for tool in man mandoc zsh fish; do has "$tool" || echo "left out: no $tool here"; done

commands=$("$binary" --help | sed -n '/^Subcommands:/,/^$/p' | awk '/^  [a-z]/ {print $1}')
[ "$(wc -w <<< "$commands")" -ge 11 ] || fail "--help names few commands: $commands"
for shell in bash zsh fish; do "$binary" --completion $shell > $shell; done
! "$binary" --completion tcsh > out 2> err || fail "--completion tcsh ended well"
grep -q 'expected one of: bash, zsh, fish' err || { cat err; fail "--completion tcsh"; }
! "$binary" --man-page sweeep > out 2> err || fail "--man-page sweeep ended well"
grep -q 'did you mean sweep?' err || { cat err; fail "--man-page sweeep"; }

# Each prints one completion per line of "shardline WORDS...", whose last word is completed.
of_bash() { bash -c 'source ./bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shardline; printf "%s\n" "${COMPREPLY[@]}"' - shardline "$@"; }
of_fish() { HOME=$work fish --no-config -c 'source ./fish; complete -C "$argv"' "shardline $*" | cut -f 1; }
# The words that _arguments is given: option descriptions, after zsh has read the script.
of_zsh() {
  zsh -f -c 'compdef() { }; _arguments() { print -rl -- "$@" }; source ./zsh; words=("$@"); CURRENT=$#; _shardline' - shardline "$@" |
    sed -nE 's/^(\([^)]*\))?(--?[a-z-]+)\[.*/\2/p'
}

complete_all() {  # SHELL COMMAND OPTION...
  local shell=$1 command=$2 option
  shift 2
  "of_$shell" $command -- > found
  "of_$shell" $command - >> found  # short ones, too
  for option in "$@"; do
    grep -qxe "$option" found || { cat found; fail "$shell does not complete $command $option"; }
  done
}

check() {  # COMMAND, or nothing for the program
  local options positional one shell page=page.1
  "$binary" $1 --help > help
  options=$(sed -n '/^Options:/,/^$/p' help | awk '/^  -/ {print $1}' | tr ',' ' ')
  positional=$(sed -n '/^Positionals:/,/^$/p' help | awk '/^  [a-z]/ {print $1}')
  [ -n "$options" ] || fail "no options in the help of $1"
  "$binary" --man-page ${1:-shardline} > $page
  # Without roff's marks.
  sed -E 's/\\f[BIR]//g; s/\\-/-/g; s/\\&//g' $page > text
  for one in $options; do
    grep -qE "^(.*, )?$one( |,|$)" text || fail "the page of $1 has no $one"
  done
  for one in $positional; do grep -qE "^$one( \.\.\.)?$" text || fail "the page of $1 has no $one"; done
  if has man; then
    man --warnings -E UTF-8 -l -Tutf8 -Z $page 2> warnings > /dev/null || true
    [ ! -s warnings ] || { cat warnings; fail "man warns of the page of $1"; }
  fi
  if has mandoc; then mandoc -Tlint -W warning $page > lint || { cat lint; fail "mandoc warns of the page of $1"; }; fi
  for shell in bash zsh fish; do
    if has $shell; then complete_all $shell "${1:-}" $options; fi
  done
}

check ""
for command in $commands; do check "$command"; done

offers() {  # SHELL WORDS... EXPECTED
  local shell=$1 expected=${*: -1}
  "of_$shell" "${@:2:$#-2}" > found
  grep -qxe "$expected" found || { cat found; fail "$shell: ${*:2:$#-2} does not offer $expected"; }
}
for shell in bash fish; do
  has $shell || continue
  offers $shell "" sweep
  offers $shell swe sweep
  offers $shell sweep helix helix_gb200_1m
  offers $shell sweep --costs cal calibrated
  offers $shell sweep --engine v vllm
  offers $shell calibrate --system gb2 gb200-nvl72
  offers $shell list mo models
  offers $shell simulate x --model llama-3.1-4 llama-3.1-405b
  mkdir -p "a folder"; touch "a file.yaml"
  offers $shell sweep -o "a" "a folder$([ $shell = fish ] && echo / || true)"
  offers $shell sweep "a" "a file.yaml"
  offers $shell plan llama-3.1-7 llama-3.1-70b
  offers $shell explain llama-3.1-7 llama-3.1-70b
  offers $shell explain helix helix_gb200_1m
  offers $shell plan "a" "a file.yaml"
  mkdir -p folder; touch folder/own.yaml
  for command in plan explain compare serve evaluate calibrate; do
    offers $shell $command --system ./fo ./folder$([ $shell = fish ] && echo / || true)
    offers $shell $command --system folder/o folder/own.yaml
    offers $shell $command --system gb2 gb200-nvl72
  done
  # A version behind the name of an engine would be a word of its own.
  for command in plan sweep calibrate; do
    of_$shell $command --engine "" > found
    for engine in vllm sglang trtllm; do grep -qx $engine found || fail "$shell: no $engine of $command"; done
    ! grep -q '[0-9]\.[0-9]' found || { cat found; fail "$shell offers versions of engines as words"; }
  done
  of_$shell sweep -o "a" > found
  ! grep -q yaml found || fail "$shell offers files where folders are taken"
done
echo "every option of every command has its line in the manual and is completed"
