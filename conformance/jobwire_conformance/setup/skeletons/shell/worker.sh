#!/bin/sh
# Worker of `jobwire conform`: starts our worker with the five standard jobs, in any language.
# docs/how-to/conformance.md of jobwire describes these jobs. `exec` makes the worker receive
# SIGTERM.

: "${JOBWIRE_REDIS_URL:=redis://127.0.0.1:6379/0}"
: "${JOBWIRE_QUEUES:=default}" # `a:5` has weight 5; without weights: strict
: "${JOBWIRE_CONCURRENCY:=1}"
: "${JOBWIRE_POLL:=5}" # seconds between looks for due jobs
: "${JOBWIRE_BEAT:=10}" # seconds between heartbeats
: "${JOBWIRE_GRACE:=25}" # seconds for running jobs after SIGTERM

# exec ./bin/worker --redis "$JOBWIRE_REDIS_URL" --queues "$JOBWIRE_QUEUES"
echo 'worker.sh: fill in the line with `exec`' >&2
exit 1
