#!/bin/sh
# Driver of `jobwire conform` for an implementation that has a command line. Fill in `push`; the
# rest is done. Standard output is for answers only; logs go to standard error.

VERSION=0 # of the implementation

# Push one job with your client, to $JOBWIRE_REDIS_URL, and print its jid.
#
# $1 is the request, one line of JSON. Its `job` holds `class`, `args` and options by the names
# that they have in the payload; `at` is the time to run it, in epoch seconds, `in` is seconds from
# now. With jq: printf '%s\n' "$1" | jq -c .job
#
# Any of it may be nonsense, on purpose. Return 0 for a job that exists now, 1 if your client has
# refused it and certainly nothing was written, and 2 if nobody knows.
push() {
  echo 'driver.sh: fill in `push`' >&2
  return 64
}

answer() { printf '{"id":%s,%s}\n' "$id" "$1"; }

while IFS= read -r line; do
  # Every request begins with these two, without spaces: {"id":1,"op":"push",...
  id=${line#'{"id":'} id=${id%%,*}
  op=${line#*'"op":"'} op=${op%%'"'*}
  case $op in
    hello) answer '"ok":{"driver":1,"version":"'"$VERSION"'","ops":["push"]}' ;;
    push)
      jid=$(push "$line")
      case $? in
        0) answer '"ok":{"jid":"'"$jid"'"}' ;;
        1) answer '"error":{"kind":"rejected","message":"the client has refused it"}' ;;
        64) answer '"unsupported":true' ;;
        *) answer '"error":{"kind":"unknown","message":"the client has failed"}' ;;
      esac
      ;;
    bye) answer '"ok":{}'; exit 0 ;;
    *) answer '"unsupported":true' ;;
  esac
done
