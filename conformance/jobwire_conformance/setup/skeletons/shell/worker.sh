#!/bin/sh
# Worker of `jobwire conform`: starts our worker with the five standard jobs, in whatever language
# they are written; docs/how-to/conformance.md of jobwire says what they do. `exec` lets it get
# SIGTERM.

: "${JOBWIRE_REDIS_URL:=redis://127.0.0.1:6379/0}"
: "${JOBWIRE_QUEUES:=default}" # `a:5`: 5 is a weight; without any: strict
: "${JOBWIRE_CONCURRENCY:=1}"
: "${JOBWIRE_POLL:=5}" # seconds between looks for due jobs
: "${JOBWIRE_BEAT:=10}" # seconds between heartbeats
: "${JOBWIRE_GRACE:=25}" # seconds for jobs in hand after SIGTERM

# exec ./bin/worker --redis "$JOBWIRE_REDIS_URL" --queues "$JOBWIRE_QUEUES"
echo 'worker.sh: fill in the line with `exec`' >&2
exit 1
