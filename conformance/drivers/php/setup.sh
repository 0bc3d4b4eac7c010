#!/bin/sh
# Provide PHP: from PATH, or from Debian's package (as root).
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  debian_packages php:php-cli
}

prepare php setup.sh
