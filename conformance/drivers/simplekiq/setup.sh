#!/bin/sh
# Install simplekiq into an environment of its own. Needs Python 3.9 or newer with venv.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  needs python3
  python3 -m venv "$1"
  "$1/bin/python3" -m pip install --requirement requirements.txt
}

prepare simplekiq requirements.txt setup.sh
