#!/bin/sh
# Build the adapter of go-workers2. go.mod pins all versions, and Go compares the modules with the
# public checksum database. Needs Go 1.20 or newer.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  needs go
  mkdir "$1/build"
  cp go.mod ./*.go "$1/build"
  (cd "$1/build" && go build -p 1 -mod=mod -o "$1/bin/adapter" .)
  rm -rf "$1/build"
}

prepare go-workers2 go.mod *.go
