# shellcheck shell=bash
# Sourced by the bundle's gpu-verify and by ./verify --long: runs test suites from a bundle (see
# scripts/bundle), without Maven, each module in a JVM of its own as in the build.
#
#   run_suites JAVA BUNDLE MODULE...
#       fails if a suite of one of the modules (task, say) does; FAIRLEAD_JAVA_OPTS has more options
#       for the JVMs, split at blanks; a collector or AOT cache there takes the place of the build's
#
#   run_gpu_suites JAVA BUNDLE
#       only what needs a GPU: first the suites, then each test that loses a context in a JVM of its
#       own, since a process that lost one may not get another
#
#   run_gpu_suites_checked JAVA BUNDLE [SUITE...]
#       the same under compute-sanitizer's memcheck, without the losses; all of them if none is named.
#       Fails also if it finds an error, or did not sum up
#
# What a bundle has for a module, in test/MODULE: tests.jar, classpath (names of jars in lib and
# test/lib), options, and jdk-carriers (suites that run once more on the JDK's carriers), if any do.

# A module whose JVM hangs is stopped after so long: the build's own limit.
suite_seconds_max=900

run_suites() {
  local java=$1 bundle=$2 module failed=0
  shift 2
  for module in "$@"; do
    if [ ! -e "$bundle/test/$module/tests.jar" ]; then
      echo "run-suites: the bundle has no tests of '$module'; it has: $(tr '\n' ' ' < "$bundle/test/modules")" >&2
      return 2
    fi
    echo "$module:"
    run_module "$java" "$bundle" "$module" --add-opens java.base/java.lang=ALL-UNNAMED || failed=1
    if [ -e "$bundle/test/$module/jdk-carriers" ]; then
      echo "$module, on the JDK's carriers:"
      # shellcheck disable=SC2046 # a word for each suite
      run_module "$java" "$bundle" "$module" -Dfairlead.test.closed=true \
        -- $(cat "$bundle/test/$module/jdk-carriers") || failed=1
    fi
  done
  return "$failed"
}

gpu_suites=('*GpuTest' '*GpuContractTest')

run_gpu_suites() {
  local java=$1 bundle=$2 module test failed=0 suite_seconds_max=150
  for module in ffi cli; do
    [ -e "$bundle/test/$module/tests.jar" ] || continue
    echo "$module, on the GPU:"
    run_module "$java" "$bundle" "$module" --add-opens java.base/java.lang=ALL-UNNAMED \
      -- "${gpu_suites[@]}" || failed=1
  done
  suite_seconds_max=40
  for test in $(run_module "$java" "$bundle" ffi -- --list fault "${gpu_suites[@]}"); do
    echo "$test, with the fault:"
    run_module "$java" "$bundle" ffi --add-opens java.base/java.lang=ALL-UNNAMED \
      -Dfairlead.gpu.faults=true -- "$test" || failed=1
  done
  return "$failed"
}

run_gpu_suites_checked() {
  local java=$1 bundle=$2 module checked failed=0 found=0 suite_seconds_max=900
  shift 2
  command -v compute-sanitizer > /dev/null || {
    echo "run-suites: compute-sanitizer is not on the PATH; CUDA's toolkit has it" >&2
    return 2
  }
  [ $# -gt 0 ] || set -- "${gpu_suites[@]}"
  checked=$(mktemp -d) || return 1
  printf '#!/usr/bin/env bash\nexec compute-sanitizer --tool memcheck --report-api-errors no --log-file %q %q "$@"\n' \
    "$checked/log.%p" "$java" > "$checked/java"
  chmod +x "$checked/java"
  for module in ffi cli; do
    [ -e "$bundle/test/$module/tests.jar" ] || continue
    [ -n "$(run_module "$java" "$bundle" "$module" -- --suites "$@")" ] || continue
    found=1
    echo "$module, on the GPU, under memcheck:"
    run_module "$checked/java" "$bundle" "$module" --add-opens java.base/java.lang=ALL-UNNAMED \
      -Dfairlead.gpu.checked=true -- "$@" || failed=1
  done
  if [ "$found" = 0 ]; then
    rm -rf "$checked"
    echo "run-suites: no suite is called $*; * stands for any letters, '*GpuTest' say" >&2
    return 2
  fi
  # one sum for each JVM; one that was stopped has none
  if ! cat "$checked"/log.* || grep -L 'ERROR SUMMARY: 0 errors' "$checked"/log.* | grep -q .; then failed=1; fi
  rm -rf "$checked"
  return "$failed"
}

# run_module JAVA BUNDLE MODULE OPTION... [-- SUITE...]
run_module() {
  local java=$1 bundle=$2 module=$3 own=() option options=() path jar folder code
  shift 3
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    own+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  for option in $(cat "$bundle/test/$module/options"); do
    case ${FAIRLEAD_JAVA_OPTS:-}/$option in
      *-XX:+Use*GC*/-XX:+Use*GC | *-XX:AOT*/-Xshare:*) ;;
      *) options+=("$option") ;;
    esac
  done
  path=$bundle/test/$module/tests.jar
  while IFS= read -r jar; do path+=:$bundle/$jar; done < "$bundle/test/$module/classpath"
  # Suites may write beside themselves, and a bundle may lie where nobody can write.
  folder=$(mktemp -d) || return 1
  # shellcheck disable=SC2086 # FAIRLEAD_JAVA_OPTS is meant to be split
  (cd "$folder" && limited "$java" "${options[@]}" "${own[@]}" ${FAIRLEAD_JAVA_OPTS:-} \
    "-Dfairlead.root=$bundle" -cp "$path" SuiteRunner "$bundle/test/$module/tests.jar" "$@")
  code=$?
  rm -rf "$folder"
  return "$code"
}

# With where every thread stands (QUIT asks a JVM for it), if it hangs.
limited() {
  if command -v timeout > /dev/null; then
    timeout -s QUIT -k 20 "$suite_seconds_max" "$@"
  else
    "$@"
  fi
}
