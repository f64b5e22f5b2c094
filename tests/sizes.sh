#!/bin/bash
# No function above 60 lines, from the line of its signature to its closing brace, and no source file above 400: what is
# longer does not fit a screen and hides steps that deserve a name. Functions are those of a namespace, members defined in
# their class, and bodies of TEST; a lambda counts as part of its function.
# clang-format makes indentation tell: a function ends in a lone brace below the first column of its signature, a class or
# an array in "};", a namespace in a brace with a comment.
# Usage: sizes.sh ROOT. Checks first, on a made-up tree, that each kind of length is found, and nothing else.
set -euo pipefail

sources() {  # what git tracks; in a tree without git all that is not built
  local tracked
  cd "$1"
  tracked=$(git ls-files '*.cpp' '*.hpp' '*.cu' '*.cuh' 2>/dev/null) || tracked=
  if [ -n "$tracked" ]; then
    while IFS= read -r file; do [ ! -f "$file" ] || echo "$file"; done <<< "$tracked"
  else
    find . -path ./build -prune -o -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) -print |
      sed 's|^\./||' | sort
  fi
}

check() {
  local files
  files=$(sources "$1")
  [ -n "$files" ] || { echo "$1: no sources"; return 1; }
  (cd "$1" && tr '\n' '\0' <<< "$files" | xargs -0 awk '
    function whole_file() {
      if (lines > 400) { printf "%s: %d lines (at most 400)\n", file, lines; bad = 1 }
    }
    function is_class(head) { return head ~ /^ *((const|constexpr|static|inline|typedef) )*(class|struct|union)( |$)/ }
    function in_class_only(column,  outer) {
      for (outer = column - 2; outer >= 0; outer -= 2) if (!is_class(head[outer])) return 0
      return 1
    }
    function is_function(column) {
      if (!(column in head) || is_class(head[column])) return 0
      return head[column] !~ /^ *((inline )?namespace|enum|extern "C")( |$)/ && in_class_only(column)
    }
    FNR == 1 {
      whole_file()
      file = FILENAME; lines = 0; raw = ""; macro = 0; comment = 0
      for (column in head) delete head[column]
    }
    { ++lines }
    raw != "" {  # of another language, in its own columns
      if (!(at = index($0, raw))) next
      $0 = "        " substr($0, at + length(raw)); raw = ""
    }
    {
      code = $0
      while (match(code, /(^|[^A-Za-z0-9_])R"[A-Za-z_]*\(/)) {
        mark = substr(code, RSTART, RLENGTH); sub(/^.*R"/, "", mark); sub(/\($/, "", mark)
        code = substr(code, RSTART + RLENGTH)
        if (at = index(code, ")" mark "\"")) code = substr(code, at + length(mark) + 2)
        else { raw = ")" mark "\""; break }
      }
    }
    comment { if (/\*\//) comment = 0; next }
    /^ *\/\*/ { if (!/\*\//) comment = 1; next }
    macro || /^ *#/ { macro = /\\$/; next }
    /^ *$/ || /^ *\/\// { next }
    {
      match($0, /^ */); column = RLENGTH
      if (column % 2) next  # public:
      if (/^ *}$/ || (/^ *};$/ && head[column] ~ /= \[.*[{(]$/)) {
        length_of = FNR - start[column] + 1
        if (is_function(column) && length_of > 60) {
          printf "%s:%d: function of %d lines (at most 60)\n", file, start[column], length_of; bad = 1
        }
        delete head[column]
      } else if (!/^ *}/) { head[column] = $0; start[column] = FNR }
    }
    END { whole_file(); exit bad }')
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
statements() {  # COUNT COLUMN
  local i
  for ((i = 0; i < $1; ++i)); do printf '%*sa = b;\n' "$2" ''; done
}
tree() {  # of one file, from standard input
  rm -rf "${work:?}"/*
  mkdir -p "$work/sim/base" "$work/build"
  statements 500 0 > "$work/build/made.cpp"
  cat > "$work/sim/base/a.$1"
}
refuse() {  # KIND MESSAGE ENDING
  tree "$3"
  local found
  if found=$(check "$work"); then
    echo "self-test: $1 was not found"
    exit 1
  fi
  [ "$found" = "sim/base/a.$3$2" ] || { echo "self-test: $1: found $found"; exit 1; }
}
accept() {  # KIND
  tree cpp
  check "$work" || { echo "self-test: $1 was refused"; exit 1; }
}
long=': function of 61 lines (at most 60)'

refuse "a long function" ":2$long" cpp < <(echo "namespace {"; echo "int f(int a) {"; statements 59 2; echo "}"; echo "}  // namespace")
refuse "a long signature" ":2$long" hpp < <(echo "template <int N>"; echo "int f("; echo "    int a) {"; statements 58 2; echo "}")
refuse "a function round a lambda" ":1$long" cpp < <(echo "int f() {"; echo "  const auto g = [] {"; statements 57 4; echo "  };"; echo "}")
refuse "a named lambda" ":1$long" cpp < <(echo "const auto g = [](int a) {"; statements 59 2; echo "};")
refuse "a function round text" ":1$long" cpp < <(echo "int f() {"; echo '  return R"js('; statements 56 0; echo "}"; echo ')js";'; echo "}")
refuse "a function round a macro" ":1$long" cpp < <(echo "int f() {"; echo '#define A \'; echo "a"; statements 57 2; echo "}")
refuse "a kernel" ":2$long" cuh < <(echo "template <int N>"; echo "__global__ void __launch_bounds__(N)"; echo "    f(int a) {"; statements 58 2; echo "}")
refuse "a long member" ":3$long" hpp < <(echo "class A : B {"; echo " public:"; echo "  int f() const {"; statements 59 4; echo "  }"; echo "};")
refuse "a long constructor" ":2$long" hpp < <(echo "struct A {"; echo "  A(int a)"; echo "      : a(a) {"; statements 58 4; echo "  }"; echo "};")
refuse "a long member of a nested class" ":3$long" hpp < <(echo "struct A {"; echo "  struct B {"; echo "    int f() {"; statements 59 6; echo "    }"; echo "  };"; echo "};")
refuse "a long TEST" ":1$long" cpp < <(echo "TEST(A, B) {"; statements 59 2; echo "}")
refuse "a long file" ": 401 lines (at most 400)" cu < <(statements 401 0)

accept "a function of 60 lines" < <(echo "int f() {"; statements 58 2; echo "}")
accept "two functions of a long namespace" < <(echo "namespace a {"; for i in 1 2; do echo "int f() {"; statements 40 2; echo "}"; done; echo "}  // namespace a")
accept "a long class of short members" < <(echo "class A {"; for i in 1 2 3 4; do echo "  int f() {"; statements 20 4; echo "  }"; done; echo "};")
accept "a long array" < <(echo "constexpr int a[] = {"; statements 80 4; echo "};")
accept "a long enum" < <(echo "enum class A {"; statements 80 2; echo "};")
accept "a long extern C" < <(echo 'extern "C" {'; statements 80 0; echo "}")
accept "functions of another language" < <(echo 'constexpr char a[] = R"js('; echo "function f() {"; statements 80 2; echo "}"; echo ')js";')
accept "a file of 400 lines" < <(statements 400 0)

check "$1" && echo "no function above 60 lines, no file above 400"
