#!/usr/bin/env bash
# Builds the baseline of "fairlead bench comm": what messages cost in C, by MPI alone.
#
#   twin.sh COMPILER FILE    COMPILER is an MPI's, such as mpicc.openmpi; FILE is what it makes. See twin.c.
#
# Exits with 69 where there is no such compiler; scripts/install-peers installs those of Open MPI and MPICH.
set -eu

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
[ $# = 2 ] || {
  echo "usage: twin.sh COMPILER FILE" >&2
  exit 2
}
command -v "$1" > /dev/null || {
  echo "twin.sh: no $1" >&2
  exit 69
}
# GCC takes MPICH's MPI_STATUSES_IGNORE for an array that is too small.
"$1" -std=c11 -O2 -Wall -Wextra -Werror -Wno-stringop-overflow -o "$2" "$here/twin.c"
