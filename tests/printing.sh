#!/bin/bash
# Libraries compute, command lines and reports print: fmt::print, printf, std::cout, std::cerr and puts stand only below a
# folder cli/ or in reports/. Tests and comments do not count.
# Usage: printing.sh ROOT. Checks first, on a made-up tree, that each kind of printing is found.
set -euo pipefail

folders="sim models hardware planner calibrate reports cuda_probe"
# Not sscanf, snprintf or a name that ends in print.
pattern='(^|[^[:alnum:]_])(((fmt|std)::print(ln)?|v?f?printf|f?put(s|char|c)) *\(|std::c(out|err|log)([^[:alnum:]_]|$))'

check() {
  local root=$1 found
  found=$(cd "$root" && find $folders -type f \
            \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 2>/dev/null |
            xargs -0 -r grep -nHE "$pattern" | grep -vE '^reports/|/cli/' | grep -vE '^[^:]+:[0-9]+: *//' || true)
  [ -z "$found" ] && return 0
  echo "$found"
  echo "printing stands in cli/ and reports/ only: compute a struct, and render it there"
  return 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/planner/studies" "$work/planner/cli" "$work/cuda_probe/cli" "$work/reports/cli"
for line in 'fmt::print("{}", a);' '  fmt::print(stderr, "{}", a);' 'printf("%d", a);' 'std::printf("%d", a);' \
            'fprintf(stderr, "a");' 'std::fprintf(stderr, "a");' 'std::cout << a;' 'std::cerr << a;' 'std::puts("a");' \
            'std::fputs("a", stderr);' 'puts("a");' 'std::putchar(a);'; do
  echo "$line" > "$work/planner/studies/a.cpp"
  if check "$work" > /dev/null; then
    echo "self-test: $line was not found"
    exit 1
  fi
done
printf '%s\n' 'std::snprintf(a, 1, "b");' 'std::sscanf(a, "b", &c);' '// printf(a) is for others' 'int b;  // who puts them there' 'blueprint(a);' 'output(a);' > "$work/planner/studies/a.cpp"
for allowed in planner/cli cuda_probe/cli reports reports/cli; do echo 'fmt::print("a");' > "$work/$allowed/a.cpp"; done
check "$work" || { echo "self-test: what is allowed was refused"; exit 1; }

check "$1" && echo "printing stands in cli/ and reports/ only"
