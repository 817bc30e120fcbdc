#!/usr/bin/env bash
# Builds the peers of "fairlead bench tasks" (Go, libgomp) and prints one table of their figures.
#
#   tasks.sh             the table
#   tasks.sh --json      the lines of JSON that it is made of
#
#   THREADS    the numbers of threads to run (default "1 2")
#
# Needs Debian's golang-go and gcc; scripts/install-peers installs them. A peer whose compiler is
# missing is left out, which is said.
set -eu

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
target=$here/../target/peers
mkdir -p "$target"

case ${1:-} in
  '' | --json) ;;
  *)
    echo "usage: tasks.sh [--json]" >&2
    exit 2
    ;;
esac

peers=()
if command -v go > /dev/null; then
  (cd "$here/tasks" && GO111MODULE=off go build -o "$target/tasks_go" tasks.go)
  peers+=("$target/tasks_go")
else
  echo "tasks.sh: no go; its rows are left out (scripts/install-peers installs it)" >&2
fi
if command -v gcc > /dev/null; then
  gcc -O3 -march=native -fopenmp -o "$target/tasks_omp" "$here/tasks/tasks_omp.c"
  peers+=("$target/tasks_omp")
else
  echo "tasks.sh: no gcc; libgomp's rows are left out (scripts/install-peers installs it)" >&2
fi

lines() {
  for threads in ${THREADS:-1 2}; do
    for peer in "${peers[@]}"; do
      OMP_WAIT_POLICY=active "$peer" "$threads"
    done
  done
}

if [ "${1:-}" = --json ]; then
  lines
else
  printf '%-8s %-16s %-12s %7s %10s  %s\n' peer version row threads value unit
  lines | sed -E 's/[{}"]//g; s/[a-z]+: //g' | while IFS=, read -r peer version id threads value unit; do
    printf '%-8s %-16s %-12s %7s %10s  %s\n' $peer "${version# }" $id $threads $value $unit
  done
fi
