"""Payloads of one kind, from a template: only arguments, id and time differ. [PUSH-6] [PAY-11]

To check options and to encode fields one by one is most of the work of a push, and comes out the
same for every job of a kind. A template is made from one checked item and cut where jobs differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobwire.errors import InvalidJob
from jobwire.protocol.arguments import StrictArgs, check_args
from jobwire.protocol.normalize import JobFields, ReadyPayload, finalize
from jobwire.protocol.payload import encode
from jobwire.protocol.times import Generation, epoch, stamp

__all__ = ["Template"]


class Template:
    """What all jobs of a kind have in common.

    Args:
        item: One of them, as `normalize.build` made it.
        now: When; `created_at` varies if it is that.
        generation: How times are written.

    Raises:
        InvalidJob: None of these jobs may be written. [PUSH-4]
    """

    __slots__ = ("_generation", "_head", "_middle", "_times", "queue")

    def __init__(self, item: JobFields, *, now: float, generation: Generation) -> None:
        self.queue: str = finalize(item, now=now, generation=generation).queue
        self._generation = generation
        times = [] if "at" in item else ["enqueued_at"]
        if item["created_at"] == stamp(now, generation):
            times.insert(0, "created_at")
        fields = {name: value for name, value in item.items() if name != "at" and name not in times}
        before = encode({name: fields.pop(name) for name in _until(fields, "args")})
        del fields["args"]
        between = encode({name: fields.pop(name) for name in _until(fields, "jid")})
        assert list(fields) == ["jid"], fields
        self._head = _open(before) + b'"args":'
        self._middle = b"," + _open(between)[1:] + b'"jid":"'
        self._times = [b'"%b":' % name.encode() for name in times]

    def tail(self, now: float) -> bytes:
        """Return the end of all payloads that are made at this time."""
        time = encode(stamp(now, self._generation))
        return b",".join([b'"', *(name + time for name in self._times)]) + b"}"

    def job(
        self, args: Sequence[Any], jid: str, tail: bytes, *, at: float | None, strict: StrictArgs
    ) -> ReadyPayload:
        """Return one job, as `build` and `finalize` would make it.

        Args:
            args: Positional arguments.
            jid: A fresh id, of hex digits.
            tail: From `tail`.
            at: When to run it, if it is a template of scheduled jobs. [SCHED-4]
            strict: What to do with arguments that JSON does not have.

        Raises:
            InvalidJob: It may not be written. [PUSH-5]
        """
        checked = check_args(args, strict=strict)
        try:
            written = encode(checked)
        except ValueError as error:
            raise InvalidJob("PAY-5", "", f"cannot be written: {error}") from error
        text = b"".join((self._head, written, self._middle, jid.encode(), tail))
        return ReadyPayload(jid, self.queue, None if at is None else epoch(at), text)


def _until(fields: JobFields, last: str) -> list[str]:
    names = list(fields)
    return names[: names.index(last)]


def _open(text: bytes) -> bytes:
    """Return a JSON object as it is when more fields follow."""
    return text[:-1] + b"," if len(text) > 2 else b"{"
