#!/bin/sh
# Have PHP: the one on PATH, or Debian's package (root).
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  debian_packages php:php-cli
}

prepare php setup.sh
