"""Jobs for test_differential.py: payloads x outcomes x routes, the same ones for the same seed."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass
from typing import Any, Literal

from tests.interop.shapes import SEED, Shapes, spelled_alike

Route = Literal["queue", "schedule", "later", "retry"]
"""`queue`: pushed raw; `schedule`, `retry`: due there; `later`: in `schedule`, due in round 1."""

ABSENT: Any = object()
PAST, FUTURE = 1700000000.25, 4000000000.5
KNOWN = [f"Fate::{name}" for name in ("Plain", "Dropped", "Buried", "Once", "Two", "Hooked")]
SERVED = ["default", "low", "another", "last"]

# Values of fields. None of our clients would write most of them.
FIELDS: dict[str, list[Any]] = {
    "retry": [
        *(True, False, None, ABSENT, 0, -1, 1, 2, 3, 25, 10**20),
        *("5", "0", "", 1.0, 0.0, -1.5, [], {}, {"max": 3}),
    ],
    "retry_count": [ABSENT, None, -1, 0, 1, 2, 24, 25, 100, -5, 10**18, 2.0, "3", True, False, []],
    "failed_at": [
        *(None, PAST, int(PAST * 1000), int(PAST), "yesterday", True, -1.5, 0, 1e300, 10**30, []),
    ],
    "retried_at": [None, PAST, int(PAST * 1000), int(PAST), "yesterday", {}],
    # Either over at once or not before the end of the test.
    "retry_for": [None, False, 0, 3600, 10**9, -5, 3600.5, 0.0, "3600", "", True, [], 10**30],
    "retry_queue": ["low", "", None, False, True, 5, [], "unserved", "ü q:\u2028"],
    "queue": ["another", "low", "unserved", "ü q", "", None, ABSENT, 5, True, [], {}],
    "backtrace": [True, False, None, 0, 1, 2, -1, "2", "true", "", 2.0, [], {}, 10**20],
    "dead": [False, None, 0, True, "false", "", []],
    "tags": [[], ["a", "βeta"], "text", None, [1, None], {}, 5, True],
    "at": [PAST, int(PAST), FUTURE, 0, -5, None, True, "soon", "", []],
    "class": ["NoSuchJob", "No::Such::Job", "lower", "", None, 5, [], ABSENT, "String", *KNOWN],
    "args": [ABSENT, None, [], ["x"], [1, 2], [[1], {}], {}, {"a": 1}, "x", 5, False, ""],
    "jid": [ABSENT, None, "", 5, "a*b[c]?", "6ff1cc3c-1a7c-4d1f-8c53-a1a4e9a2b0a2", [], "ü\u2028"],
    "created_at": [ABSENT, None, PAST, int(PAST * 1000), "yesterday", []],
    "enqueued_at": [ABSENT, None, PAST, int(PAST * 1000), "yesterday", []],
    "wrapped": ["Inner", "Fate::Hooked", "", None, 5, []],
    "display_class": ["Shown", "", None, 5],
    "error_message": ["old", None, 5],
    "error_class": ["Old", None, 5],
    "error_backtrace": ["eJyLjgUAARUAuQ==", ["a line"], None],
    "discarded_at": [PAST, None],
    "cattr": [{"_aj_symbol_keys": []}, [], None],
    "locale": ["en", None, 5],
    "log_level": ["debug", "error", None],
    "bid": ["batch", None, 5],
    "expires_in": [1, 0.5, "x"],
    "unique_for": [3600],
    "encrypt": [True],
    "jw_any": [{"nested": [1, 2.5]}],
    "skip": [True, 0, None],
    "stumble": ["before", "after", "spoils"],
}
TOGETHER: list[dict[str, Any]] = [
    {"retry_for": 10**9, "failed_at": failed_at, "retry_count": 1}
    for failed_at in (PAST, int(PAST * 1000), int(PAST), "yesterday")
]
TOGETHER.append({"retry_for": 3600, "failed_at": PAST})  # before its first failure
TOGETHER += [
    {"class": "Fate::Hooked", "dead": dead, **how, "last": last}
    for dead in (False, True)
    for how in ({"retry": 0}, {"hook": ":kill"}, {"retry": False})
    for last in (None, ":discard", {"raise": "the exhausted hook broke"})
]
# Outcomes: the steps of successive executions.
LONG, WIDE = "m" * 10_001, "\U0001f600" * 10_001
FAIL = {"raise": "RuntimeError", "message": "boom"}
STEPS: list[Any] = [
    None,
    FAIL,
    {"raise": "RuntimeError", "message": ""},
    {"raise": "RuntimeError", "message": LONG},
    {"raise": "RuntimeError", "message": WIDE},
    {"raise": "RuntimeError", "message": '\0\x01\x7f\n"\\/ é \u2028\ufeff\uffff \U0001f600'},
    {"raise": "RuntimeError", "bytes": base64.b64encode(b"caf\xe9 \xff, \xc3\xa9").decode()},
    {"raise": "RuntimeError", "bytes": base64.b64encode(b"\xff" * 10_001).decode()},
    {"raise": "Trouble::Deep", "message": "deep"},
    {"raise": "Trouble::Mute", "message": "unheard"},
    {"raise": "NotImplementedError", "message": "no StandardError in Ruby"},
    {"raise": "SystemExit", "message": "nor in Python an Exception"},
    {"raise": "ZeroDivisionError", "message": "divided by 0"},
    {"raise": "RuntimeError", "message": "spoils its arguments", "spoil": True},
]
HOOKS: list[Any] = [
    *(None, 90_000, 90_000.75, 0, -5, 0.0, -1.5, ":discard", ":kill", ":infinity"),
    *({"raise": "the hook broke"}, "90000", "soon", "", True, False, [], 10**20),
]
LAST: list[Any] = [None, ":discard", {"raise": "the exhausted hook broke"}, "text", 5, True]

# Whole payloads. {n} is the number, {spaces} that many spaces, {rest} the fields of a failing job.
TEXTS: list[bytes] = [
    *(b"not json {n}", b"{{spaces}", b'{"n":{n},', b"{spaces}", b"\xff{n}"),
    *(b"[{n}]", b"{n}", b"null{spaces}", b'"text {n}"', b"true{spaces}"),
    b'\xef\xbb\xbf{"n":{n},{rest}}',
    b'{"n":{n},{rest}} trailing',
    b'{"n":{n},{rest},}',
    b' \n{ "n" : {n} ,\t{rest} , "x" : [ 1 , { } ] }\r\n',
    b'{"n":{n},{rest},"x":"\\u00e9\\/\\u0041\\ud83d\\ude00\\u2028\\t"}',
    b'{"n":{n},{rest},"x":[1.50,1E3,1e-7,-0,0.10,1.0e+20,123456789012345678901234567890]}',
    b'{"n":{n},{rest},"x":"\\ud800"}',
    b'{"n":{n},{rest},"x":"caf\xe9"}',
    b'{"n":{n},{rest},"x":NaN}',
    b'{"n":{n},{rest},"x":1e400}',
    b'{"n":{n},{rest},"x":' + b"9" * 5000 + b"}",
    b'{"n":{n},{rest},"x":1,"x":2}',
    b'{"n":{n},{rest},"x":' + b"[" * 99 + b"]" * 99 + b"}",
    b'{"n":{n},{rest},"x":' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"n":{n},{rest},/* comment */"x":1}',
    b"{'n':{n},{rest}}",
]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One job.

    Attributes:
        number: Number of the job, also in its payload as the field `n`.
        route: Way to the worker.
        queue: Its queue if the route is `queue`.
        text: The payload.
        fields: The decoded payload; None for one of TEXTS.
    """

    number: int
    route: Route
    queue: str
    text: bytes
    fields: dict[str, Any] | None

    def has(self, field: str, *values: Any) -> bool:
        """True if the payload has the field, with one of these values if any are given."""
        if self.fields is None or field not in self.fields:
            return False
        found = self.fields[field]
        return not values or any(type(each) is type(found) and each == found for each in values)

    def get(self, field: str) -> Any:
        """Return a field, ABSENT if there is none."""
        return ABSENT if self.fields is None else self.fields.get(field, ABSENT)


def scenarios(count: int, *, seed: int = SEED) -> list[Scenario]:
    """Return each odd value and outcome once, and combinations of them until there are `count`."""
    return list(_Maker(seed).all(count))


class _Maker:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._shapes = Shapes(seed, floats=spelled_alike)
        self._made: list[Scenario] = []

    def all(self, count: int) -> list[Scenario]:
        for name, values in FIELDS.items():
            for value in values:
                self._add({name: value})
        for fields in TOGETHER:
            self._add(fields)
        for step in STEPS:
            self._add({"script": [step]})
        for hook in HOOKS:
            self._add({"class": "Fate::Hooked", "hook": hook})
        for last in LAST:
            self._add({"class": "Fate::Hooked", "last": last, "retry": 0})
        routes: tuple[Route, ...] = ("queue", "schedule", "retry")
        for text in TEXTS:
            for route in routes:
                self._add_text(text, route)
        while len(self._made) < count:
            self._add(self._mixture())
        self._add({"class": ABSENT, "retry": ABSENT}, "queue")
        self._add({"retry_for": 3600, "retry_count": 1, "failed_at": FUTURE}, "queue")
        return self._made

    def _mixture(self) -> dict[str, Any]:
        choose, chance = self._rng.choice, self._rng.random
        names = self._rng.sample([*FIELDS, "retry", "retry_count", "backtrace"], k=3)
        mixture = {name: choose(FIELDS[name]) for name in names}
        if "class" not in mixture or chance() < 0.5:
            mixture["class"] = choose(KNOWN)
        if "args" not in mixture and chance() < 0.5:
            mixture["args"] = [self._shapes.value(3) for _ in range(self._rng.randrange(4))]
        if mixture["class"] == "Fate::Hooked":
            mixture |= {"hook": choose(HOOKS), "last": choose(LAST)}
        mixture["script"] = [choose(STEPS) for _ in range(self._rng.randrange(1, 5))]
        if chance() < 0.2:
            mixture |= self._shapes.fields(2)
        return mixture

    def _add(self, changes: dict[str, Any], route: Route | None = None) -> None:
        number = len(self._made)
        fields: dict[str, Any] = {
            "retry": True,
            "queue": "default",
            "args": [1, ["x"]],
            "class": "Fate::Plain",
            "jid": f"{number:024x}",
            "created_at": 1699999999.125,
            "enqueued_at": 1699999999.5,
            "script": [FAIL],
        }
        fields = {k: v for k, v in (fields | changes).items() if v is not ABSENT} | {"n": number}
        if self._rng.random() < 0.3:
            fields = dict(self._rng.sample(list(fields.items()), k=len(fields)))
        text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        routes: tuple[Route, ...] = ("queue", "queue", "schedule", "later", "retry")
        way: Route = self._rng.choice(routes) if route is None else route
        self._made.append(Scenario(number, way, self._queue(), text, fields))

    def _add_text(self, text: bytes, route: Route) -> None:
        number = len(self._made)
        rest = json.dumps(
            {"class": "Fate::Plain", "args": [], "retry": 2, "queue": "default", "script": [FAIL]},
            separators=(",", ":"),
        ).encode()[1:-1]
        text = text.replace(b"{n}", b"%d" % number).replace(b"{spaces}", b" " * number)
        text = text.replace(b"{rest}", rest)
        self._made.append(Scenario(number, route, self._queue(), text, None))

    def _queue(self) -> str:
        return self._rng.choice(("default", "default", "low", "another"))
