"""Payloads made from a template: only arguments, id and times differ. [PUSH-6] [PAY-11]

Most of the work of a push is checking options and encoding fields, and the result is the same for
every job of a class with the same options. A template does that work once. It is one checked item,
encoded and cut at the places where jobs differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobwire.errors import InvalidJob
from jobwire.protocol.arguments import StrictArgs, check_args, plain_lists
from jobwire.protocol.normalize import JobFields, ReadyPayload, finalize
from jobwire.protocol.payload import encode, encode_lines
from jobwire.protocol.times import Generation, epoch, stamp
from jobwire.protocol.unique import By, Lock, key_of

__all__ = ["Template"]


class Template:
    """The encoded parts that all jobs of one class and one set of options share.

    Args:
        item: One of these jobs, as `normalize.build` made it.
        now: Epoch seconds at which it was built. If `created_at` of the item is that time, the
            template writes it anew for each job; otherwise it stays fixed.
        generation: Generation of the times to write.
        by: The arguments in the key, if the item has a wish for a lock. [X-UNIQ-1]

    Raises:
        InvalidJob: These jobs must not be written. [PUSH-4]
    """

    __slots__ = (
        *("_after", "_around_key", "_by", "_class", "_generation", "_head", "_lock", "_middle"),
        *("_plain", "_times", "queue"),
    )

    def __init__(
        self, item: JobFields, *, now: float, generation: Generation, by: By | None = None
    ) -> None:
        sample = finalize(item, now=now, generation=generation)
        self.queue: str = sample.queue
        self._class: str = item["class"]
        self._by = by
        self._lock = sample.lock
        self._plain = sample.plain
        self._generation = generation
        times = [] if "at" in item else ["enqueued_at"]
        if item["created_at"] == stamp(now, generation):
            times.insert(0, "created_at")
        fields = {name: value for name, value in item.items() if name != "at" and name not in times}
        before = encode({name: fields.pop(name) for name in _until(fields, "args")})
        del fields["args"]
        between = encode({name: fields.pop(name) for name in _until(fields, "jid")})
        del fields["jid"]
        self._after = [encode(fields)[1:-1]] if fields else []
        self._head = _open(before) + b'"args":'
        self._middle = b"," + _open(between)[1:] + b'"jid":"'
        if self._lock is not None:
            # The last one, because a class, which comes before, may have any text.
            key = self._lock.digest.encode()
            self._around_key = self._middle.rpartition(key)[::2]
        self._times = [b'"%b":' % name.encode() for name in times]

    def tail(self, now: float) -> bytes:
        """Return the last part of all payloads that are made at epoch second `now`."""
        time = encode(stamp(now, self._generation))
        return b",".join([b'"', *self._after, *(name + time for name in self._times)]) + b"}"

    def job(
        self, args: Sequence[Any], jid: str, tail: bytes, *, at: float | None, strict: StrictArgs
    ) -> ReadyPayload:
        """Return one job, with the bytes that `build` and `finalize` would give.

        Args:
            args: Positional arguments.
            jid: A new id, of hex digits.
            tail: From `tail`.
            at: Epoch second to run at, if this is a template of scheduled jobs. [SCHED-4]
            strict: Treatment of arguments for which JSON has no type.

        Raises:
            InvalidJob: The job must not be written. [PUSH-5]
        """
        checked = check_args(args, strict=strict)
        lock, middle = self._lock, self._middle
        if lock is not None:
            key = key_of(self._class, self.queue, checked, self._by)
            lock = Lock(key, lock.scope, lock.seconds)
            middle = key.encode().join(self._around_key)
        try:
            written = encode(checked)
        except ValueError as error:
            raise InvalidJob("PAY-5", "", f"cannot be written: {error}") from None
        text = b"".join((self._head, written, middle, jid.encode(), tail))
        moment = None if at is None else epoch(at)
        return ReadyPayload(jid, self.queue, moment, text, lock, self._plain)

    def jobs(
        self,
        many: Sequence[Sequence[Any]],
        jids: Sequence[str],
        moments: Sequence[float | None],
        tail: bytes,
    ) -> list[ReadyPayload] | None:
        """Return many jobs as `job` does, quicker; None if it must look at each of them."""
        plain = None if self._lock is not None else plain_lists(many)
        if plain is None:
            return None
        try:
            # No line break is in any text, since JSON escapes those of strings. [PAY-1]
            texts = encode_lines(plain).split(b"\n")[:-1]
        except ValueError:
            return None
        head, middle, queue, known = self._head, self._middle, self.queue, self._plain
        return [
            ReadyPayload(
                jid,
                queue,
                None if at is None else epoch(at),
                b"".join((head, written, middle, jid.encode(), tail)),
                None,
                known,
            )
            for written, jid, at in zip(texts, jids, moments, strict=True)
        ]


def _until(fields: JobFields, last: str) -> list[str]:
    names = list(fields)
    return names[: names.index(last)]


def _open(text: bytes) -> bytes:
    """Return the text of a JSON object without its end, ready for more fields."""
    return text[:-1] + b"," if len(text) > 2 else b"{"
