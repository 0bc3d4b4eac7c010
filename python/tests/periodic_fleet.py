"""Many processes that look at the periodic entries of one server at the same time.

python -m tests.periodic_fleet URL COUNT SECONDS
"""

from __future__ import annotations

import os
import sys
import time

from jobwire.connection.sync import SyncRedis
from jobwire.protocol.keys import Keys
from jobwire.worker.background.periodic import PeriodicThread


def main(url: str, count: str, seconds: str) -> None:
    """Fork the processes, have them begin together, and wait for their end."""
    begin = time.time() + 0.5 + int(count) * 0.02
    children = []
    for _ in range(int(count)):
        pid = os.fork()
        if pid == 0:
            time.sleep(max(begin - time.time(), 0.0))
            redis = SyncRedis(url)
            thread = PeriodicThread(redis, Keys(), generation=lambda: 8)
            thread.start()
            time.sleep(float(seconds))
            thread.close(timeout=30)
            os._exit(0)
        children.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    sys.exit(any(statuses))


if __name__ == "__main__":
    main(*sys.argv[1:])
