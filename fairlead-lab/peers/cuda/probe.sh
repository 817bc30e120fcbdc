#!/usr/bin/env bash
# Asks a driver what no document says (see probe.c), each fault in a process of its own.
#
#   probe.sh LIBRARY IMAGE    as baseline.sh
#
# Needs gcc (or CC); exits with 69 where there is none. Takes some ten seconds.
set -eu

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
compiler=${CC:-gcc}
command -v "$compiler" > /dev/null || {
  echo "probe.sh: no $compiler" >&2
  exit 69
}
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
"$compiler" -std=c11 -O2 -Wall -Wextra -Werror -o "$built/probe" "$here/probe.c" -ldl
"$built/probe" "$1" "$2" current
for call in stream_query idle_query event_query event_record memory_info stream_synchronize context_synchronize; do
  "$built/probe" "$1" "$2" "$call" 0
done
for call in stream_query idle_query memory_info; do
  "$built/probe" "$1" "$2" "$call" 1000
done
