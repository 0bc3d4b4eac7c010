#!/bin/sh
# A client of the protocol in shell, with redis-cli, and its driver for the conformance suite.
# jq reads and writes the JSON.
set -eu

redis() { redis-cli --no-auth-warning -u "$JOBWIRE_REDIS_URL" "$@" 2>&1; }

# Whole milliseconds, or seconds with a fraction. [GEN-1]
now() { if [ "$JOBWIRE_GENERATION" = 8 ]; then date +%s%3N; else date +%s.%6N; fi; }

jid() { od -An -N12 -tx1 /dev/urandom | tr -d ' \n'; }

# The reason why a job is refused; empty for a valid job. [PUSH-4] [PAY-3] [PAY-4] [SCHED-4]
wrong='
  def whole: type == "number" and . >= 0 and . == floor;
  def member($name; good): has($name) and (.[$name] | good | not);
  def time: type == "number" and . >= 0 and . < 1e11;
  if member("at"; time) then "at must be a time"
  elif member("in"; type == "number" and . < 1e11) then "in must be a time"
  else .job |
    if (.class | type) != "string" or .class == "" then "class must be a text"
    elif (.args | type) != "array" then "args must be an array"
    elif ([.. | numbers | isinfinite] | any) then "a number is infinite"
    elif ([paths(type == "array" or type == "object") | length] | any(. > 99))
      then "the job is too deep"
    elif member("jid"; . == null or type == "string") then "jid must be a text"
    elif member("queue"; type == "string" and . != "") then "queue must be a text"
    elif member("retry"; . == null or type == "boolean" or whole) then "retry must be a number or a boolean"
    elif member("retry_for"; . == null or (type == "number" and . >= 0 and . <= 1e9))
      then "retry_for must be a duration"
    elif member("backtrace"; . == null or type == "boolean" or whole)
      then "backtrace must be a number or a boolean"
    elif member("tags"; . == null or (type == "array" and all(type == "string")))
      then "tags must be texts"
    elif member("log_level"; . == null or (whole and . <= 5)
      or IN("debug", "info", "warn", "error", "fatal")) then "log_level must be a level"
    else "" end
  end'

# The payload, with its keys in the order of Ruby. `at` becomes the score. [PUSH-3] [SCHED-1] [PAY-0]
payload='
  .job as $job | {retry: true, queue: "default"} + ($job | del(.args, .class, .jid, .created_at))
  + if $job.retry_for then {retry_for: $retry_for} else {} end
  + {args: $job.args, class: $job.class, jid: (if ($job.jid // "") == "" then $jid else $job.jid end)}
  + {created_at: ($job.created_at // $now)} + if $later then {} else {enqueued_at: $now} end'

# jq before 1.7 reads every number as a double. So a number passes as a text with a mark. [PAY-5]
marked='gsub("(?<text>\"(?:[^\"\\\\]|\\\\.)*\")|(?<number>-?[0-9][0-9.eE+-]*)";
  .text // "\"" + $mark + .number + "\"") | fromjson'
unmarked='gsub("\"" + $mark + "(?<number>[^\"]*)\""; .number)'

# jq escapes U+007F, and redis-cli knows neither \f nor \u in a word. [PAY-21]
plain='gsub("\\\\(?:(?<delete>u007f)|(?<other>.))"; if .delete then "\u007f" else "\\" + .other end)'
quoted='@json | gsub("\\\\(?:u00(?<hex>..)|(?<feed>f)|(?<other>.))";
  "\\" + if .hex then "x" + .hex elif .feed then "x0c" else .other end)'

answer() { jq -cn --argjson id "$id" "$@"; }

push() {
  # jq fails for text that is not JSON, such as half a surrogate pair. [PAY-22]
  reason=$(printf '%s' "$1" | jq -r "$wrong" 2>&1) || reason=${reason:-not JSON}
  # [ENV-8]
  case $(redis INFO cluster) in
    *cluster_enabled:1*) reason='a server in cluster mode needs a namespace with a hash tag' ;;
  esac
  if [ -n "$reason" ]; then
    answer --arg reason "$reason" '{$id, error: {kind: "rejected", message: $reason}}'
    return
  fi
  # Empty for a push at once. A value below 10^9 is a delay, and a past time means at once. [SCHED-2]
  at=$(printf '%s' "$1" | jq -r 'if has("at") then .at elif has("in") | not then ""
    else (if .in < 1e9 then now + .in else .in end) | if . > now then . else "" end end')
  later=false
  [ -z "$at" ] || later=true
  made=$(printf '%s' "$1" | jq -cR --arg mark "$(jid)" --arg jid "$(jid)" \
    --argjson retry_for "$(printf '%s' "$1" | jq '.job.retry_for // 0 | floor')" \
    --argjson now "$(now)" --argjson later $later \
    "$marked | $payload | [.jid, .queue, (\"queue:\" + .queue), (tojson | $unmarked | $plain)]")
  word() { printf '%s' "$made" | jq -r ".[$1] | $quoted"; }
  if $later; then
    reply=$(printf 'ZADD schedule %s %s\n' "$at" "$(word 3)" | redis) && expected=1 || expected=?
  else
    reply=$(printf 'MULTI\nSADD queues %s\nLPUSH %s %s\nEXEC\n' "$(word 1)" "$(word 2)" "$(word 3)" |
      redis | tr '\n' ' ') && expected='OK QUEUED QUEUED [01] [1-9]*' || expected=?
  fi
  case $reply in
    $expected) answer --argjson made "$made" '{$id, ok: {jid: $made[0]}}' ;;
    *) answer --arg reply "$reply" '{$id, error: {kind: "unknown", message: $reply}}' ;;
  esac
}

while IFS= read -r request; do
  id=${request#*:} op=${request#*\"op\":\"}
  id=${id%%,*}
  case ${op%%\"*} in
    hello) answer '{$id, ok: {driver: 1, version: "1", ops: ["push"]}}' ;;
    push) push "$request" ;;
    bye) answer '{$id, ok: {}}' && break ;;
    *) answer '{$id, unsupported: true}' ;;
  esac
done
