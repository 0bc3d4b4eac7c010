#!/bin/sh
# Provide redis-cli and jq: from PATH, or from Debian's packages (as root).
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  debian_packages redis-cli:redis-tools jq:jq
}

prepare shell setup.sh
