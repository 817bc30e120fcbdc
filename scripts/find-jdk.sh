# shellcheck shell=bash
# Sourced by ./fairlead, ./verify and the other scripts: finds a JDK and a Maven, or says what to do.
#
#   find_jdk      sets JAVA_HOME to a JDK of at least FAIRLEAD_JDK_MIN, or fails with a message
#   find_maven    sets MVN to a Maven of at least 3.8, or fails with a message
#
# Looked at in this order: FAIRLEAD_JAVA_HOME (taken or refused, never passed over), JAVA_HOME,
# the java on PATH, then the usual folders, version FAIRLEAD_JDK_MIN before later ones.
# The version is read from the JDK's "release" file, since starting a JVM only to ask costs more
# than ./fairlead --version may take. Written for bash 3.2, which macOS still has.

FAIRLEAD_JDK_MIN=25

# Sets jdk_version to the feature version of the JDK in $1, or to nothing if it is not a JDK.
read_jdk_version() {
  jdk_version=
  [ -x "$1/bin/java" ] && [ -x "$1/bin/javac" ] || return 1
  local line
  if [ -r "$1/release" ]; then
    while IFS= read -r line; do
      case $line in
        JAVA_VERSION=*)
          jdk_version=${line#JAVA_VERSION=}
          break
          ;;
      esac
    done < "$1/release"
  fi
  [ -n "$jdk_version" ] || jdk_version=$("$1/bin/javac" -version 2>&1) || return 1
  jdk_version=${jdk_version#javac }
  jdk_version=${jdk_version//\"/}
  jdk_version=${jdk_version%%[!0-9]*}
  [ -n "$jdk_version" ]
}

# Succeeds if $1 is a JDK that is new enough; else remembers it for the message.
is_new_jdk() {
  if ! read_jdk_version "$1"; then
    return 1
  fi
  if [ "$jdk_version" -ge "$FAIRLEAD_JDK_MIN" ]; then
    return 0
  fi
  case $jdks_seen in
    *" $1 is "*) ;;
    *)
      jdks_seen="$jdks_seen
    $1 is a JDK $jdk_version"
      ;;
  esac
  return 1
}

# Prints the home of the java on PATH, its links resolved.
java_home_on_path() {
  local file link
  file=$(command -v java) || return 1
  while [ -L "$file" ]; do
    link=$(readlink "$file")
    case $link in
      /*) file=$link ;;
      *) file=${file%/*}/$link ;;
    esac
  done
  file=${file%/bin/java}
  printf '%s\n' "$file"
}

jdk_folders() {
  local folder
  for folder in /usr/lib/jvm/* /usr/lib64/jvm/* /usr/java/* /opt/* /opt/java/* /opt/jdks/* \
    "${HOME:-/nonexistent}"/.sdkman/candidates/java/* "${HOME:-/nonexistent}"/.jdks/* \
    "${HOME:-/nonexistent}"/jdk* /usr/local/openjdk* /usr/local/jdk* \
    /Library/Java/JavaVirtualMachines/*/Contents/Home \
    "${HOME:-/nonexistent}"/Library/Java/JavaVirtualMachines/*/Contents/Home \
    /opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home; do
    [ -x "$folder/bin/javac" ] && printf '%s\n' "$folder"
  done
  if [ -x /usr/libexec/java_home ]; then
    /usr/libexec/java_home -v "$FAIRLEAD_JDK_MIN" 2> /dev/null
  fi
  return 0
}

find_jdk() {
  jdks_seen=
  local folder later=
  if [ -n "${FAIRLEAD_JAVA_HOME:-}" ]; then
    if is_new_jdk "$FAIRLEAD_JAVA_HOME"; then
      export JAVA_HOME=$FAIRLEAD_JAVA_HOME
      return 0
    fi
    echo "fairlead: FAIRLEAD_JAVA_HOME is $FAIRLEAD_JAVA_HOME, which is not a JDK $FAIRLEAD_JDK_MIN or newer (it needs bin/java and bin/javac)${jdks_seen:+:$jdks_seen}" >&2
    echo "  Point it to one, or unset it to have one looked for." >&2
    return 1
  fi
  for folder in "${JAVA_HOME:-}" "$(java_home_on_path)"; do
    if [ -n "$folder" ] && is_new_jdk "$folder"; then
      export JAVA_HOME=$folder
      return 0
    fi
  done
  while IFS= read -r folder; do
    is_new_jdk "$folder" || continue
    if [ "$jdk_version" -eq "$FAIRLEAD_JDK_MIN" ]; then
      export JAVA_HOME=$folder
      return 0
    fi
    [ -n "$later" ] || later=$folder
  done <<< "$(jdk_folders)"
  if [ -n "$later" ]; then
    export JAVA_HOME=$later
    return 0
  fi
  cat >&2 << MESSAGE
fairlead: no JDK $FAIRLEAD_JDK_MIN found, which Fairlead needs to build and to run.
  Looked at JAVA_HOME, the java on PATH, /usr/lib/jvm, /opt, ~/.sdkman, ~/.jdks and their like.${jdks_seen:+
  Found, but too old:$jdks_seen}
  Install a JDK $FAIRLEAD_JDK_MIN (a package such as openjdk-$FAIRLEAD_JDK_MIN-jdk or temurin-$FAIRLEAD_JDK_MIN-jdk; "sdk install java $FAIRLEAD_JDK_MIN-tem"),
  or, if there is one elsewhere: export FAIRLEAD_JAVA_HOME=/path/to/jdk-$FAIRLEAD_JDK_MIN
MESSAGE
  return 1
}

find_maven() {
  MVN=
  if [ -n "${MAVEN_HOME:-}" ] && [ -x "$MAVEN_HOME/bin/mvn" ]; then
    MVN=$MAVEN_HOME/bin/mvn
  else
    MVN=$(command -v mvn) || MVN=
  fi
  if [ -z "$MVN" ]; then
    cat >&2 << 'MESSAGE'
fairlead: no Maven found, which Fairlead needs to build itself (not to run).
  Looked at MAVEN_HOME and PATH. Install Maven 3.8 or newer (a package such as maven; "sdk install maven"),
  or, if there is one elsewhere: export MAVEN_HOME=/path/to/maven
MESSAGE
    return 1
  fi
  local version
  version=$("$MVN" -version 2> /dev/null | sed -n 's/.*Apache Maven \([0-9]*\.[0-9]*\).*/\1/p')
  case $version in
    [4-9].* | 3.[89] | 3.[1-9][0-9]) return 0 ;;
  esac
  echo "fairlead: $MVN is Maven ${version:-of unknown version}; Fairlead builds with 3.8 or newer. Install one, or set MAVEN_HOME." >&2
  return 1
}
