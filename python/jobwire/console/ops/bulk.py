"""Changes of many entries, one batch at a time, with a state from which they can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast, get_args

from jobwire.application.generation import GenerationSetting
from jobwire.console.ops import undo
from jobwire.console.ops.selection import Selection, place_key, place_size
from jobwire.errors import ConfigError
from jobwire.inspect.entry import QUEUE, Entry, SetName, entry
from jobwire.inspect.filters import Filter
from jobwire.inspect.reading import ask, items, raw, required, whole
from jobwire.inspect.sets import PageAct, page_act
from jobwire.inspect.walking import SetWalk
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = ["Bulk", "BulkAction", "BulkState", "begin", "check_action", "other_act"]

BATCH_SIZE = 500  # entries of one batch

BulkAction = Literal["retry", "add_to_queue", "kill", "delete"]
BULK_ACTS: tuple[BulkAction, ...] = get_args(BulkAction)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkState:
    """The progress of a change of many entries, and the point at which it goes on.

    Attributes:
        id: Id of the change: 16 hex digits. A deletion can be undone with it.
        act: `retry`, `add_to_queue`, `kill` or `delete`; of a queue, only `delete`.
        selection: The entries to change.
        total: Number of entries in the place at the start.
        seen: Number of entries that were examined.
        matched: Number of these that the selection matched.
        done: Number of entries that were changed.
        left: Number of entries that cannot be changed: payloads that name no queue, or a queue
            whose key is not a list.
        parts: Number of batches that changed something.
        position: Of a set, the score at which it goes on, as text, or None at the start. Of a
            queue, the number of jobs at its tail that were not examined.
        finished: True at the end.
    """

    id: str
    act: BulkAction
    selection: Selection
    total: int
    seen: int = 0
    matched: int = 0
    done: int = 0
    left: int = 0
    parts: int = 0
    position: str | None = None
    finished: bool = False

    @property
    def undo(self) -> str:
        """Id with which the deletion can be undone for 24 hours, or ""."""
        return self.id if self.act == "delete" and self.done else ""

    def as_dict(self) -> dict[str, Any]:
        """Return the state as values that JSON can hold; see `from_dict`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> BulkState:
        """Return a state from the values that `as_dict` gave.

        Raises:
            ConfigError: A value is missing or impossible.
        """
        try:
            chosen = stored["selection"]
            only = Filter(**chosen["only"])
            selection = Selection(**{**chosen, "only": only})
            return cls(**{**stored, "selection": selection})
        except (KeyError, TypeError) as error:
            raise ConfigError(f"state: not one of BulkState.as_dict: {error}") from None


def begin(keys: Keys, bulk_id: str, act: BulkAction, selection: Selection) -> Op[BulkState]:
    """Return the state before the first batch.

    Raises:
        ConfigError: The action is not possible for this place.
    """
    check_action(act, selection.place)
    total = yield from place_size(keys, selection.place)
    position = str(total) if selection.place.startswith(QUEUE) else None
    return BulkState(
        id=bulk_id,
        act=act,
        selection=selection,
        total=total,
        position=position,
        finished=total == 0,
    )


def check_action(act: str, place: str) -> BulkAction:
    """Return an action on many entries, after a check.

    Raises:
        ConfigError: There is no such act, or it is not possible for this place.
    """
    for known in BULK_ACTS:
        if act != known:
            continue
        if place.startswith(QUEUE) and known != "delete":
            raise ConfigError(f"{act}: jobs of {place} run anyway; they can be deleted")
        if known == "kill" and place in ("dead", "unreadable"):
            raise ConfigError(f"kill: entries of {place} are already dead")
        return known
    raise ConfigError(f"act: {act!r} is not one of {', '.join(BULK_ACTS)}")


def other_act(state: BulkState, act: str) -> ConfigError:
    """Return the error for a state that is resumed with another action."""
    return ConfigError(f"resume: this state is of {state.act}, not of {act}")


@dataclass(slots=True)
class Bulk:
    """Does the batches of a change of many entries.

    Each batch reads up to 500 entries and changes those that match in one atomic step. It examines
    as many entries as there were at the start, so that jobs that fail again and return do not keep
    it running. An entry is changed by its exact bytes; one that is gone by then counts as not done.

    Attributes:
        keys: Key names.
        person: The person, for the record of a deletion.
        generation: Generation of the times to write.
        state: The state after the last batch.
    """

    keys: Keys
    person: str
    generation: GenerationSetting
    state: BulkState
    _walk: SetWalk | None = field(default=None, init=False)
    _act: PageAct | None = field(default=None, init=False)
    _numbered: bool = field(default=False, init=False)

    def step(self, *, now: float) -> Op[BulkState]:
        """Do one batch at epoch second `now`; return the state after it.

        Raises:
            RedisTrouble: The state is that before the batch. After `NoReply`, the server may have
                changed the batch's entries; the next step finds them gone.
        """
        if self.state.finished:
            return self.state
        if not self._numbered and self.state.act == "delete":
            yield from self._count_parts()
        try:
            if self.state.selection.place.startswith(QUEUE):
                yield from self._queue_step(now)
            else:
                yield from self._set_step(now)
        except BaseException:
            self._walk = None  # its position is behind entries that may be unchanged
            self._numbered = False
            raise
        return self.state

    def _count_parts(self) -> Op[None]:
        """Continue the parts of the record, which may have one more than the state.

        A batch without a reply, or after which the state was not saved, has written its part.
        """
        parts = yield command("HGET", self.keys.undo(self.state.id), "parts")
        self.state = replace(self.state, parts=max(self.state.parts, whole(parts)))
        self._numbered = True

    def _set_step(self, now: float) -> Op[None]:
        state = self.state
        place = cast("SetName", state.selection.place)
        key = cast("str", place_key(self.keys, place))
        if self._walk is None:
            start = None if state.position is None else float(state.position)
            self._walk = SetWalk(key, place, rising=True, page=BATCH_SIZE, start=start)
        page = yield from self._walk.next()
        page = page[: state.total - state.seen]
        matched = [one for one in page if state.selection.matches(one, now=now)][: self._left]
        done, left = 0, 0
        if matched:
            done, left = yield from self._change(place, key, matched, now)
        position = state.position
        if page and page[-1].score is not None:
            position = repr(page[-1].score)
        self._advance(len(page), len(matched), done, left, position)

    def _change(
        self, place: SetName, key: str, matched: list[Entry], now: float
    ) -> Op[tuple[int, int]]:
        if self.state.act == "delete":
            members = [one.payload for one in matched]
            done = yield from undo.remove_from_set(
                *(self.keys, key, place, self.state.id, self.state.parts, members),
                person=self.person,
                now=now,
            )
            return done, 0
        if self._act is None:
            self._act = yield from page_act(
                *(self.keys, place, self.state.act),
                dead_limits=DeadSetLimits(now),
                generation=self.generation,
            )
        return (yield from self._act(matched))

    def _queue_step(self, now: float) -> Op[None]:
        state = self.state
        queue = state.selection.place.removeprefix(QUEUE)
        key = raw(self.keys.queue(queue))
        (length,) = yield from ask([command("LLEN", key)])
        # Counted from the tail, so that pushes do not move the jobs that are left. Jobs that were
        # fetched from the tail in the meantime make it look at some jobs again, and skip none.
        left = min(whole(state.position), whole(required(length)))
        first, last = -left, min(BATCH_SIZE - left, -1)  # one more than a page: the job in front
        payloads: list[bytes] = []
        if left:
            (reply,) = yield from ask([command("LRANGE", key, first, last)])
            payloads = items(reply)
        page = [entry(payload, state.selection.place) for payload in payloads[:BATCH_SIZE]]
        page = page[: max(state.total - state.seen, 0)]
        chosen = [
            undo.Removal(one.payload, payloads[index + 1] if index + 1 < len(payloads) else None)
            for index, one in enumerate(page)
            if state.selection.matches(one, now=now)
        ][: self._left]
        done = 0
        if chosen:
            done = yield from undo.remove_from_queue(
                *(self.keys, queue, state.id, state.parts, chosen), person=self.person, now=now
            )
        self._advance(len(page), len(chosen), done, 0, str(left - len(page)))

    @property
    def _left(self) -> int | None:
        """Number of entries that the limit of the selection still allows; None without one."""
        limit = self.state.selection.limit
        return None if limit is None else limit - self.state.matched

    def _advance(self, seen: int, matched: int, done: int, left: int, position: str | None) -> None:
        state = self.state
        self.state = replace(
            state,
            seen=state.seen + seen,
            matched=state.matched + matched,
            done=state.done + done,
            left=state.left + left,
            parts=state.parts + bool(matched),
            position=position,
            finished=seen == 0 or state.seen + seen >= state.total or matched == self._left,
        )
