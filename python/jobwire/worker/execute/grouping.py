"""Execution of groups in a worker: their start, and their end. [X-FLOW-9] to [X-FLOW-12]"""

from __future__ import annotations

import time
from collections.abc import Callable

from jobwire.connection.sync import SyncRedis
from jobwire.protocol.chains import NEXT
from jobwire.protocol.groups import gathered, script_start, start, to_gather
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job
from jobwire.protocol.results import KEEP
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import Batch, command, once

__all__ = ["Groups"]


class Groups:
    """Runs the groups of a process. Many threads may use it.

    Args:
        redis: The Redis of their batches and results.
        keys: Key names.
        generation: Returns how to write times.
    """

    def __init__(self, redis: SyncRedis, keys: Keys, generation: Callable[[], Generation]) -> None:
        self._redis = redis
        self._keys = keys
        self._generation = generation

    def run(self, job: Job) -> None:
        """Push the members of a group; or, at its end, return their results as its value.

        Raises:
            MalformedPayload, ResultError: See `start` and `gathered`; the group fails.
            RedisTrouble: The group fails, and is retried.
        """
        ids = to_gather(job.text)
        if ids is not None:
            steps = [command("GET", self._keys.result(jid)) for jid in ids]
            job.value = gathered(ids, self._redis.run(once(Batch(steps))) if steps else [])
            return
        now = time.time()
        started = start(job.text, job.queue, now=now, generation=self._generation())
        self._redis.run(once(script_start(self._keys, started, now)))
        # The end pushes the next job, and its result is that of the group.
        job.fields.pop(NEXT, None)
        job.fields.pop(KEEP, None)
