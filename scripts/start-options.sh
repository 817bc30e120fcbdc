# shellcheck shell=bash
# Sourced by ./fairlead, by its build and by the bundle's launcher, so that they start the command in
# the same way, and a cache of one start fits the others.
#
#   add_start_options FOLDER    adds to the array options what a JVM needs to start the command from
#                               FOLDER/lib
#   start_command JAVA FOLDER ROOT ARGUMENT...
#                               becomes the command, started by JAVA from FOLDER/lib; peers and data
#                               of the benchmarks lie in ROOT
add_start_options() {
  local jars=("$1"/lib/*.jar)
  # Each jar by name: a JVM takes no module graph from its cache where the path names a folder.
  options+=(
    --module-path "$(IFS=:; echo "${jars[*]}")"
    --enable-native-access=io.fairlead.ffi
    # With it tasks run on carriers of ours; see "fairlead doctor".
    --add-opens java.base/java.lang=io.fairlead.task
  )
}

start_command() {
  local java=$1 folder=$2 root=$3
  shift 3
  options=()
  add_start_options "$folder"
  options+=("-Dfairlead.root=$root")
  if [ -r "$folder/fairlead.aot" ]; then
    # Quiet, since a cache that does not fit (another JDK, say, or another collector) is not used.
    options+=("-XX:AOTCache=$folder/fairlead.aot" -Xlog:aot=off -Xlog:cds=off -Xlog:aot+heap=off)
  fi
  case ${1:-}${FAIRLEAD_JAVA_OPTS:-} in
    *-XX:+Use*GC*) ;;
    --version) options+=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC) ;;
    # Runs are short and allocate in bursts: no concurrent collector has to keep up beside them.
    *) options+=(-XX:+UseParallelGC) ;;
  esac
  # shellcheck disable=SC2086 # FAIRLEAD_JAVA_OPTS is meant to be split
  exec "$java" "${options[@]}" ${FAIRLEAD_JAVA_OPTS:-} --module io.fairlead.cli/io.fairlead.cli.Main "$@"
}
