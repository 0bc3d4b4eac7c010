#!/bin/sh
# Have redis-cli and jq: those on PATH, or Debian's packages (root).
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  debian_packages redis-cli:redis-tools jq:jq
}

prepare shell setup.sh
