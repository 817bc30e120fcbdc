#!/usr/bin/env bash
# Builds HPGMG-FV, whose speed-up stands beside ours in "fairlead bench comm".
#
#   HPGMG=FOLDER hpgmg.sh COMPILER FILE    FOLDER is a clone of hpgmg/hpgmg on GitHub; COMPILER is an MPI's, such as
#                                          mpicc.openmpi; FILE is what it makes
#
# Nothing is fetched. The sources are built as they are, finite volumes of second order, V-cycles, Gauss-Seidel in two
# colours, BiCGStab at the bottom, but for one thing: each size is run for at least a second, not for a minute. Run it
# as "FILE 5 8" on one rank and "FILE 5 4" on two: 64 x 64 x 64 cells.
#
# Exits with 69 where there is no compiler or no HPGMG.
set -eu

[ $# = 2 ] || {
  echo "usage: HPGMG=FOLDER hpgmg.sh COMPILER FILE" >&2
  exit 2
}
missing() {
  echo "hpgmg.sh: $*" >&2
  exit 69
}
command -v "$1" > /dev/null || missing "no $1"
source=${HPGMG:-}/finite-volume/source
[ -n "${HPGMG:-}" ] && [ -e "$source/hpgmg-fv.c" ] || missing "HPGMG names no clone of hpgmg/hpgmg"

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
cp -r "$source/." "$built"
cd "$built"
sed -i 's/minTime *= [0-9.]*/minTime = 1.0/' hpgmg-fv.c
grep -q 'minTime = 1.0' hpgmg-fv.c || missing "these sources say otherwise how long they run"
"$1" -O3 -march=native -DUSE_MPI -DUSE_GSRB -DUSE_BICGSTAB \
  level.c operators.fv2.c mg.c solvers.c hpgmg-fv.c timers.c -lm -o "$2"
