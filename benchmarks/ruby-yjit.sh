#!/bin/sh
# Build a second chroot with real Sidekiq 8.1, whose Ruby has its JIT compiler: Debian configures
# Ruby with --disable-yjit. This chroot has Debian's source of the same version, built with that one
# switch reversed. `.ci/bench targets` uses it.
#
#   benchmarks/ruby-yjit.sh      makes ${JOBWIRE_CACHE:-/var/cache/jobwire}/sidekiq-yjit/8.1.7
#
# Needs root, and the chroot of 8.1.7 that sidekiq-chroots builds, which stays as it is. Takes ten
# minutes on two cores and 3 GB while it builds; a finished chroot is kept until the other one has
# another version of Ruby or Sidekiq. Exit status: 0 ready, 1 the build failed, 2 this machine
# cannot do it.
set -eu
exec </dev/null
export LC_ALL=C

say() { printf 'ruby-yjit: %s\n' "$*"; }
cannot() { say "$*" >&2; exit 2; }

[ "$(id -u)" = 0 ] || cannot 'needs root'

# The build has its own mount namespace, so every mount ends with the last process of the build.
if [ -z "${JOBWIRE_UNSHARED-}" ]; then
  JOBWIRE_UNSHARED=1 exec unshare --mount "$0" "$@"
fi

cache=${JOBWIRE_CACHE:-/var/cache/jobwire}
stock=$cache/sidekiq/8.1.7 root=$cache/sidekiq-yjit
dir=$root/8.1.7 log=$root/8.1.7.log start=$(date +%s)

# query FORMAT PACKAGE...: facts about the packages of the other chroot
query() { chroot "$stock" dpkg-query -W -f "$@"; }

# inside DIR COMMAND...: without Debian's tests and documents of Ruby, which take longer than the rest
inside() (
  new=$1
  shift
  exec chroot "$new" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    HOME=/root DEBIAN_FRONTEND=noninteractive ${http_proxy:+"http_proxy=$http_proxy"} \
    DEB_BUILD_PROFILES='nocheck nodoc' DEB_BUILD_OPTIONS="nocheck nodoc parallel=$(nproc)" "$@"
)

copy() { cp -a --one-file-system "$stock" "$1" && mount -t proc proc "$1/proc"; }

# compile SOURCE VERSION: build Debian's packages in .build/build. apt checks its downloads by signed
# sums. A build of binary packages needs two archives, but not the .dsc file, which some mirrors
# lack. Joined by && because `set -e` has no effect in a function whose status is tested.
compile() {
  copy "$root/.build" &&
    sed -n 's/^deb /deb-src /p' "$stock/etc/apt/sources.list" \
      >"$root/.build/etc/apt/sources.list.d/source.list" &&
    inside "$root/.build" apt-get update &&
    inside "$root/.build" apt-get install -y --no-install-recommends dpkg-dev rustc &&
    inside "$root/.build" apt-get build-dep -y --no-install-recommends "$1=$2" &&
    inside "$root/.build" sh -euxc '
      mkdir -p /build/source
      cd /build
      apt-get source --tar-only "$1=$2"
      apt-get source --diff-only "$1=$2"
      tar -x --strip-components=1 -C source -f ./*.orig.tar.*
      tar -x -C source -f ./*.debian.tar.*
      cd source
      grep -e --disable-yjit debian/rules
      sed -i s/--disable-yjit/--enable-yjit/ debian/rules
      dpkg-buildpackage --build=any --no-sign' sh "$1" "$2"
}

# Only the library differs. `ruby -v` has +YJIT only if the compiler is there and is on.
assemble() {
  copy "$root/.new" &&
    cp "$root"/.build/build/"$1"_*.deb "$root/.new/tmp/library.deb" &&
    inside "$root/.new" dpkg -i /tmp/library.deb &&
    rm "$root/.new/tmp/library.deb" &&
    inside "$root/.new" env RUBY_YJIT_ENABLE=1 ruby -v | grep -F +YJIT &&
    umount "$root/.new/proc"
}

[ -e "$stock/.complete" ] || cannot "needs $stock: run .ci/sidekiq-chroots"
mkdir -p "$root"
exec 9>"$root/.lock"
flock 9

library=$(query '${Package}\n' 'libruby[0-9]*' | head -n 1)
made_from=$(query '${Package} ${Version}\n' "$library" ruby-sidekiq)
if [ "$(cat "$dir/.made-from" 2>/dev/null)" = "$made_from" ]; then
  say 'ready, cached'
  exit
fi

clean() { rm -rf --one-file-system "$root/.build" "$root/.new"; }
leave() {
  umount "$root/.build/proc" "$root/.new/proc" 2>/dev/null || :
  clean
}
trap leave EXIT
trap 'exit 1' INT TERM HUP
clean

# shellcheck disable=SC2046  # two words
if ! { compile $(query '${source:Package} ${source:Version}' "$library") &&
    assemble "$library"; } >"$log" 2>&1; then
  say "the build failed; the end of $log:" >&2
  tail -n 60 "$log" >&2
  exit 1
fi
echo "$made_from" >"$root/.new/.made-from"
rm -rf --one-file-system "$dir"
mv "$root/.new" "$dir"
rm -f "$log"
say "built from Debian's $library in $(($(date +%s) - start)) s"
