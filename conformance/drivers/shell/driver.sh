#!/bin/sh
# A client of the protocol in shell, with redis-cli, and its driver for the conformance suite.
# JSON is taken apart and put together by jq.
set -eu

redis() { redis-cli --no-auth-warning -u "$JOBWIRE_REDIS_URL" "$@" 2>&1; }

# Whole milliseconds, or seconds with a fraction. [GEN-1]
now() { if [ "$JOBWIRE_GENERATION" = 8 ]; then date +%s%3N; else date +%s.%6N; fi; }

jid() { od -An -N12 -tx1 /dev/urandom | tr -d ' \n'; }

# Why a job cannot be pushed; nothing for a good one. [PUSH-4] [PAY-3] [SCHED-4]
wrong='
  def whole: type == "number" and . >= 0 and . == floor;
  def member($name; good): has($name) and (.[$name] | good | not);
  def time: type == "number" and . >= 0 and . < 1e11;
  if member("at"; time) then "at is no time"
  elif member("in"; type == "number" and . < 1e11) then "in is no time"
  else .job |
    if (.class | type) != "string" or .class == "" then "class is no text"
    elif (.args | type) != "array" then "args is no array"
    elif ([.args | paths(type == "array" or type == "object") | length] | any(. > 98))
      then "args is too deep"
    elif member("queue"; type == "string" and . != "") then "queue is no text"
    elif member("retry"; . == null or type == "boolean" or whole) then "retry is no number"
    elif member("retry_for"; . == null or (type == "number" and . >= 0 and . <= 1e9))
      then "retry_for is no duration"
    elif member("backtrace"; . == null or type == "boolean" or whole) then "backtrace is no number"
    elif member("tags"; . == null or (type == "array" and all(type == "string")))
      then "tags are no texts"
    elif member("log_level"; . == null or (whole and . <= 5)
      or IN("debug", "info", "warn", "error", "fatal")) then "log_level is none"
    else "" end
  end'

# The payload, its keys in the order of Ruby; `at` goes to the score. [PUSH-3] [SCHED-1]
payload='
  .job as $job | {retry: true, queue: "default"} + ($job | del(.args, .class, .jid, .created_at))
  + {args: $job.args, class: $job.class, jid: ($job.jid // $jid)}
  + {created_at: ($job.created_at // $now)} + if $later then {} else {enqueued_at: $now} end'

answer() { jq -cn --argjson id "$id" "$@"; }

push() {
  why=$(printf '%s' "$1" | jq -r "$wrong")
  # [ENV-8]
  case $(redis INFO cluster) in
    *cluster_enabled:1*) why='a server in cluster mode needs a namespace with a hash tag' ;;
  esac
  if [ -n "$why" ]; then
    answer --arg why "$why" '{$id, error: {kind: "rejected", message: $why}}'
    return
  fi
  # Empty for a push at once: a delay below 10^9 is from now, and one that is over is none. [SCHED-2]
  at=$(printf '%s' "$1" | jq -r 'if has("at") then .at elif has("in") | not then ""
    else (if .in < 1e9 then now + .in else .in end) | if . > now then . else "" end end')
  later=false
  [ -z "$at" ] || later=true
  # As JSON texts of JSON texts, which is also how redis-cli wants words quoted.
  made=$(printf '%s' "$1" | jq -c --arg jid "$(jid)" --argjson now "$(now)" \
    --argjson later $later "$payload | [.jid, .queue, (\"queue:\" + .queue), tojson]")
  word() { printf '%s' "$made" | jq -r ".[$1] | @json"; }
  if $later; then
    said=$(printf 'ZADD schedule %s %s\n' "$at" "$(word 3)" | redis) && expected=1 || expected=?
  else
    said=$(printf 'MULTI\nSADD queues %s\nLPUSH %s %s\nEXEC\n' "$(word 1)" "$(word 2)" "$(word 3)" |
      redis | tr '\n' ' ') && expected='OK QUEUED QUEUED [01] [1-9]*' || expected=?
  fi
  case $said in
    $expected) answer --argjson made "$made" '{$id, ok: {jid: $made[0]}}' ;;
    *) answer --arg said "$said" '{$id, error: {kind: "unknown", message: $said}}' ;;
  esac
}

while IFS= read -r request; do
  id=$(printf '%s' "$request" | jq .id)
  case $(printf '%s' "$request" | jq -r .op) in
    hello) answer '{$id, ok: {driver: 1, version: "1", ops: ["push"]}}' ;;
    push) push "$request" ;;
    bye) answer '{$id, ok: {}}' && break ;;
    *) answer '{$id, unsupported: true}' ;;
  esac
done
