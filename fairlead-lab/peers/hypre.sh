#!/usr/bin/env bash
# Builds the hypre peer and runs it on a matrix, on 1 and on 2 ranks; a line of JSON for each run.
#
#   hypre.sh MATRIX.mtx[.gz] [RHS.mtx[.gz]] [name=value ...]     (options: see hypre_pcg.c)
#
#   RANKS    the numbers of ranks to run (default "1 2")
#   RUNS     processes for each (default 5), so that a median can be taken of cold runs
#
# Needs Debian's libhypre-dev, libopenmpi-dev, zlib1g-dev and gcc.
set -eu

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
target=$here/../target/peers

die() {
  echo "hypre.sh: $*" >&2
  exit 2
}

[ $# -ge 1 ] || die "usage: hypre.sh MATRIX.mtx[.gz] [RHS.mtx[.gz]] [name=value ...]"
command -v mpicc > /dev/null || die "no mpicc; install libopenmpi-dev"
[ -e /usr/include/hypre/HYPRE.h ] || die "no hypre; install libhypre-dev"
[ -e /usr/include/zlib.h ] || die "no zlib headers; install zlib1g-dev"

mkdir -p "$target"
if [ "$here/hypre_pcg.c" -nt "$target/hypre_pcg" ]; then
  mpicc -O3 -march=native -I/usr/include/hypre -o "$target/hypre_pcg" "$here/hypre_pcg.c" \
    -lHYPRE -lz -lm >&2
fi

launch="mpirun --oversubscribe --bind-to none"
[ "$(id -u)" != 0 ] || launch="$launch --allow-run-as-root"
for ranks in ${RANKS:-1 2}; do
  for _ in $(seq "${RUNS:-5}"); do
    $launch -n "$ranks" "$target/hypre_pcg" "$@"
  done
done
