#!/usr/bin/env bash
# Builds the baseline of "fairlead bench memory" and "fairlead bench spill" and runs it: what allocations and pinned
# copies cost in C.
#
#   memory.sh LIBRARY ANYTHING SCALE    see memory.c
#
# Needs gcc (or CC); exits with 69 where there is none. No CUDA headers are needed.
set -eu

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
compiler=${CC:-gcc}
command -v "$compiler" > /dev/null || {
  echo "memory.sh: no $compiler" >&2
  exit 69
}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
"$compiler" -std=c11 -O2 -Wall -Wextra -Werror -o "$built/memory" "$here/memory.c" -ldl -pthread
"$built/memory" "$@"
