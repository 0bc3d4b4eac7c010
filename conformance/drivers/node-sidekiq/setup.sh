#!/bin/sh
# Install npm's package sidekiq with a compatible client of Redis. Needs Node.js with npm.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  needs node npm
  cp package.json "$1/"
  npm install --prefix "$1" --ignore-scripts --no-audit --no-fund
}

prepare node-sidekiq package.json setup.sh
