#!/bin/sh
# Driver of `jobwire conform` for an implementation with a command line. Fill in `push`; the
# rest is done. Standard output is for answers only; logs go to standard error.

VERSION=0 # of the implementation

# Push one job with your client, to $JOBWIRE_REDIS_URL, and print its jid.
#
# $1 is the request, one line of JSON. Its `job` holds `class`, `args` and options under their names
# in the payload. Beside `job` it may have `at`, the time to run it in epoch seconds, or `in`, seconds
# from now. With jq:
# printf '%s\n' "$1" | jq -c .job
#
# Some requests hold invalid values, on purpose. Return 0 if the job was written, 1 if your client
# refused it and nothing was written, and 2 if your client cannot know. Any other status counts as 2.
push() {
  echo 'driver.sh: fill in `push`' >&2
  return 64
}

answer() { printf '{"id":%s,%s}\n' "$id" "$1"; }

while IFS= read -r line; do
  # Every request begins with id and op, without spaces: {"id":1,"op":"push",...
  id=${line#'{"id":'} id=${id%%,*}
  op=${line#*'"op":"'} op=${op%%'"'*}
  case $op in
    hello) answer '"ok":{"driver":1,"version":"'"$VERSION"'","ops":["push"]}' ;;
    push)
      jid=$(push "$line")
      status=$?
      case $status in
        0) answer '"ok":{"jid":"'"$jid"'"}' ;;
        1) answer '"error":{"kind":"rejected","message":"the client refused the job"}' ;;
        64) answer '"unsupported":true' ;;
        *) answer '"error":{"kind":"unknown","message":"the client failed, status '"$status"'"}' ;;
      esac
      ;;
    bye) answer '"ok":{}'; exit 0 ;;
    *) answer '"unsupported":true' ;;
  esac
done
