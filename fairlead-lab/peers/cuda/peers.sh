#!/usr/bin/env bash
# Runs another library beside "fairlead bench cuda": what its launches, waits and allocations cost.
#
#   peers.sh NAME LIBRARY IMAGE SCALE    NAME is cupy, torch, lwjgl or jcuda; the rest is as for baseline.sh
#
#   JAVA    the java that runs lwjgl and jcuda (else the one on PATH)
#
# Exits with 69, and says why, where the library is not there. scripts/fetch-jvm-peers brings lwjgl and jcuda.
set -eu

here=$(cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
name=$1 library=$2 image=$3 scale=$4

missing() {
  echo "peers.sh: $*" >&2
  exit 69
}

python() {
  command -v python3 > /dev/null || missing "no python3"
  exec python3 "$here/peers.py" "$name" "$image" "$scale"
}

jvm() {
  local main=$1 folder
  # of this repository, or beside a bundle
  for folder in "$here/../../../target/peers/cuda" "$here/../../../../peers/cuda"; do
    [ -e "$folder/classes/$main.class" ] || continue
    exec "${JAVA:-java}" -cp "$folder/classes:$folder/*" -Djava.library.path="$folder" \
      -Dorg.lwjgl.cuda.libname="$library" --enable-native-access=ALL-UNNAMED \
      --sun-misc-unsafe-memory-access=allow "$main" "$image" "$scale"
  done
  missing "no $name; scripts/fetch-jvm-peers fetches it"
}

case $name in
  cupy | torch) python ;;
  lwjgl) jvm LwjglPeer ;;
  jcuda) jvm JCudaPeer ;;
  *) missing "there is no peer $name" ;;
esac
