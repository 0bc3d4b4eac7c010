"""Jobs of classes that this process does not know, left to the workers that know them. [X-CLASS]"""

from __future__ import annotations

import logging
import threading
import time
from hashlib import sha1

from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisTrouble
from jobwire.protocol.classes import class_of, is_served
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job
from jobwire.protocol.reliable import InFlightJob

__all__ = ["HandOver"]

MAX_HAND_OVERS = 20  # of one job by one process
LONGEST_PAUSE_S = 0.1  # before a job that came back goes once more
MAX_COUNTED = 10_000  # jobs
MAX_ANSWERS = 1_000  # pairs of class and queue
ANSWER_S = 1.0  # for which the answer about a class holds

_log = logging.getLogger("jobwire.worker")


class HandOver:
    """Finds the queue in which another worker takes a job. Thread-safe.

    The number of times that this process handed over a job is in its memory, because the bytes of
    the job must not change, and because the number only has to end a loop. [X-CLASS-5]

    Args:
        redis: Where processes announce their classes.
        keys: Key names.
        identity: This process.
    """

    def __init__(self, redis: SyncRedis, keys: Keys, identity: str) -> None:
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._told: set[str] = set()  # classes in the log; guarded by `_lock`
        self._lock = threading.Lock()
        self._counts: dict[bytes, int] = {}  # SHA-1 of a payload -> times; guarded by `_lock`
        self._answers: dict[tuple[str, str], tuple[float, bool]] = {}  # guarded by `_lock`

    def queue_for(self, held: InFlightJob, job: Job, to: str) -> str:
        """Return the queue to push a job to; `""` if no worker takes it, or it came too often.

        `to` is the queue that the settings name for its class, or `""`: then the job goes back to
        its queue if another process that serves the queue has announced the class. [X-CLASS-3]

        A job that came back waits a little first. Otherwise this process would take it again and
        again while the threads of the others are busy.
        """
        queue = to or held.queue
        if to == held.queue or not (to or self._is_served(class_of(job.fields), queue)):
            return ""
        digest = sha1(held.text, usedforsecurity=False).digest()
        with self._lock:
            count = self._counts.pop(digest, 0)
            if count < MAX_HAND_OVERS:
                self._counts[digest] = count + 1
                while len(self._counts) > MAX_COUNTED:
                    del self._counts[next(iter(self._counts))]
            told = job.class_name in self._told or len(self._told) >= MAX_ANSWERS
            if count >= MAX_HAND_OVERS and not told:
                self._told.add(job.class_name)
        if count < MAX_HAND_OVERS:
            if count:
                time.sleep(min(0.001 * 2**count, LONGEST_PAUSE_S))
            return queue
        if not told:
            _log.warning(
                "handed over %d times, and no other worker took it: see 'jobwire inspect classes', "
                "and give queue %s more threads of a process that runs %s",
                *(count, queue, job.display_class),
            )
        return ""

    def _is_served(self, class_name: str, queue: str) -> bool:
        now = time.monotonic()
        with self._lock:
            until, answer = self._answers.get((class_name, queue), (now, False))
        if until > now:
            return answer
        try:
            answer = self._redis.run(is_served(self._keys, self._identity, class_name, queue))
        except RedisTrouble as error:
            _log.warning("cannot see which workers run %s: %s", class_name, error)
            return False
        with self._lock:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            self._answers[class_name, queue] = (now + ANSWER_S, answer)
        return answer
