#!/bin/sh
# Build the driver and the worker of the Go sample into build. Needs Go, and no modules.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
command -v go >/dev/null || { echo 'go-sample: needs Go (apt-get install golang-go)' >&2; exit 1; }
go build -p 1 -o build/ ./cmd/driver ./cmd/worker
