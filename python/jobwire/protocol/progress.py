"""The progress that a running job reports, as a JSON object at a key of the job. [X-PROG-1]

And the status of a job in the form of sidekiq-status. [X-ADDON-19] to [X-ADDON-21]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from jobwire.errors import InvalidArgument
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Arg, Batch, Command, Op, command

__all__ = [
    "KEEP_S",
    "MAX_NOTE_CHARS",
    "MAX_NUMBER",
    "JobProgress",
    "RubyStatus",
    "Status",
    "checked",
    "read",
    "writes",
]

KEEP_S = 86_400  # after the last write [X-PROG-3]
MAX_NOTE_CHARS = 200  # [X-PROG-2]
MAX_NUMBER = 2**53  # every reader of JSON keeps integers up to here exact


Status: TypeAlias = Literal["complete", "retrying", "failed", "interrupted", "stopped"]


class JobProgress(msgspec.Struct, frozen=True):  # made more often than written; see Execution
    """One report of a job.

    Attributes:
        done: The part of the work that is done, in the unit of `total`.
        total: The whole work; None if it is not known.
        note: A short text for people, such as the name of the step.
        at: Epoch second of the report.
    """

    done: int | float
    total: int | float | None = None
    note: str = ""
    at: float = 0.0

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None without a total."""
        if self.total is None:
            return None
        return min(self.done / self.total, 1.0) if self.total else 1.0

    @property
    def summary(self) -> str:
        """The progress as a line for people, such as `3 of 10 (30 %): mails`."""
        text = f"{self.done:,}"
        if self.fraction is not None:
            # Rounded down, so that 100 % means that all is done.
            text += f" of {self.total:,} ({int(self.fraction * 100)} %)"
        return f"{text}: {self.note}" if self.note else text


def checked(done: int | float, total: int | float | None, note: str, *, at: float) -> JobProgress:
    """Return a progress that a job reports; a longer note is cut. [X-PROG-2]

    Raises:
        InvalidArgument: A number or the note has another type or range.
    """
    for name, number in (("done", done), ("total", 0 if total is None else total)):
        if _number(number) is None:
            raise InvalidArgument(f"progress: {name} is {number!r}; pass a number from 0 to 2**53")
    if not isinstance(note, str):
        raise InvalidArgument(f"progress: note is {note!r}; pass a string")
    return JobProgress(done, total, note[:MAX_NOTE_CHARS], at)


def writes(keys: Keys, progress: Mapping[str, JobProgress]) -> list[Command]:
    """Return the commands that store the progress of jobs, by job id. [X-PROG-1] [X-PROG-3]"""
    return [
        command("SET", keys.progress(jid), _text(one), "EX", KEEP_S)
        for jid, one in progress.items()
    ]


def _text(progress: JobProgress) -> bytes:
    fields: dict[str, object] = {"done": progress.done, "at": progress.at}
    if progress.total is not None:
        fields["total"] = progress.total
    if progress.note:
        # Lone surrogates have no UTF-8.
        note = progress.note.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        fields["note"] = note
    return msgspec.json.encode(fields)


def read(text: object) -> JobProgress | None:
    """Return a stored progress; None if there is none, or if the text is not one. [X-PROG-6]"""
    try:
        fields = msgspec.json.decode(text) if isinstance(text, bytes) else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    done = _number(fields.get("done")) if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or done is None:
        return None
    note = fields.get("note")
    return JobProgress(
        done,
        _number(fields.get("total")),
        note[:MAX_NOTE_CHARS] if isinstance(note, str) else "",
        float(_number(fields.get("at")) or 0.0),
    )


def _number(value: object) -> int | float | None:
    """Return a number from 0 to `MAX_NUMBER`; None for another value, such as NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value <= MAX_NUMBER else None


class RubyStatus(NamedTuple):
    """The jobs whose status is written in the form of sidekiq-status. [X-ADDON-19] [X-ADDON-20]

    Attributes:
        keep: Seconds to keep a status after its last change.
        classes: The names of their classes; all classes if it is empty.
    """

    keep: int
    classes: frozenset[str]

    def covers(self, class_name: str) -> bool:
        """True if the status of jobs of a class is written."""
        return not self.classes or class_name in self.classes

    def waits(
        self, keys: Keys, jid: str, class_name: str, args: object, now: float
    ) -> list[Command]:
        """Return the commands that say that a job was pushed. [X-ADDON-20]"""
        described = _described(jid, class_name, args)
        return self._set(keys, jid, now, "status", "queued", "enqueued_at", int(now), *described)

    def begins(
        self, keys: Keys, jid: str, class_name: str, args: object, now: float
    ) -> list[Command]:
        """Return the commands that say that a job runs. [X-ADDON-19]"""
        described = _described(jid, class_name, args)
        return self._set(keys, jid, now, "status", "working", "started_at", int(now), *described)

    def ends(
        self, keys: Keys, jid: str, status: Status, progress: JobProgress | None, now: float
    ) -> list[Command]:
        """Return the commands that say how an execution ended, with its last progress."""
        ended = () if status == "retrying" else ("ended_at", int(now))
        words = () if progress is None else _ruby_words(progress)
        return self._set(keys, jid, now, "status", status, *ended, *words)

    def goes_on(
        self, keys: Keys, jobs: Mapping[str, JobProgress | None], now: float
    ) -> Op[Collection[str]]:
        """Write how far running jobs are, and return those that Ruby asks to end.

        [X-ADDON-19] [X-ADDON-21]
        """
        steps = [command("HGET", keys.ruby_status(jid), "stop") for jid in jobs]
        for jid, progress in jobs.items():
            if progress is not None:
                steps += self._set(keys, jid, now, *_ruby_words(progress))
        # Not atomic: a key of another type then hides the answers for no other job.
        replies: Sequence[Any] = yield Batch(steps)
        return {jid for jid, stop in zip(jobs, replies, strict=False) if stop == b"true"}

    def _set(self, keys: Keys, jid: str, now: float, *fields: Arg) -> list[Command]:
        key = keys.ruby_status(jid)
        return [
            command("HSET", key, *fields, "updated_at", int(now)),
            command("EXPIRE", key, self.keep),
            command("PUBLISH", "status_updates", jid),
        ]


def _described(jid: str, class_name: str, args: object) -> tuple[Arg, ...]:
    text = msgspec.json.encode(args) if args else b"{}"
    return "jid", jid, "worker", class_name, "args", text


def _ruby_words(progress: JobProgress) -> tuple[Arg, ...]:
    done, total = int(progress.done), int(progress.total or 100)
    note = progress.note.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    percent = int(100 * done / total) if total else 100
    return "at", done, "total", total, "pct_complete", percent, "message", note
