#!/bin/sh
# Install Debian's ruby-gitlab-sidekiq-fetcher into an overlay on the chroot of .ci/sidekiq-chroots
# with Sidekiq 6.4.1. The chroot stays unchanged. Run as root on Debian or Ubuntu, after
# .ci/sidekiq-chroots.
set -eu
cd "$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)"
. ../peer.sh

build() {
  needs unshare
  mkdir "$1/layer" "$1/work" "$1/root"
  # shellcheck disable=SC2016
  unshare --mount sh -euc '
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/layer,workdir=$2/work" "$2/root"
    mount -t proc proc "$2/root/proc"
    chroot "$2/root" apt-get update
    DEBIAN_FRONTEND=noninteractive chroot "$2/root" \
      apt-get install -y --no-install-recommends ruby-gitlab-sidekiq-fetcher
    chroot "$2/root" apt-get clean
    rm -rf "$2/root/var/lib/apt/lists"/*
  ' sh "$base" "$1"
}

version=6.4.1
base=${JOBWIRE_CACHE:-/var/cache/jobwire}/sidekiq/$version
[ -e "$base/.complete" ] || { echo "no chroot with Sidekiq $version: run .ci/sidekiq-chroots" >&2; exit 1; }
prepare "gitlab-fetcher-$version" setup.sh "$base/.complete"
