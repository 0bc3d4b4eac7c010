# Sourced by the setup.sh of a peer, in the peer's directory.
#
#   prepare NAME FILE...     makes ${JOBWIRE_CACHE:-/var/cache/jobwire}/peers/NAME: calls the
#                            function build, which fills the empty directory $1
#
# A finished peer is kept until one of the FILEs changes. A failed one leaves only its log.

peers=${JOBWIRE_CACHE:-/var/cache/jobwire}/peers

prepare() {
  name=$1
  shift
  inputs=$(cat "$@" | cksum)
  mkdir -p "$peers"
  exec 9>"$peers/.lock-$name"
  command -v flock >/dev/null && flock 9
  if [ "$(cat "$peers/$name/.made-from" 2>/dev/null)" = "$inputs" ]; then
    echo "$name: ready, cached"
    return
  fi
  rm -rf "$peers/$name"
  mkdir "$peers/$name"
  # Not in a condition, because there set -e would have no effect inside build.
  trap 'tail -n 20 "$peers/$name.log" >&2; rm -rf "$peers/$name"; echo "$name: not set up" >&2' EXIT
  build "$peers/$name" >"$peers/$name.log" 2>&1
  trap - EXIT
  echo "$inputs" >"$peers/$name/.made-from"
  rm "$peers/$name.log"
  echo "$name: set up"
}

needs() {
  for tool; do
    command -v "$tool" >/dev/null || { echo "needs $tool on PATH"; return 1; }
  done
}

# debian_packages PROGRAM:PACKAGE...     installs the packages of the missing programs
debian_packages() {
  missing=
  for pair; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
  done
  [ -n "$missing" ] || return 0
  needs apt-get
  # shellcheck disable=SC2086  # a list of package names
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing ||
    { apt-get update &&
      DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; }
}
