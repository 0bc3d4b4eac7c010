"""The output of a running job: a stream of JSON items, which others read meanwhile. [X-STEP-7]"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from jobwire.errors import InvalidArgument, OutputGap, RedisRefused
from jobwire.protocol.arguments import check_value
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import encode
from jobwire.protocol.wire import Arg, Command, ErrorReply, Script, command

__all__ = [
    "KEEP_S",
    "MAX_ITEMS",
    "MAX_ITEM_BYTES",
    "OutputItem",
    "Tail",
    "before",
    "encoded",
    "keep_seconds",
    "script_emit",
    "script_tell",
]

MAX_ITEMS: Final = 10_000  # of one job; the oldest go first [X-STEP-9]
MAX_ITEM_BYTES: Final = 16_384  # of JSON [X-STEP-8]
KEEP_S: Final = 3_600  # after the last item, unless the job says another time [X-STEP-9]
MAX_KEEP_S: Final = 2_592_000
ITEMS_AT_ONCE: Final = 500  # in one read, so that other clients of Redis do not wait long
_POSITION = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class OutputItem:
    """One item of the output of a job.

    Attributes:
        position: Where it is in the output, for `after`: `<Unix milliseconds>-<number from 1>`.
        value: The emitted value of JSON.
        run: Name of the execution that emitted it. After a failure or a crash a job begins again,
            so items with another name may repeat those before.
    """

    position: str
    value: Any
    run: str

    @property
    def at(self) -> float:
        """Epoch second at which Redis got it."""
        return int(self.position.partition("-")[0]) / 1000


def encoded(items: Sequence[object]) -> list[bytes]:
    """Return items as JSON.

    Raises:
        InvalidArgument: JSON has no form for one, or it is too large. [X-STEP-8]
    """
    texts = []
    for item in items:
        try:
            check_value(item, "item", depth=2)
            text = encode(item)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(
                f"emit: an item cannot be written: {error}; emit what JSON can write"
            ) from error
        if len(text) > MAX_ITEM_BYTES:
            raise InvalidArgument(
                f"emit: an item has {len(text):,} bytes of JSON; at most {MAX_ITEM_BYTES:,} are "
                "allowed: store it elsewhere, and emit its place"
            )
        texts.append(text)
    return texts


def keep_seconds(keep: float) -> int:
    """Return for how many whole seconds an output is kept.

    Raises:
        InvalidArgument: It is not a number of seconds from 1 to 30 days.
    """
    if type(keep) not in (int, float) or not 1 <= keep <= MAX_KEEP_S:
        raise InvalidArgument(f"emit: keep is {keep!r}; pass seconds from 1 to {MAX_KEEP_S:,}")
    return math.ceil(keep)


def script_emit(
    keys: Keys, jid: str, run: str, items: Sequence[bytes], *, keep: int, now: float
) -> Script:
    """Return the step that appends items to the output of a job. [X-STEP-7] [X-STEP-9]"""
    words: list[Arg] = ["item", MAX_ITEMS, keep, int(now * 1000), run, *items]
    return Script("emit", [keys.output(jid)], words)


def script_tell(keys: Keys, jid: str, outcome: str, *, now: float) -> Script:
    """Return the step that says how an execution ended, if the job has an output. [X-STEP-10]"""
    return Script("emit", [keys.output(jid)], ["end", MAX_ITEMS, 0, int(now * 1000), "", outcome])


class Tail:
    """A reader of an output: it knows its position, and whether the job is over. [X-STEP-12]

    Args:
        jid: The job id.
        after: The position of the last item that the reader has; "" for none.

    Attributes:
        jid: The job id.
        over: True if nothing follows, as far as is known: the last entry is an end after which the
            job does not run by itself. [X-STEP-13]

    Raises:
        InvalidArgument: `after` is not a position.
    """

    def __init__(self, jid: str, after: str = "") -> None:
        found = _POSITION.fullmatch(after or "0-0")
        if found is None:
            raise InvalidArgument(
                f"after: {after!r} is not a position; pass the `position` of an item, like "
                "'1764480000000-7', or nothing to read from the beginning"
            )
        self.jid = jid
        self.over = False
        self._at, self._number = int(found[1]), int(found[2])
        self._looked = False  # at the entry of the position, which may be an end

    @property
    def position(self) -> str:
        """The position of the last entry that was read."""
        return f"{self._at}-{self._number}"

    def read(self, keys: Keys) -> Command:
        """Return the command that reads the next entries. [X-STEP-14]"""
        first = f"{self._at}-{self._number + self._looked}"
        return command("XRANGE", keys.output(self.jid), first, "+", "COUNT", ITEMS_AT_ONCE)

    def newest(self, keys: Keys) -> tuple[Arg, ...]:
        """Return the command that reads the last entry, for one who waits for the next."""
        return ("XREVRANGE", keys.output(self.jid), "+", "-", "COUNT", 1)

    def is_behind(self, reply: Any) -> bool:
        """True if the reply to `newest` has an entry that was not read."""
        return bool(reply) and _numbers(reply[0][0]) > (self._at, self._number)

    def take(self, reply: Any) -> list[OutputItem]:
        """Return the items in the reply to `read`, up to a gap.

        Raises:
            OutputGap: Entries after the position are gone. The next read begins behind the gap.
                [X-STEP-15]
            RedisRefused: The reply is an error.
        """
        if isinstance(reply, ErrorReply):
            raise RedisRefused(reply.message)
        items: list[OutputItem] = []
        for name, words in reply:
            at, number = _numbers(name)
            fields = dict(zip(words[::2], words[1::2], strict=False))
            if (at, number) != (self._at, self._number):
                if number != self._number + 1:
                    if items:
                        break  # the next read finds the gap
                    # A smaller number: the output had expired, and has begun again.
                    lost = number - self._number - 1 if number > self._number else None
                    self._at, self._number = at, number - 1
                    raise OutputGap(self.jid, self.position, lost)
                self._at, self._number = at, number
                if (item := _item(self.position, fields)) is not None:
                    items.append(item)
            self._looked = True
            self.over = fields.get(b"end", b"retry") != b"retry"
        return items


def before(entry: Any) -> str:
    """Return the position right before an entry, for a reader that begins there on purpose."""
    at, number = _numbers(entry[0])
    return f"{at}-{max(number - 1, 0)}"


def _numbers(name: bytes) -> tuple[int, int]:
    at, _, number = name.partition(b"-")
    return int(at), int(number)


def _item(position: str, fields: dict[bytes, bytes]) -> OutputItem | None:
    """Return an entry as an item; None for an end or for the entry of another program."""
    try:
        value = msgspec.json.decode(fields[b"item"])
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return OutputItem(position, value, fields.get(b"run", b"").decode("utf-8", "replace"))
