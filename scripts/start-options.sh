# shellcheck shell=bash
# Sourced by ./fairlead and by its build, so that a cache of one start fits the others.
#
#   add_start_options FOLDER    adds to the array options what a JVM needs to start the command from
#                               FOLDER/lib
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
