#!/usr/bin/env bash
# Builds the baseline of "fairlead bench cuda" and runs it: what launches, waits, calls on current contexts, allocations
# and copies cost in C.
#
#   baseline.sh LIBRARY IMAGE SCALE [PART]    see baseline.c
#
# Needs gcc (or CC); exits with 69 where there is none. No CUDA headers are needed.
set -eu

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
compiler=${CC:-gcc}
command -v "$compiler" > /dev/null || {
  echo "baseline.sh: no $compiler" >&2
  exit 69
}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
"$compiler" -std=c11 -O2 -Wall -Wextra -Werror -o "$built/baseline" "$here/baseline.c" -ldl
"$built/baseline" "$@"
