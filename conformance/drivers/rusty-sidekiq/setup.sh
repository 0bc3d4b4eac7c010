#!/bin/sh
# Build the adapter of rusty-sidekiq with the versions in Cargo.lock. Needs cargo 1.80 or newer.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  needs cargo
  CARGO_BUILD_JOBS=1 CARGO_TARGET_DIR=$1/target cargo build --release --locked
  mkdir "$1/bin"
  mv "$1/target/release/adapter" "$1/bin/adapter"
  rm -rf "$1/target"
}

prepare rusty-sidekiq Cargo.toml Cargo.lock src/*.rs
