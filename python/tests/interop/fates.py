"""Fates of the scenarios on one side, in words that are the same on the other side.

A round lasts until nothing is due. Between two rounds the clock is warped through the
data: every member of `schedule` and `retry` is made due.

Nothing becomes due before its round begins, because a worker reads its clock before it asks
Redis. It may read it long before, and its stamps would be of no round.
"""

from __future__ import annotations

import base64
import json
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
import redis

from harness.servers import wait_until
from jobwire.protocol.times import read
from tests.interop.scenarios import KNOWN, Scenario
from tests.interop.shapes import exact

KEPT = "kept"
MOMENTS = ("enqueued_at", "failed_at", "retried_at", "created_at", "discarded_at")
SENTINEL = {"class": "Fate::Sentinel", "args": [], "queue": "last", "retry": False, "jid": "end"}
SHORTEST_DELAY = 14.0  # seconds, before the first retry
STEP = 1e-6  # seconds, between two members that become due
LAST = 1000 * STEP  # seconds, after which the last member of a round becomes due
_PLACES = ("schedule", "retry", "dead", "jobwire:unreadable", "app:calls")
_NUMBER = re.compile(rb'"n"\s*:\s*(\d+)')


Fate = dict[str, str]
"""Fate of one scenario in one round, in words: `in <place>`, `<place>.<field>`, `calls`,
`call <index>.<argument>`."""
Round = Mapping[int, Fate]
"""Number of a scenario to its fate; none if it left no trace."""


class Side:
    """One side: its Redis, and the time spans of its rounds.

    Args:
        client: Connection to its Redis.
        table: All scenarios.
        running: Function that returns True while its worker runs.
    """

    def __init__(
        self, client: redis.Redis, table: Sequence[Scenario], running: Callable[[], bool]
    ) -> None:
        self._client = client
        self._table = table
        self._running = running
        self._texts = {scenario.text: scenario.number for scenario in table}
        self._windows: list[tuple[float, float]] = []
        self._rounds = 0
        self.executions = 0
        self.failures = 0

    def play(self, part: Sequence[Scenario], rounds: int) -> list[Round]:
        """Return the fates of these scenarios, round by round.

        A first retry is due after 15 s, and no round may last as long. On a machine that is too
        slow for all scenarios, fewer of them are played at a time.
        """
        self._windows = []
        stale = [*self._client.keys("app:attempts:*"), *self._client.keys("queue:*")]
        self._client.delete(*stale, *_PLACES)
        self._fill(part)
        fates = [self._round()]
        while len(fates) < rounds:
            self._warp()
            fates.append(self._round())
        if all(until - since < SHORTEST_DELAY for since, until in self._windows):
            return fates
        assert len(part) > 1, "too slow for one scenario"
        half = len(part) // 2
        halves = self.play(part[:half], rounds), self.play(part[half:], rounds)
        return [{**one, **other} for one, other in zip(*halves, strict=True)]

    def _fill(self, part: Sequence[Scenario]) -> None:
        """Put every scenario into its first place."""
        self._since = now = time.time()
        pipe = self._client.pipeline()
        for rank, scenario in enumerate(part, 1):
            match scenario.route:
                case "queue":
                    pipe.sadd("queues", scenario.queue)
                    pipe.lpush(f"queue:{scenario.queue}", scenario.text)
                case "later":
                    pipe.zadd("schedule", {scenario.text: 4e9 + scenario.number})
                case name:
                    pipe.zadd(name, {scenario.text: now + rank * STEP})
        pipe.execute()

    def _warp(self) -> None:
        """Make every waiting member due, in the order of the scores."""
        self._since = now = time.time()
        pipe = self._client.pipeline()
        for name in ("schedule", "retry"):
            members = cast("list[bytes]", self._client.zrange(name, 0, -1))
            for rank, member in enumerate(members, 1):
                pipe.zadd(name, {member: now + rank * STEP}, xx=True)
        pipe.execute()

    def _round(self) -> Round:
        """Wait until nothing is due or running; return the fates by scenario.

        The last due member of the set that is looked through last goes to a queue that
        the worker's only thread looks at last.
        """
        wait_until(
            # The worker might be between `retry` and `schedule`.
            lambda: self._client.zcount("retry", "-inf", self._since + LAST) == 0,
            60,
            "a look at `retry`",
        )
        sentinel = json.dumps({**SENTINEL, "round": self._rounds})
        self._client.zadd("schedule", {sentinel: self._since + LAST})
        self._rounds += 1

        def over() -> bool:
            assert self._running(), "the worker has ended"
            return self._client.llen("app:done") == self._rounds

        wait_until(over, 60, "the end of a round")
        self._windows.append((self._since - 0.002, time.time()))
        self.executions += 1
        return self._fates()

    def _fates(self) -> Round:
        fates: dict[int, Fate] = defaultdict(dict)
        for place, score, text in self._members():
            scenario = self._whose(text)
            assert scenario, f"a stranger in {place}: {text[:200]!r}"
            fate = fates[scenario.number]
            assert f"in {place}" not in fate, f"twice in {place}: {text[:200]!r}"
            fate[f"in {place}"] = self._score(scenario, place, score, text)
            fate |= {f"{place}.{name}": word for name, word in self._text(scenario, text)}
        for number, calls in self._calls().items():
            names = [call["what"] for call in calls]
            fate = fates[number]
            fate["calls"] = " ".join(names)
            for index, call in enumerate(calls):
                words = self._call(self._table[number], call)
                fate |= {f"call {index}.{name}": word for name, word in words}
            # A job that fails before the middleware has not begun.
            self.executions += max(names.count("began"), names.count("error"))
            self.failures += names.count("error")
        return fates

    def _members(self) -> Iterator[tuple[str, float | None, bytes]]:
        client: Any = self._client
        for name in _PLACES[:4]:
            for text, score in client.zrange(name, 0, -1, withscores=True):
                yield name, score, text
        for key in client.keys("queue:*"):
            for text in client.lrange(key, 0, -1):
                yield key.decode(), None, text

    def _whose(self, text: bytes) -> Scenario | None:
        number = self._texts.get(text)
        if number is None and (match := _NUMBER.search(text)):
            number = int(match[1])
        return None if number is None else self._table[number]

    def _calls(self) -> dict[int, list[dict[str, Any]]]:
        pipe = self._client.pipeline()
        pipe.lrange("app:calls", 0, -1)
        pipe.delete("app:calls")
        calls: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for text in pipe.execute()[0]:
            call = _loads(text)
            if (number := call.pop("n")) is not None:  # the sentinel has no number
                calls[number].append(call)
        return calls

    # -- in words

    def _score(self, scenario: Scenario, place: str, score: float | None, text: bytes) -> str:
        if score is None:
            return "there"
        if place != "retry":
            return self._moment(score) or f"at {score}"
        item = _loads(text)
        count = item.get("retry_count")
        moments = [read(item.get(name)) for name in ("retried_at", "failed_at")]
        failed = next((at for at in moments if self._moment(at)), None)
        if type(count) is not int or failed is None:
            return f"at {score}"  # moved by the warp, otherwise unchanged
        late = self._windows[-1][1] - failed  # at most this long after the stamp the delay began
        for what, base in ("default", count**4 + 15), ("chosen", scenario.get("hook")):
            # Sidekiq cuts the fraction off a delay that was chosen.
            early, jitter = (1.01 if type(base) is float else 0.01), 10 * (count + 1)
            if type(base) in (int, float) and -early <= score - failed - base < late + jitter:
                return f"{what} delay"
        return f"delay of {score - failed:.0f} s after failure {count}"

    def _text(self, scenario: Scenario, text: bytes) -> Iterator[tuple[str, str]]:
        if text == scenario.text:
            yield "text", "untouched"
            return
        try:
            new = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            old = msgspec.json.decode(scenario.text, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield "text", repr(text)
            return
        yield "order", " ".join(new)
        item = _loads(text)
        for name, raw in new.items():
            kept = name in old and bytes(raw) == bytes(old[name]).strip()
            if kept and name != "error_backtrace":  # a new one may be the same
                yield name, KEPT
            else:
                yield name, self._field(scenario, name, item) or bytes(raw).decode()

    def _call(self, scenario: Scenario, call: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        old = scenario.fields or {}
        for name, value in call.items():
            if name == "job":
                yield "order", " ".join(value)
                for field_, inner in value.items():
                    kept = field_ in old and exact(inner) == exact(old[field_])
                    if kept and field_ != "error_backtrace":
                        yield field_, KEPT
                    else:
                        yield field_, self._field(scenario, field_, value) or exact(inner)
            elif name == "error":
                error = {"error_class": value["class"], "error_message": value["message"]}
                yield "error class", self._field(scenario, "error_class", error) or ""
                yield "error message", self._field(scenario, "error_message", error) or ""
            elif name != "what":
                yield name, exact(value)

    def _field(self, scenario: Scenario, name: str, item: Mapping[str, Any]) -> str | None:
        value = item[name]
        if name in MOMENTS and type(value) in (int, float):
            moment = self._moment(read(value))
            return moment and f"{moment}, {type(value).__name__}"
        if name in ("error_class", "error_message"):
            return _error(scenario, item)[name == "error_message"]
        if name == "error_backtrace" and isinstance(value, str):
            # In lines of 60 characters, up to 7.2.0. [RETRY-8]
            lines = json.loads(zlib.decompress(base64.b64decode(value.replace("\n", ""))))
            wanted = scenario.get("backtrace")
            # The depth of a stack depends on the language.
            few = not lines or (type(wanted) is int and wanted in (1, 2))
            return f"{len(lines)} lines" if few else "lines"
        return None

    def _moment(self, at: float | None) -> str | None:
        for number, (since, until) in enumerate(self._windows):
            if at is not None and since <= at <= until:
                return f"round {number}"
        return None


def _error(scenario: Scenario, item: Mapping[str, Any]) -> tuple[str, str]:
    """Return class and message, those of the languages' own errors in common words."""
    name, message = str(item["error_class"]), str(item.get("error_message"))
    name = name.removeprefix("tests.interop.differential_app.").replace(".", "::")
    if scenario.get("class") not in KNOWN and name in (
        *("NameError", "NoMethodError", "TypeError", "ArgumentError"),
        "jobwire::errors::UnknownJob",
    ):
        return "unknown class", "unknown class"
    if name in ("ArgumentError", "TypeError"):
        return "bad arguments", "bad arguments"
    return name, message


def _loads(text: bytes) -> Any:
    """Decode what Ruby accepts: integers of any size (as text, if Python refuses them)."""

    def integer(digits: str) -> Any:
        return int(digits) if len(digits) < 4000 else digits

    return json.loads(text.decode(errors="replace"), parse_int=integer)
