"""Background threads of a worker: heartbeat, poller, outcome writer, periodic checks."""
