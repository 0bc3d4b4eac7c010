"""The way of parked jobs back to their queues. [X-PARK-5] [X-CLASS-6]"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from jobwire.errors import MalformedPayload
from jobwire.protocol.foreign import UNKNOWN, why_field
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import decode
from jobwire.protocol.wire import Arg, Batch, Op, Script, command

__all__ = ["unpark", "unpark_known"]

PAGE_SIZE = 500  # jobs


def unpark(keys: Keys, jobs: Sequence[tuple[bytes, str]]) -> Op[int]:
    """Push parked jobs, each with the queue that it names, with their exact bytes.

    For each job the step is atomic: it is removed and pushed, or it stays. [X-PARK-5]

    Returns:
        Number of jobs that were pushed.
    """
    queue_keys: dict[str, int] = {}
    words: list[Arg] = []
    for payload, queue in jobs:
        number = queue_keys.setdefault(keys.queue(queue), len(queue_keys) + 1)
        words += (payload, number, queue, payload)
    if not words:
        return 0
    moved, _ = yield Script("promote", [keys.parked, keys.queues, *queue_keys], words)
    scores = yield Batch([command("ZSCORE", keys.parked, payload) for payload, _ in jobs])
    gone = [why_field(payload) for (payload, _), at in zip(jobs, scores, strict=True) if at is None]
    if gone:
        yield command("HDEL", keys.parked_why, *gone)
    return int(moved)


def unpark_known(
    keys: Keys,
    knows: Callable[[Mapping[str, Any]], bool],
    queues: Collection[str],
    since: float,
) -> Op[int]:
    """Push the jobs of unknown classes that a process can run, as far as it serves their queues.

    [X-CLASS-6]

    Args:
        keys: Key names.
        knows: Returns whether the process can run a payload.
        queues: Queues of the process; jobs of other queues stay parked.
        since: Epoch second; jobs that were parked before are not looked at.

    Returns:
        Number of jobs that were pushed.
    """
    pushed, size, start = 0, PAGE_SIZE, since
    while True:
        payloads: Sequence[bytes] = yield command(
            *("ZRANGE", keys.parked, start, "+inf", "BYSCORE", "LIMIT", 0, size)
        )
        if not payloads and start == -math.inf:
            yield command("UNLINK", keys.parked_why)  # reasons that a crash left
        is_last = len(payloads) < size
        score = None if is_last else (yield command("ZSCORE", keys.parked, payloads[-1]))
        fitting = [
            (payload, queue)
            for payload in payloads
            if (queue := _queue_of(payload, knows)) in queues
        ]
        fields = [why_field(payload) for payload, _ in fitting]
        reasons = (yield command("HMGET", keys.parked_why, *fields)) if fields else ()
        # A crash can lose a reason. Such a job goes back also: if it needs more than its class,
        # the worker that fetches it parks it again.
        able = [
            job
            for job, reason in zip(fitting, reasons, strict=True)
            if reason in (None, UNKNOWN.encode())
        ]
        pushed += yield from unpark(keys, able)
        if is_last:
            return pushed
        last = start if score is None else float(score)  # None: another process has pushed it
        size = PAGE_SIZE if last > start else 2 * size  # many jobs may have one score
        start = last


def _queue_of(payload: bytes, knows: Callable[[Mapping[str, Any]], bool]) -> str:
    """Return the queue that a payload names if its class is known; otherwise `""`."""
    try:
        fields = decode(payload, "").fields
    except MalformedPayload:
        return ""
    queue = fields.get("queue")
    return queue if isinstance(queue, str) and knows(fields) else ""
