#!/usr/bin/env bash
# Asks when a driver's pool puts together what was freed (see freed.c), each way with three seeds.
#
#   freed.sh LIBRARY    libcuda.so.1, or a path
#
# Needs gcc (or CC); exits with 69 where there is none. The GPU is to be used by nobody else; half a
# minute on one of 140 GiB.
set -eu

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
compiler=${CC:-gcc}
command -v "$compiler" > /dev/null || {
  echo "freed.sh: no $compiler" >&2
  exit 69
}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
"$compiler" -std=gnu11 -O2 -Wall -Wextra -Werror -o "$built/freed" "$here/freed.c" -ldl -lm
for keeps in 1 0; do
  for way in synchronize query ticket trim event event16 idle late; do
    for seed in 2 3 4; do
      "$built/freed" "$1" "$way" "$keeps" "$seed"
    done
  done
done
