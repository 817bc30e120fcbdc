# shellcheck shell=bash
# shellcheck disable=SC2154 # root and dist are the sourcing script's
# Sourced by ./fairlead when there is something to build; needs root, dist, is_current, JAVA_HOME and
# add_start_options.
#
#   build_dist    builds target/dists/N and points target/dist to it; at most one process at a time;
#                 fails with 130 if it was interrupted
#
# The lock: flock on target/build.lock where there is a flock (the kernel lets go when its holder
# dies); else a folder target/build.lock.d that only one process can make, with its maker's host and
# process id inside, so that a lock whose maker died on this host is taken away.

say() { echo "fairlead: $*" >&2; }

build_dist() {
  if ! mkdir -p "$root/target" 2> /dev/null || [ ! -w "$root/target" ]; then
    say "cannot write to the folder $root/target, which is where it builds itself"
    say "  Make it writable, or clone into a folder of yours."
    return 1
  fi
  if [ "${FAIRLEAD_LOCK:-}" != mkdir ] && command -v flock > /dev/null 2>&1; then
    (
      trap 'interrupted' INT
      flock -n 9 || {
        say "another process is building; waiting for it"
        flock 9
      }
      # Whoever held the lock may have built what this process was about to build.
      is_current || build_locked
    ) 9> "$root/target/build.lock"
  else
    (
      take_folder_lock || exit 1
      trap 'rm -rf "$root/target/build.lock.d"' EXIT
      trap 'interrupted' INT
      trap 'exit 143' TERM HUP
      is_current || build_locked
    )
  fi
}

interrupted() {
  say "interrupted"
  exit 130
}

# A maker needs this long, at most, from making the folder to signing it.
unsigned_lock_seconds_max=10
# A build that takes longer than this on a slow network is better looked at by a person.
folder_lock_wait_seconds_max=1800

take_folder_lock() {
  local lock=$root/target/build.lock.d waited=0 unsigned=0
  until mkdir "$lock" 2> /dev/null; do
    [ "$waited" -ne 0 ] || say "another process is building; waiting for it"
    waited=$((waited + 1))
    if [ -e "$lock/owner" ]; then unsigned=0; else unsigned=$((unsigned + 1)); fi
    if is_stale "$lock" || [ "$unsigned" -gt "$unsigned_lock_seconds_max" ]; then
      drop_stale "$lock"
      unsigned=0
    fi
    if [ "$waited" -gt "$folder_lock_wait_seconds_max" ]; then
      say "gave up waiting for $lock ($(cat "$lock/owner" 2> /dev/null)); if no build runs, remove that folder"
      return 1
    fi
    sleep 1
  done
  echo "$(uname -n) $$" > "$lock/owner"
}

# Only a maker on this host can be asked whether it lives.
is_stale() {
  local host pid
  read -r host pid 2> /dev/null < "$1/owner" || return 1
  [ "$host" = "$(uname -n)" ] && ! kill -0 "$pid" 2> /dev/null
}

# Under a second lock: of two that saw the same dead owner, the slower one must not take away the
# lock that the faster one has made since.
drop_stale() {
  mkdir "$1.drop" 2> /dev/null || return 0
  if is_stale "$1" || [ ! -e "$1/owner" ]; then
    say "taking over the lock of a build that died"
    rm -rf "$1"
  fi
  rmdir "$1.drop"
}

build_locked() {
  find_maven || return 1
  local log=$root/target/build.log number next
  number=$(($(newest_dist) + 1))
  next=$root/target/dists/$number.part
  rm -rf "$next"
  mkdir -p "$next/lib"
  # As old as the start: a source edited during the build is newer, and will be built.
  touch "$next/stamp"
  say "building with $JAVA_HOME (first use or changed sources; log: $log)"
  rm -rf "$root/fairlead-cli/target/fast/dist"
  # shellcheck disable=SC2086 # FAIRLEAD_MAVEN_OPTS is meant to be split
  if ! (cd "$root" && "$MVN" -B -Dfast -Dstyle.color=never ${FAIRLEAD_MAVEN_OPTS:-} \
    -pl fairlead-cli -am package < /dev/null 2>&1 9>&-) | tee "$log" | show_progress; then
    say "the build failed:"
    sed -n -e '/-> \[Help/q' -e '/^\[ERROR\]/p' "$log" | head -n 20 >&2
    say "all of it: $log"
    return 1
  fi
  cp "$root"/fairlead-cli/target/fast/dist/lib/*.jar "$next/lib/" || return 1
  cp "$root"/fairlead-cli/target/fast/fairlead-cli-*.jar "$next/lib/" || return 1
  mv "$next" "$root/target/dists/$number" || return 1
  # Only now, since a cache is used only with jars that lie where it saw them.
  train "$root/target/dists/$number"
  rm -f "$root/target/dist.part"
  ln -s "dists/$number" "$root/target/dist.part" || return 1
  # -T / -h: replace the link itself, not put the new one inside the folder behind it.
  mv -T "$root/target/dist.part" "$dist" 2> /dev/null || mv -h "$root/target/dist.part" "$dist" || return 1
  drop_old_dists "$number"
  say "built"
}

# One line for each module, to standard error. Fails if Maven did not end with success.
show_progress() {
  local line ok=1
  while IFS= read -r line; do
    case $line in
      "[INFO] Building "*"["*"/"*"]") say "  ${line#\[INFO\] Building }" ;;
      "[INFO] BUILD SUCCESS"*) ok=0 ;;
      *"Downloading from"*) [ -n "${downloading:-}" ] || say "  fetching what is not in the local repository" && downloading=1 ;;
    esac
  done
  return "$ok"
}

# Solves something and keeps the classes that it loaded and what the compiler learnt: less time goes
# into every start, and into every first setup and solve. Without it everything works, only slower.
train() {
  local options=()
  add_start_options "$1"
  "$JAVA_HOME/bin/java" -XX:AOTCacheOutput="$1/fairlead.aot" -XX:+UseParallelGC "${options[@]}" \
    --module io.fairlead.cli/io.fairlead.cli.Main solve --poisson 48 --ranks 2 --jobs 8 \
    --device host > "$root/target/training.log" 2>&1 || rm -f "$1/fairlead.aot"
}

newest_dist() {
  local folder newest=0
  for folder in "$root"/target/dists/*; do
    case ${folder##*/} in
      *[!0-9]*) continue ;;
    esac
    if [ "${folder##*/}" -gt "$newest" ]; then newest=${folder##*/}; fi
  done
  echo "$newest"
}

drop_old_dists() {
  local folder
  for folder in "$root"/target/dists/*; do
    case ${folder##*/} in
      *[!0-9]*) continue ;;
    esac
    if [ "${folder##*/}" -le $(($1 - 3)) ]; then rm -rf "$folder"; fi
  done
}
