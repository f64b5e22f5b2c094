#!/bin/bash
# Runs one file of tests of the Python module; what they lack here is named.
# Usage: run.sh PYTHON FILE, with PYTHONPATH at the module and SHARDLINE_PROGRAM
set -euo pipefail
export PYTHONDONTWRITEBYTECODE=1
for module in pytest numpy; do
  "$1" -c "import $module" 2> /dev/null || { echo "skipped: no python3-$module here"; exit 77; }
done
exec "$1" -m pytest -q -rs -p no:cacheprovider "$2"
