#!/bin/sh
# Push one job with redis-cli:  push.sh CLASS ARGS [QUEUE] [AT]
#
#   push.sh HardJob '[1,"two"]'                      now
#   push.sh HardJob '[1,"two"]' low 1798761600       then, in seconds since 1970
#
# ARGS is one JSON array as compact text (`jq -c` makes it); a shell cannot check its contents.
# REDIS_CLI says how to call redis-cli, options included. Prints the jid. Exit status: 0 written,
# 1 may have been written, 2 not written. [PUSH-8]
set -eu
LC_ALL=C
class=${1-} args=${2-} queue=${3-default} at=${4-}
script="redis.call('SADD', KEYS[1], ARGV[1]) return redis.call('LPUSH', KEYS[2], ARGV[2])"

refuse() { echo "push.sh: not written: $*" >&2; exit 2; }
for name in "$class" "$queue"; do # both go into JSON text unquoted
  case $name in '' | *[!A-Za-z0-9:_.-]*) refuse "cannot use the name '$name'" ;; esac
done
case $args in '['*']') ;; *) refuse 'ARGS is not a JSON array' ;; esac
case $at in *[!0-9]* | ????????????*) refuse 'AT is not in seconds since 1970' ;; esac # [SCHED-4]

jid=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')
now=$(date +%s)000 # milliseconds; date knows whole seconds only
job="{\"retry\":true,\"queue\":\"$queue\",\"args\":$args,\"class\":\"$class\",\"jid\":\"$jid\""
job="$job,\"created_at\":$now"
if [ "$at" ]; then
  set -- ZADD schedule "$at" "$job}"
else # one script, so that both commands happen or none [PUSH-2]
  set -- EVAL "$script" 2 queues "queue:$queue" "$queue" "$job,\"enqueued_at\":$now}"
fi
reply=$(${REDIS_CLI-redis-cli} "$@") || { echo "push.sh: may have been written: $jid" >&2; exit 1; }
case $reply in [1-9]*) echo "$jid" ;; *) refuse "$reply" ;; esac
