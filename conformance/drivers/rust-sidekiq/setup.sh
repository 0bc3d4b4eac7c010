#!/bin/sh
# Build the adapter of the crate sidekiq. Cargo.toml pins the direct dependencies, and cargo chooses
# indirect ones that fit its compiler. Needs cargo, 1.84 or newer.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  needs cargo
  mkdir "$1/bin" "$1/build"
  cp -R Cargo.toml src "$1/build"  # cargo writes Cargo.lock beside Cargo.toml
  CARGO_BUILD_JOBS=1 CARGO_TARGET_DIR=$1/target cargo build --release \
    --manifest-path "$1/build/Cargo.toml"
  mv "$1/target/release/adapter" "$1/bin/adapter"
  rm -rf "$1/target" "$1/build"
}

prepare rust-sidekiq Cargo.toml src/*.rs
