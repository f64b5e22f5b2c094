#!/bin/bash
# The Python module of a prefix: it is found, loads the library there, reads the data there, and answers.
# Usage: python.sh PREFIX DATA
set -euo pipefail
unset SHARDLINE_DATA LD_LIBRARY_PATH
cd /  # not beside a package of that name
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$1/lib/python3/dist-packages /usr/bin/python3 - "$1" "$2" <<'END'
import sys
import shardline

prefix, data = sys.argv[1:]
assert shardline.__file__.startswith(prefix), shardline.__file__
with open("/proc/self/maps") as maps:
    library = {line.split()[-1] for line in maps if "libshardline.so" in line}
assert library and all(path.startswith(prefix) for path in library), library
assert shardline.data_folder() == data, shardline.data_folder()
answer = shardline.plan("llama-3.1-8b", system="h100-hgx", gpus=1, input="8K", output=256)
assert answer.check().plans[0].point.tpot_s.value > 0
END
echo "the Python module of $1 answers"
