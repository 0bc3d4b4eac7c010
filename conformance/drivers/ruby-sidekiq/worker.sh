#!/bin/sh
# A Sidekiq process with the standard jobs. Weights and grace are passed in Sidekiq's form. Its grace
# is a whole number of seconds, at least one.
set -eu
set -f
grace=${JOBWIRE_GRACE%.*}
[ "$grace" -ge 1 ] || grace=1
set -- -r "${JOBWIRE_JOBS:-./jobs.rb}" -c "$JOBWIRE_CONCURRENCY" -t "$grace"
IFS=,
for queue in $JOBWIRE_QUEUES; do
  weight=${queue##*:}
  case $weight in
    *[!0-9]* | '' | "$queue") set -- "$@" -q "$queue" ;;
    *) set -- "$@" -q "${queue%:*},$weight" ;;
  esac
done
exec sidekiq "$@"
