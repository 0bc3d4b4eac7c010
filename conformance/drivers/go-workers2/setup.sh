#!/bin/sh
# Build the adapter of go-workers2, whose version is in go.mod and go.sum. Needs Go 1.20 or newer.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  needs go
  go build -p 1 -mod=readonly -o "$1/bin/adapter" .
}

prepare go-workers2 go.mod go.sum *.go
